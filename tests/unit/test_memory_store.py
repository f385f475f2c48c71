"""A new journal in a store in memory is there once it is whole."""

from __future__ import annotations

import pytest

from belated.core.events import Void
from belated.exceptions import InvalidInput
from belated.journals import open_store


def test_a_new_journal_is_there_once_its_block_has_ended() -> None:
    """Then the store knows it, with what was written."""
    store = open_store("memory:")
    with store.new_journal("offers", partitions=4) as journal:
        journal.append([Void("a", 1)])
        assert store.describe() == []
    [entry] = store.describe()
    assert (entry.name, entry.partitions) == ("offers", 4)
    with store.journal("offers") as journal:
        assert sum(journal.end(partition) for partition in range(4)) == 1


def test_one_that_was_not_finished_is_not_there() -> None:
    """Nor is one beside a journal of the same name."""
    store = open_store("memory:")
    with pytest.raises(RuntimeError), store.new_journal("offers", partitions=1):
        raise RuntimeError("while it is written")
    assert store.describe() == []
    with (
        pytest.raises(InvalidInput, match=r"already has a bandit .offers."),
        store.new_journal("offers", partitions=1),
    ):
        store.journal("offers").close()
