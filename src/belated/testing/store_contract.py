"""Contract tests for stores."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from belated.core.events import (
    ActionChanged,
    Decision,
    ModeChanged,
    ModelChosen,
    Reward,
    Void,
)
from belated.exceptions import InvalidInput, JournalClosed, JournalError, JournalMismatch
from belated.journals import Store
from belated.journals.coordination import Held, leaders, renew_leases
from belated.journals.store import Batch, StoreSession


class StoreContract:
    """Tests for stores: subclass as ``class TestMyStore(StoreContract)``."""

    def make_store(self) -> Store:
        """Return a new, empty store."""
        raise NotImplementedError

    @pytest.fixture
    def new_store(self) -> Store:
        """A new store with tables."""
        store = self.make_store()
        store.create_tables()
        return store

    def test_describe_lists_bandits(self, new_store: Store) -> None:
        """Bandits are sorted by name; listing creates nothing."""
        assert isinstance(new_store, Store)
        new_store.create_tables()
        assert [bandit.name for bandit in new_store.describe()] == []
        for bandit in ("offers", "Zoo", "default"):
            new_store.journal(bandit).close()
        assert [bandit.name for bandit in new_store.describe()] == ["Zoo", "default", "offers"]

    def test_reopened_journal_keeps_its_data(self, new_store: Store) -> None:
        """Events and the number of partitions persist; any other number is rejected."""
        with new_store.journal("offers", partitions=4) as journal:
            assert (journal.bandit, journal.partitions) == ("offers", 4)
            journal.append([Void("a", 5)])
        with (
            new_store.journal("offers") as journal,
            new_store.journal("offers", partitions=4) as second,
        ):
            assert journal.partitions == 4
            assert [record.event for record in second.records_of(["a"])] == [Void("a", 5)]
        with pytest.raises(JournalMismatch, match="partitions"):
            new_store.journal("offers", partitions=2)
        with new_store.journal() as journal:
            assert (journal.bandit, journal.partitions) == ("default", 1)
            assert journal.records_of(["a"]) == []

    def test_invalid_arguments_are_refused(self, new_store: Store) -> None:
        """Nothing is created if an argument is rejected."""
        with pytest.raises(InvalidInput):
            new_store.journal("")
        with pytest.raises(InvalidInput):
            new_store.journal("offers", partitions=3)
        assert [bandit.name for bandit in new_store.describe()] == []

    def test_coordination_requires_a_journal(self, new_store: Store) -> None:
        """Coordination of an unknown bandit is rejected; leases are per bandit."""
        with pytest.raises(JournalError, match="by opening its journal"):
            new_store.coordination("offers")
        new_store.journal("offers").close()
        new_store.journal("other").close()
        with (
            closing(new_store.coordination("offers")) as offers,
            closing(new_store.coordination("other")) as second,
        ):
            assert offers.acquire_lease("me", 100.0) is not None
            assert second.leader() is None

    def test_keys_are_shared_by_the_store(self, new_store: Store) -> None:
        """A key created through one object is visible through another."""
        with closing(new_store.keys()) as keys, closing(new_store.keys()) as second:
            assert keys.create("id", "shop", ["*"], ["read"], None, b"hash")
            assert [key.id for key in second.live()] == ["id"]

    def test_session_serves_many_bandits(self, new_store: Store) -> None:
        """A session stores batches for several bandits, and reads all their states at once."""
        with closing(new_store.session()) as session:
            assert isinstance(session, StoreSession)
            assert session.ends(["a", "b"]) == {}
            journal, second_journal = session.journal("a", partitions=2), session.journal("b")
            x = np.ones(2, dtype=np.float32)
            first, second = (Decision("mine", n, n, 0, x, 0.5, 1.0, 0) for n in (1, 2))
            generated = Decision("018bcfe5680070001234567890abcdef", 3, 3, 0, x, 0.5, 1.0, 0)
            appended = session.append_all(
                [
                    Batch(journal, [first, Reward("y", 5, 1.0), second], ["mine"], {0: b"of it"}),
                    Batch(second_journal, [Void("x", 6), generated], (), {1: b"of b's"}),
                ]
            )
            assert [len(receipt.positions) for receipt in appended] == [3, 2]
            assert appended[0].standing == {"mine": first}
            assert appended[0].positions[0] == appended[0].positions[2]
            assert list(appended[1].positions) == [1, 2]
            assert second_journal.requests(0, [1, 2]) == {2: b"of b's"}
            with new_store.journal("a") as reopened:
                assert reopened.decisions(["mine"]) == {"mine": first}
            # On the second call, the first decision with the id wins; other bandits are unaffected.
            batches = [Batch(journal, [second], ["mine"]), Batch(second_journal, [Void("z", 7)])]
            repeated = session.append_all(batches)
            assert repeated[0].standing == {"mine": first}
            assert list(repeated[1].positions) == [3]
            assert session.modes(["a", "b"]) == {}
            journal.append([ModeChanged(8, "freeze"), ModeChanged(9, "off")])
            assert session.modes(["a", "b"]) == {"a": ModeChanged(9, "off")}
            assert session.actions({"a": 0, "b": 0}) == {}
            paused, resumed = ActionChanged(8, "x", "pause"), ActionChanged(9, "x", "resume")
            journal.append([paused])
            assert session.actions({"a": 0, "b": 0}) == {"a": (1, {"x": paused})}
            assert session.actions({"a": 1, "b": 0}) == {}
            journal.append([resumed])
            assert session.actions({"a": 1, "b": 0}) == {"a": (2, {"x": resumed})}
            assert session.chosen_models({"a": 0, "b": 0}) == {}
            journal.append([ModelChosen(8, 7, b"model"), ModelChosen(9, 0)])
            assert session.chosen_models({"a": 0, "b": 0})["a"][1] == ModelChosen(9, 0)
            self._check_models(session)

    def _check_models(self, session: StoreSession) -> None:
        ends = {name: sum(positions) for name, positions in session.ends(["a", "b"]).items()}
        assert ends == {"a": 8, "b": 3}
        assert leaders(session.cells, ["a", "b"]) == {}
        lead = session.coordination("b")
        epoch = lead.acquire_lease("me", 100.0)
        assert epoch is not None
        lead.publish(b"model", epoch)
        assert set(leaders(session.cells, ["a", "b"])) == {"b"}
        assert session.published({"a": 0, "b": 0}) == {"b": (1, b"model")}
        assert session.published({"a": 0, "b": 1}) == {}

    def test_leases_are_renewed_together(self, new_store: Store) -> None:
        """Leases that are held by other learners are not renewed."""
        with closing(new_store.session()) as session:
            for name in ("a", "b", "c"):
                session.journal(name, partitions=1)
            leads = {name: session.coordination(name) for name in ("a", "b", "c")}
            epoch = leads["a"].acquire_lease("me", 1.0)
            leads["b"].acquire_lease("another", 100.0)
            leads["c"].acquire_lease("me", 1.0)
            assert epoch is not None
            leases = {name: Held("me", epoch) for name in ("a", "b", "c")}
            leads["b"].release_lease("another")
            leads["b"].acquire_lease("another", 100.0)
            assert renew_leases(session.cells, leases, 100.0) == {"a", "c"}
            leaders_now = {name: lead.leader() for name, lead in leads.items()}
            holders = {name: leader.holder for name, leader in leaders_now.items() if leader}
            assert holders == {"a": "me", "b": "another", "c": "me"}
            assert all(leader and leader.seconds > 50.0 for leader in leaders_now.values())

    def test_closing_one_journal_keeps_the_session_open(self, new_store: Store) -> None:
        """Closing one journal leaves the session's other journals usable."""
        session = new_store.session()
        journal, second_journal = session.journal("a"), session.journal("b")
        journal.close()
        with pytest.raises(JournalClosed):
            journal.end(0)
        assert second_journal.append([Void("x", 5)]) == [1]
        second_journal.close()
        session.close()
