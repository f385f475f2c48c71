"""A spool: what it takes while its journal is away, what it hands over, what it finds damaged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from belated.core.events import Decision, Event, Settled, Void
from belated.exceptions import (
    InvalidInput,
    JournalClosed,
    JournalError,
    JournalReadUnavailable,
    JournalUnavailable,
)
from belated.journals import Journal, MemoryJournal, MemoryStore, SpoolJournal
from belated.journals.log import Requests
from belated.journals.spool.file import SpooledBatch, SpoolFile
from belated.testing import JournalContract, ManualClock
from tests.shelf_contract import ShelfContract
from tests.unit.spool.moody import FIRST, Disk, Moody, events_of, spool


class _SpoolContract(JournalContract, ShelfContract):
    wait: float | None

    @pytest.fixture(autouse=True)
    def _paths(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}.spool" for n in count())

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """In front of a journal in memory."""
        self.store = MemoryStore(clock=clock)
        memory = self.store.journal(partitions=partitions)
        return SpoolJournal(memory, next(self.paths), wait=self.wait, clock=clock)

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """Another one in front of the same facts, with a file of its own."""
        return SpoolJournal(self.store.journal(), next(self.paths), wait=self.wait, clock=clock)


class TestWithAThread(_SpoolContract):
    """The contract, where a thread talks to the journal."""

    wait = 60.0


class TestWithoutAThread(_SpoolContract):
    """The contract, where the caller does."""

    wait = None


# --- away and back -----------------------------------------------------------------------------


def test_events_are_queued_in_order_while_journal_is_unavailable(moody: Moody, disk: Disk) -> None:
    """They have no position, are handed over in order, and then positions go on."""
    journal = spool(moody, disk)
    assert journal.append([Void("a", 1)]) == [1]
    moody.away = True
    assert journal.append([Void("b", 1), Void("c", 1)]) == [0, 0]
    moody.away = False  # but what waits goes first
    assert journal.append([Void("d", 1)]) == [0]
    assert journal.status.queued == 3
    assert journal.forward() == 3
    assert journal.append([Void("e", 1)]) == [5]
    assert events_of(journal) == [Void(id, 1) for id in "abcde"]


def test_other_calls_fail_while_journal_is_unavailable(moody: Moody, disk: Disk) -> None:
    """It is not even asked, until a forward finds it back."""
    journal = spool(moody, disk)
    moody.away = True
    with pytest.raises(JournalUnavailable, match="not there"):
        journal.end(0)
    calls = moody.calls
    for call in (
        lambda: journal.read(0, 0, 1),
        lambda: journal.load(0),
        lambda: journal.end(0),
        lambda: journal.decisions(["a"]),
        lambda: journal.records_of(["a"]),
        lambda: journal.settlements(0),
        lambda: journal.acquire(0),
        journal.mode,
        journal.now,
    ):
        with pytest.raises(JournalReadUnavailable, match=r"down \(the journal is not there\)"):
            call()
    assert moody.calls == calls
    moody.away = False
    assert journal.forward() == 0
    assert journal.end(0) == 0


def test_the_status_tells_what_waits(moody: Moody, disk: Disk) -> None:
    """How many, how large, since when, why, and what was handed over."""
    clock = ManualClock(1000)
    journal = SpoolJournal(moody, disk, wait=None, clock=clock)
    calm = journal.status
    assert (calm.journal_down, calm.queued, calm.size, calm.oldest) == (False, 0, 0, None)
    assert (calm.error, calm.forwarded) == (None, 0)
    moody.away = True
    for clock.now in (2000, 3000):
        journal.append([Void("a", clock.now)])
    away = journal.status
    assert (away.journal_down, away.queued, away.oldest) == (True, 2, 2000)
    assert away.size == len(disk.data) - FIRST > 0
    assert away.error == "the journal is not there"
    moody.away = False
    journal.forward()
    back = journal.status
    assert (back.journal_down, back.queued, back.size, back.oldest) == (False, 0, 0, None)
    assert back.forwarded == 2
    assert len(disk.data) == FIRST


def test_a_spooled_decision_keeps_its_request(moody: Moody, disk: Disk) -> None:
    """In the file, across a restart, and in the journal once it is handed over."""
    x = np.ones(2, np.float32)
    made = [Decision(f"{n}", 5, n, 0, x, 0.5, 1.0, 0) for n in range(5)]
    journal = spool(moody, disk)
    moody.away = True
    journal.append([Void("v", 1), made[0]], requests={1: b"of 0"})
    journal.append_unique([made[1], made[2]], {"1"}, {1: b"of 2"})
    journal.append([made[3], made[4]], recorded=[7, 8], requests={0: b"of 3"})
    with pytest.raises(InvalidInput, match="not a decision"):
        journal.append([Void("w", 1)], requests={0: b"of nothing"})
    journal = spool(moody, Disk(bytes(disk.data)))
    moody.away = False
    assert journal.forward() == 6
    records = journal.read(0, 0, 100)
    kept = journal.requests(0, [record.position for record in records])
    found = {getattr(one.event, "id", ""): kept.get(one.position) for one in records}
    assert found == {"v": None, "0": b"of 0", "1": None, "2": b"of 2", "3": b"of 3", "4": None}


def test_a_forward_page_that_fails_half_way_goes_on_from_there(moody: Moody, disk: Disk) -> None:
    """Pages that arrived are not sent again while the process lives."""
    journal = spool(moody, disk)
    moody.away = True
    sent = [Void(f"{n}", n) for n in range(1200)]
    for event in sent:
        journal.append([event])
    moody.away = False
    append = moody.append

    def once(
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        moody.away = True
        return MemoryJournal.append(moody, events, recorded=recorded)

    moody.append = once  # type: ignore[method-assign]
    assert journal.forward_page() == 500
    moody.append = append  # type: ignore[method-assign]
    assert journal.forward() == 0
    assert (journal.status.journal_down, journal.status.queued) == (True, 700)
    moody.away = False
    assert journal.forward() == 700
    assert events_of(journal) == sent


def test_times_that_were_given_are_kept(moody: Moody, disk: Disk) -> None:
    """What came without one is stamped when the journal takes it."""
    journal = spool(moody, disk)
    moody.away = True
    journal.append([Void("a", 1), Void("b", 1)], recorded=[70, 80])
    journal.append([Void("c", 1)])
    with pytest.raises(InvalidInput):
        journal.append([Void("d", 1)], recorded=[])
    moody.away = False
    journal.forward()
    assert [record.recorded for record in journal.read(0, 0, 10)] == [70, 80, 1000]


def test_invalid_events_are_refused_while_journal_is_unavailable(moody: Moody, disk: Disk) -> None:
    """Nothing of the call waits: it could never be handed over."""
    journal = spool(moody, disk)
    moody.away = True
    for wrong in ("no event", Settled(1, 5), None):
        with pytest.raises(InvalidInput):
            journal.append([Void("a", 1), wrong])  # type: ignore[list-item]
    assert journal.append([]) == []
    assert (journal.status.queued, len(disk.data)) == (0, FIRST)


def test_what_a_later_release_left_is_carried_on(moody: Moody, disk: Disk) -> None:
    """It was rolled back while the journal was away: its events arrive unread, in their order."""
    unknown = b"\xc8written by a release to come"
    known = SpoolFile(disk, bandit="bandit", limit=10**6)
    moody.append([Settled(0, 1)], recorded=[5000])
    known.put(SpooledBatch(7, [0], [b"\x02\x93\x04\xa1a\x05"], None))
    known.put(SpooledBatch(8, [0, 0], [unknown, b"\x02\x93\x04\xa1b\x05"], None))
    journal = spool(moody, disk)
    assert journal.status.queued == 0
    found = journal.read(0, 1, 10)
    assert [record.recorded for record in found] == [5000] * 3
    assert [getattr(record.event, "data", record.event) for record in found] == [
        Void("a", 5),
        unknown,
        Void("b", 5),
    ]


def test_something_the_journal_refuses_stays_and_is_told(moody: Moody, disk: Disk) -> None:
    """Nothing is dropped silently; it is tried again with every forward."""
    journal = spool(moody, disk)
    moody.away = True
    journal.append([Void("a", 1)])

    def refuse(
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        raise InvalidInput("not this one")

    moody.append = refuse  # type: ignore[method-assign]
    assert journal.forward() == 0
    status = journal.status
    assert (status.journal_down, status.queued, status.error) == (True, 1, "not this one")


def test_what_breaks_the_journal_for_good_does_not_stop_events(moody: Moody, disk: Disk) -> None:
    """Such as a standby that was promoted by mistake: they wait, and the status says why."""
    journal = spool(moody, disk)
    take = moody.append

    def refuse(
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        raise JournalError("it is a standby")

    moody.append = refuse  # type: ignore[method-assign]
    assert journal.append([Void("a", 1)]) == [0]
    assert (journal.status.journal_down, journal.status.error) == (True, "it is a standby")
    moody.append = take  # type: ignore[method-assign]
    assert journal.forward() == 1
    moody.close()
    with pytest.raises(JournalClosed):
        journal.append([Void("b", 1)])


def test_positions_are_told_when_events_are_handed_over(moody: Moody, disk: Disk) -> None:
    """Each once, in order; those that went straight through were told at once."""
    told: list[tuple[object, int]] = []

    def tell(events: Sequence[Event], positions: Sequence[int]) -> None:
        told.extend(zip(events, positions, strict=True))

    journal = spool(moody, disk, delivered=tell)
    assert journal.append([Void("a", 1)]) == [1]
    moody.away = True
    assert journal.append([Void("b", 2), Void("c", 3)]) == [0, 0]
    assert journal.append([Void("d", 4)]) == [0]
    moody.away = False
    journal.forward()
    assert told == [(Void("b", 2), 2), (Void("c", 3), 3), (Void("d", 4), 4)]
