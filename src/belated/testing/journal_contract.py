"""What every journal must do, as tests: what its log must, and drop old records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from belated.core.events import (
    Configured,
    Decision,
    Erased,
    Event,
    ModeChanged,
    Reward,
    Settled,
    Trimmed,
    Void,
)
from belated.core.ids import erased_key_of
from belated.exceptions import HistoryTrimmed, HistoryUndone, InvalidInput
from belated.journals import Journal, Snapshot
from belated.testing.clocks import ManualClock
from belated.testing.unique_log_contract import UniqueLogContract


class JournalContract(UniqueLogContract):
    """Subclass it as ``class TestMyJournal(JournalContract)`` and say how one is opened.

    Each test opens journals of its own, and closes them. Of the two methods to define,
    ``open_journal`` is needed; where ``reopen`` is missing, its tests are skipped.
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

    # --- dropping old records -----------------------------------------------------------------

    def test_old_records_are_dropped_behind_a_base(self) -> None:
        """A few at a time; what comes later is as it was, and so are the acts of operators."""
        with self.open_journal(1, ManualClock()) as journal:
            places = _fill(journal)
            sixth, seventh = places[5:7]
            before = journal.read(0, 0, 100)
            assert journal.start(0) == (0, 0)
            assert journal.base(0) is None
            assert journal.drop(0, 10) == 0
            base = Snapshot(0, sixth, "v1", {"ledger": b"six", "chain": b""})
            journal.rebase(base, _trimmed(sixth), 1)
            assert journal.start(0) == (sixth, STAMP)
            assert journal.base(0) == base
            while count := journal.drop(0, 2):
                assert count <= 2
            with pytest.raises(HistoryTrimmed):
                journal.read(0, 0, 100)
            after = journal.read(0, sixth, 100)
            assert after[:-1] == before[6:]
            assert after[-1].event == _trimmed(sixth)
            assert journal.mode() == ModeChanged(1, "freeze")
            assert journal.configured() == Configured(1, {"policy": "UCB"})
            assert [one.event for one in journal.undone(0)] == [Erased(erased_key_of("a"), 1)]
            assert journal.settlements(0) == []
            assert journal.records_of(["a", "b"]) == before[6:7]
            assert journal.decisions(["a"]) == {}
            assert journal.requests(0, places[1:2]) == {}
            assert journal.load(0) == Snapshot(0, places[7], "v1", {"ledger": b"eight"})
            (position,) = journal.append([Void("z", 5)])
            assert position > after[-1].position
            later = Snapshot(0, seventh, "v1", {"ledger": b"seven"})
            journal.rebase(later, _trimmed(seventh), 1)
            assert journal.base(0) == later
            journal.drop(0, 100)
            assert journal.read(0, seventh, 1) == before[7:8]

    def test_a_base_that_would_lose_something_is_refused(self) -> None:
        """Without a later snapshot, behind another base, or from before something was undone."""
        with self.open_journal(1, ManualClock()) as journal:
            places = _fill(journal)
            sixth, eighth = places[5], places[7]
            base = Snapshot(0, sixth, "v1", {"ledger": b"six"})
            for position in (eighth, eighth + 1):  # the snapshot is of the eighth
                with pytest.raises(InvalidInput, match="snapshot"):
                    journal.rebase(Snapshot(0, position, "v1", {}), _trimmed(position), 1)
            with pytest.raises(HistoryUndone):
                journal.rebase(base, _trimmed(sixth), 0)
            assert journal.start(0) == (0, 0)
            assert journal.base(0) is None
            assert journal.end(0) == eighth
            journal.rebase(base, _trimmed(sixth), 1)
            assert len(journal.read(0, eighth, 9)) == 1
            for position in (places[4], sixth):
                with pytest.raises(InvalidInput, match="cannot take the place"):
                    journal.rebase(Snapshot(0, position, "v1", {}), _trimmed(position), 1)
            assert journal.base(0) == base


#: Of the last record that is dropped.
STAMP = 1_006


def _trimmed(position: int) -> Trimmed:
    return Trimmed(0, 7, position, STAMP, "too old", "me")


def _fill(journal: Journal) -> list[int]:
    """Eight records and a snapshot of them; returns their positions."""
    decision = Decision("a", 5, 0, 0, np.ones(2, dtype=np.float32), 0.5, 1.0, 0)
    events: list[Event] = [
        ModeChanged(1, "freeze"),
        decision,
        Configured(1, {"policy": "UCB"}),
        Erased(erased_key_of("a"), 1),
        Settled(0, 3),
        Reward("b", 5, 1.0),
        Void("b", 6),
        Reward("c", 5, 1.0),
    ]
    stamps = [STAMP - 5 + n for n in range(8)]
    places = journal.append(events, recorded=stamps, requests={1: b"request"})
    journal.save(Snapshot(0, places[-1], "v1", {"ledger": b"eight"}))
    return places
