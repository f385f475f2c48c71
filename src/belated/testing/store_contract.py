"""What every store must do, as tests."""

from __future__ import annotations

from contextlib import closing

import pytest

from belated.events import Void
from belated.exceptions import InvalidInput, JournalError, JournalMismatch
from belated.journals import Store


class StoreContract:
    """Subclass it as ``class TestMyStore(StoreContract)`` and say how a store is made."""

    def make_store(self) -> Store:
        """Return a new store in which nothing is yet."""
        raise NotImplementedError

    def test_bandits_are_listed_and_looking_makes_none(self) -> None:
        """By name, whatever the order they came in."""
        store = self.make_store()
        assert isinstance(store, Store)
        store.create_tables()
        store.create_tables()
        assert [one.name for one in store.describe()] == []
        for bandit in ("offers", "Zoo", "default"):
            store.journal(bandit).close()
        assert [one.name for one in store.describe()] == ["Zoo", "default", "offers"]

    def test_a_journal_is_the_same_whenever_it_is_opened(self) -> None:
        """Events and the number of partitions are there; another number is refused."""
        store = self.make_store()
        store.create_tables()
        with store.journal("offers", partitions=4) as journal:
            assert (journal.bandit, journal.partitions) == ("offers", 4)
            journal.append([Void("a", 5)])
        with store.journal("offers") as journal, store.journal("offers", partitions=4) as other:
            assert journal.partitions == 4
            assert [one.event for one in other.records_of(["a"])] == [Void("a", 5)]
        with pytest.raises(JournalMismatch, match="partitions"):
            store.journal("offers", partitions=2)
        with store.journal() as journal:
            assert (journal.bandit, journal.partitions) == ("default", 1)
            assert journal.records_of(["a"]) == []

    def test_names_and_numbers_are_checked(self) -> None:
        """And what is refused is not made."""
        store = self.make_store()
        store.create_tables()
        with pytest.raises(InvalidInput):
            store.journal("")
        with pytest.raises(InvalidInput):
            store.journal("offers", partitions=3)
        assert [one.name for one in store.describe()] == []

    def test_coordination_needs_a_journal(self) -> None:
        """And is that of one bandit."""
        store = self.make_store()
        store.create_tables()
        with pytest.raises(JournalError, match="open its journal first"):
            store.coordination("offers")
        store.journal("offers").close()
        store.journal("other").close()
        with (
            closing(store.coordination("offers")) as one,
            closing(store.coordination("other")) as other,
        ):
            assert one.acquire_lease("me", 100.0) is not None
            assert other.leader() is None

    def test_keys_belong_to_the_store(self) -> None:
        """Whatever opened them."""
        store = self.make_store()
        store.create_tables()
        with closing(store.keys()) as one, closing(store.keys()) as other:
            assert one.create("id", "shop", ["*"], ["read"], None, b"hash")
            assert [key.id for key in other.live()] == ["id"]
