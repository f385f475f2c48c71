"""What every journal must do, as tests: what its log and its shelf must."""

from __future__ import annotations

from typing import Any

import pytest

from belated.journals import Journal
from belated.testing.clocks import ManualClock
from belated.testing.shelf_contract import ShelfContract
from belated.testing.unique_log_contract import UniqueLogContract


class JournalContract(UniqueLogContract, ShelfContract):
    """Subclass it as ``class TestMyJournal(JournalContract)`` and say how one is opened.

    Each test opens journals of its own, and closes them. Of the three methods to define,
    ``open_journal`` is needed; where ``reopen`` and ``spoil`` are missing, their tests are skipped.
    """

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """Open a new and empty journal."""
        raise NotImplementedError

    def reopen(self, journal: Any, clock: ManualClock) -> Journal:
        """Open the same journal a second time, while the first is still open."""
        pytest.skip("this journal does not outlive its object")

    def test_it_is_a_journal(self) -> None:
        """It has all that the protocol names."""
        with self.open_journal(1, ManualClock()) as journal:
            assert isinstance(journal, Journal)
