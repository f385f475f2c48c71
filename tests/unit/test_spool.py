"""A spool: what it takes while its journal is away, what it hands over, what it finds damaged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.events import Decision, Event, Record, Reward, Settled, Void
from belated.exceptions import (
    CorruptJournal,
    InvalidInput,
    JournalClosed,
    JournalError,
    JournalMismatch,
    JournalReadUnavailable,
    JournalUnavailable,
    NotAJournal,
    SnapshotWarning,
    UnsupportedFormat,
)
from belated.inputs import Matrix
from belated.journals import Journal, MemoryJournal, MemoryStore, SpoolJournal
from belated.journals.log import Requests
from belated.journals.spool.file import Batch, SpoolFile
from belated.testing import JournalContract, ManualClock
from tests.waiting import eventually

FIRST = len(b"belated spool 1\n") + 12 + len("bandit")  # where the first batch is


class Moody(MemoryJournal):
    """A journal in memory that can fail, and hang."""

    def __init__(self, *, partitions: int = 1, clock: ManualClock | None = None) -> None:
        super().__init__(partitions=partitions, clock=clock)
        self.away = False
        self.answers = threading.Event()
        self.answers.set()
        self.calls = 0

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Or not."""
        self._face()
        return super().append(events, recorded=recorded, requests=requests)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Or not."""
        self._face()
        return super().read(partition, after, limit)

    def end(self, partition: int) -> int:
        """Or not."""
        self._face()
        return super().end(partition)

    def _face(self) -> None:
        self.calls += 1
        self.answers.wait()
        if self.away:
            raise JournalUnavailable("the journal is not there")


class Disk:
    """A store whose power can be cut: what was not synced is gone, or half there."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)
        self.full = False
        self.closed = False

    def append(self, data: bytes) -> None:
        """Half of it, where the disk is full."""
        self.data += data[: len(data) // 2] if self.full else data
        if self.full:
            raise OSError(28, "No space left on device")

    def sync(self) -> None:
        """Remember how far."""
        self.synced = len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        """As it is."""
        return bytes(self.data[offset : offset + size])

    def truncate(self, size: int) -> None:
        """Shorten it."""
        del self.data[size:]
        self.synced = min(self.synced, size)

    def close(self) -> None:
        """Only noted."""
        self.closed = True


class _SpoolContract(JournalContract):
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

    def spoil(self, journal: Journal, partition: int, piece: str) -> None:
        """In the journal behind."""
        assert isinstance(journal, SpoolJournal)
        assert isinstance(journal._journal, MemoryJournal)
        stored = journal._journal._snapshots[partition].snapshot
        stored.pieces[piece] += b"\0"


class TestWithAThread(_SpoolContract):
    """The contract, where a thread talks to the journal."""

    wait = 60.0


class TestWithoutAThread(_SpoolContract):
    """The contract, where the caller does."""

    wait = None


@pytest.fixture
def moody() -> Moody:
    """The journal behind."""
    return Moody(clock=ManualClock(1000))


@pytest.fixture
def disk() -> Disk:
    """Where events wait."""
    return Disk()


def spool(moody: Moody, disk: Disk, **how: Any) -> SpoolJournal:
    """Without a thread."""
    return SpoolJournal(moody, disk, wait=None, clock=ManualClock(1000), **how)


def events_of(journal: Journal, partition: int = 0) -> list[object]:
    """What it holds."""
    return [record.event for record in journal.read(partition, 0, 10**6)]


# --- away and back -----------------------------------------------------------------------------


def test_events_wait_in_order_while_the_journal_is_away(moody: Moody, disk: Disk) -> None:
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


def test_all_else_is_unavailable_at_once_while_it_is_away(moody: Moody, disk: Disk) -> None:
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
        with pytest.raises(JournalReadUnavailable, match=r"away \(the journal is not there\)"):
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
    with pytest.raises(InvalidInput, match="no decision"):
        journal.append([Void("w", 1)], requests={0: b"of nothing"})
    journal = spool(moody, Disk(bytes(disk.data)))
    moody.away = False
    assert journal.forward() == 6
    records = journal.read(0, 0, 100)
    kept = journal.requests(0, [record.position for record in records])
    found = {getattr(one.event, "id", ""): kept.get(one.position) for one in records}
    assert found == {"v": None, "0": b"of 0", "1": None, "2": b"of 2", "3": b"of 3", "4": None}


def test_a_hand_over_that_fails_half_way_goes_on_from_there(moody: Moody, disk: Disk) -> None:
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
    assert journal.hand_over() == 500
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


def test_what_is_no_event_is_refused_while_the_journal_is_away(moody: Moody, disk: Disk) -> None:
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
    known = SpoolFile(disk, "disk", bandit="bandit", limit=10**6)
    moody.append([Settled(0, 1)], recorded=[5000])
    known.put(Batch(7, [0], [b"\x02\x93\x04\xa1a\x05"], None))
    known.put(Batch(8, [0, 0], [unknown, b"\x02\x93\x04\xa1b\x05"], None))
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


# --- the file ----------------------------------------------------------------------------------


def test_a_full_spool_says_what_to_do(moody: Moody, disk: Disk) -> None:
    """Nothing is acknowledged; once the journal is back there is room again."""
    journal = spool(moody, disk, limit=FIRST + 100)
    moody.away = True
    taken = 3  # of 29 bytes or so
    for n in range(taken):
        journal.append([Void(f"{n}", 1)])
    with pytest.raises(JournalUnavailable, match=r"greater limit.*trying again is safe"):
        journal.append([Void("3", 1)])
    assert len(disk.data) <= FIRST + 100
    assert journal.status.queued == taken
    moody.away = False
    assert journal.forward() == taken
    assert journal.append([Void("z", 1)]) == [taken + 1]


def test_a_full_disk_leaves_no_half_of_anything(moody: Moody, disk: Disk) -> None:
    """The call fails, and later ones are kept behind what was whole."""
    journal = spool(moody, disk)
    moody.away = True
    journal.append([Void("a", 1)])
    whole = bytes(disk.data)
    disk.full = True
    with pytest.raises(JournalUnavailable, match="No space left"):
        journal.append([Void("b", 1)])
    assert bytes(disk.data) == whole
    cut, disk.truncate = disk.truncate, _refuse  # type: ignore[method-assign]
    with pytest.raises(JournalUnavailable, match="No space left"):
        journal.append([Void("c", 1)])
    assert bytes(disk.data) != whole
    assert journal.status.oldest == 1000  # what lies behind the end is not looked at
    disk.full, disk.truncate = False, cut  # type: ignore[method-assign]
    journal.append([Void("d", 1)])
    moody.away = False
    assert journal.forward() == 2
    assert events_of(journal) == [Void("a", 1), Void("d", 1)]


def _refuse(size: int) -> None:
    raise OSError(5, "Input/output error")


def filled(calls: int = 3) -> bytes:
    """A spool in which so many calls wait, two events each."""
    moody, disk = Moody(clock=ManualClock(1000)), Disk()
    journal = spool(moody, disk)
    moody.away = True
    for n in range(calls):
        journal.append([Void(f"{n}", 0), Reward(f"{n}", 1, 0.5)])
    assert disk.synced == len(disk.data)
    return bytes(disk.data)


def test_what_a_process_left_is_handed_over_at_the_next_opening(moody: Moody) -> None:
    """In order, and once if it was not taken before."""
    journal = spool(moody, Disk(filled()))
    assert (journal.status.queued, journal.status.forwarded) == (0, 6)
    assert [event.id for event in events_of(journal)] == ["0", "0", "1", "1", "2", "2"]  # type: ignore[attr-defined]


def test_a_torn_tail_is_cut_off(moody: Moody) -> None:
    """Wherever the power was cut: calls that were whole are there, and others can follow."""
    data = filled()
    ends = [len(filled(calls)) for calls in range(4)]
    for size in range(len(data) + 1):
        disk = Disk(data[:size])
        whole = sum(size >= end for end in ends[1:])
        moody.away = True
        with spool(moody, disk) as journal:
            moody = Moody(clock=ManualClock(1000))  # the old one is closed with the spool
            assert journal.status.queued == 2 * whole
            assert len(disk.data) == disk.synced == ends[whole]
            journal.append([Void("z", 1)])
            assert journal.status.queued == 2 * whole + 1


def test_a_flipped_bit_is_named_by_its_offset(moody: Moody) -> None:
    """Wherever it is, in the header of a frame or in its body: nothing is dropped silently."""
    data = filled()
    starts = [len(filled(calls)) for calls in range(3)]
    for at in range(FIRST, len(data)):
        for bit in (0, 7):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            disk = Disk(bytes(damaged))
            start = max(start for start in starts if start <= at)
            with pytest.raises(CorruptJournal, match=rf"offset {start}:.*truncate -s {start}`"):
                spool(moody, disk)
            assert bytes(disk.data) == bytes(damaged)  # left as it is, but let go
            assert disk.closed
    for at in range(FIRST):  # in the name of the bandit, or before
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises((CorruptJournal, NotAJournal, UnsupportedFormat)):
            spool(moody, Disk(bytes(damaged)))


def test_a_bit_that_flips_under_way_is_told(moody: Moody, disk: Disk) -> None:
    """The hand-over stops before it; what comes is still taken."""
    journal = spool(moody, disk)
    moody.away = True
    journal.append([Void("a", 1)])
    disk.data[-1] ^= 1
    moody.away = False
    assert journal.forward() == 0
    assert journal.append([Void("b", 1)]) == [0]
    status = journal.status
    assert (status.journal_down, status.queued, status.oldest) == (True, 2, 1000)
    assert "offset" in str(status.error)


def test_a_large_call_is_read_back_whole(moody: Moody, disk: Disk) -> None:
    """Larger than what is read at a time, with small ones around it."""
    rows = np.zeros(1 << 20, dtype=np.float32)
    sent: list[Event] = [
        Void("a", 1),
        Decision("b", 1, 0, 0, rows, 0.0, 1.0, 0),
        Void("c", 1),
    ]
    journal = spool(moody, disk)
    moody.away = True
    for event in sent:
        journal.append([event])
    moody.away = False
    again = spool(moody, Disk(bytes(disk.data)))
    assert again.status.forwarded == 3
    assert events_of(again) == sent


def test_another_file_is_left_alone(moody: Moody) -> None:
    """Something else, a newer format, another bandit's: each is said, nothing is changed."""
    for data, error in (
        (b"something else altogether", NotAJournal),
        (b"belated spool 2\nwho knows what", UnsupportedFormat),
    ):
        disk = Disk(data)
        with pytest.raises(error):
            spool(moody, disk)
        assert bytes(disk.data) == data
    others = MemoryJournal("others")
    with pytest.raises(JournalMismatch, match=r"'bandit'.*not 'others'"):
        SpoolJournal(others, Disk(filled()), wait=None)


def test_a_spool_is_for_one(tmp_path: Path, moody: Moody) -> None:
    """A second opening is refused until the first is closed; a folder must be there."""
    path = tmp_path / "spool"
    first = SpoolJournal(moody, path)
    with pytest.raises(JournalUnavailable, match="a file of its own"):
        SpoolJournal(Moody(), path)
    first.close()
    SpoolJournal(Moody(), path).close()
    with pytest.raises(JournalUnavailable, match="folder"):
        SpoolJournal(Moody(), tmp_path / "missing" / "spool")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_does_not_own_the_spool(tmp_path: Path, moody: Moody) -> None:
    """It is told so; and it holds no lock when its parent has let go."""
    path = tmp_path / "spool"
    journal = SpoolJournal(moody, path, wait=None)
    told, tell = os.pipe()
    stay, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            journal.append([Void("a", 1)])
        except JournalError as error:
            os.write(tell, str(error).encode())
        os.close(go)
        os.read(stay, 1)  # until the parent says so
        os._exit(0)
    try:
        assert b"forked" in os.read(told, 1000)
        journal.close()
        SpoolJournal(Moody(), path).close()
    finally:
        for end in (go, stay, told, tell):
            os.close(end)
        os.waitpid(child, 0)


# --- with a thread -----------------------------------------------------------------------------


@pytest.fixture
def threaded(moody: Moody, tmp_path: Path) -> Iterator[SpoolJournal]:
    """With a thread that hands over by itself."""
    with SpoolJournal(moody, tmp_path / "spool", wait=0.5) as journal:
        yield journal
        moody.answers.set()


def test_a_journal_that_hangs_is_given_up(moody: Moody, threaded: SpoolJournal) -> None:
    """One call waits for it, later ones do not; what it takes after all is harmless."""
    threaded.append([Void("a", 1)])
    moody.answers.clear()
    start = time.monotonic()
    assert threaded.append([Void("b", 1)]) == [0]
    assert 0.4 < time.monotonic() - start < 5
    start = time.monotonic()
    for n in range(20):
        assert threaded.append([Void(f"{n}", 1)]) == [0]
        with pytest.raises(JournalUnavailable, match=r"not answered for 0\.5 s"):
            threaded.end(0)
    assert time.monotonic() - start < 5  # twenty syncs, and no wait
    moody.answers.set()
    eventually(lambda: threaded.status.queued == 0)
    assert not threaded.status.journal_down
    expected = [Void(id, 1) for id in ["a", "b", "b", *map(str, range(20))]]
    assert events_of(threaded) == expected  # "b" both late and by the spool


def test_a_thread_hands_over_by_itself(moody: Moody, threaded: SpoolJournal) -> None:
    """Also if nothing is appended any more; and a journal that could not be read is found back."""
    moody.away = True
    with pytest.raises(JournalUnavailable):
        threaded.end(0)
    moody.away = False
    eventually(lambda: not threaded.status.journal_down)
    moody.away = True
    assert threaded.append([Void("a", 1)]) == [0]
    moody.away = False
    eventually(lambda: threaded.status.forwarded == 1)
    assert threaded.append([Void("b", 1)]) == [2]


def test_threads_may_append_while_it_comes_and_goes(moody: Moody, threaded: SpoolJournal) -> None:
    """Every event is there, those of one thread in their order."""
    done = threading.Event()

    def work(name: int) -> None:
        for n in range(100):
            threaded.append([Void(f"{name}/{n}", n)])
            time.sleep(0.001)

    def trouble() -> None:
        while not done.is_set():
            moody.away = not moody.away
            time.sleep(0.02)
        moody.away = False

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    troubled = threading.Thread(target=trouble)
    for thread in [*threads, troubled]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    troubled.join()
    eventually(lambda: not threaded.status.journal_down and threaded.status.queued == 0)
    found = list(dict.fromkeys(events_of(threaded)))
    for name in range(4):
        mine = [event for event in found if event.id.startswith(f"{name}/")]  # type: ignore[attr-defined]
        assert mine == [Void(f"{name}/{n}", n) for n in range(100)]


def test_closing_does_not_wait_for_a_journal_that_hangs(moody: Moody, tmp_path: Path) -> None:
    """What waits stays in the file, and the next to open it hands it over."""
    journal = SpoolJournal(moody, tmp_path / "spool", wait=0.1)
    moody.answers.clear()
    journal.append([Void("a", 1)])
    start = time.monotonic()
    journal.close()
    assert time.monotonic() - start < 5
    with pytest.raises(JournalClosed):
        journal.forward()
    moody.answers.set()
    other = Moody()
    with SpoolJournal(other, tmp_path / "spool"):
        assert events_of(other) == [Void("a", 1)]


# --- a bandit in front of it -------------------------------------------------------------------

OFFER = np.eye(3)


def bandit_on(moody: Moody, disk: Disk, window: int = 10**12) -> Bandit:
    """A bandit whose journal can go away."""
    return Bandit(
        policy=DelayedUCB(3, Bernoulli()),
        rewards=Explicit(timedelta(microseconds=window)),
        journal=spool(moody, disk),
        clock=moody._clock,
        seed=0,
    )


def information(bandit: Bandit) -> Matrix:
    """What is pending, as its learner has it."""
    learner = bandit._fold.learner
    learner.fit()
    return learner._pending.matrix


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_bandit_goes_on_while_its_journal_is_away(disk: Disk, partitions: int) -> None:
    """It decides, takes rewards, counts what is out; and afterwards knows what a replay knows."""
    moody = Moody(partitions=partitions, clock=ManualClock(1000))
    bandit = bandit_on(moody, disk)
    before = bandit.decide(OFFER)
    moody.away = True
    one = bandit.decide(OFFER, id="one")
    many = bandit.decide_many([OFFER, OFFER])
    assert bandit.observe(before.id, 1.0).status == "accepted"
    assert bandit.observe(one.id, 0.0).status == "accepted"
    assert bandit.void(many[0].id).status == "accepted"
    dormant = bandit.decide(OFFER, id="dormant", activated=False)
    assert bandit.decide(OFFER, id="dormant", activated=False) is dormant
    assert bandit.pending.count == 4  # it chooses as if it had folded them
    assert len({decision.index for decision in (before, one, *many)}) == 3
    assert bandit.decide(OFFER, id="one") is one  # a retry
    with pytest.raises(InvalidInput, match="another decision"):
        bandit.decide(-OFFER, id="one")
    with pytest.raises(JournalReadUnavailable):
        bandit.sync()
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    last = bandit.decide(OFFER)
    bandit.sync()
    assert bandit.decision_counts == {
        "dormant": 1,
        "pending": 2,
        "rewarded": 2,
        "defaulted": 0,
        "censored": 0,
        "voided": 1,
    }
    assert {key for key, _ in bandit.pending} == {many[1].id, last.id}
    assert bandit.pending.count == 2
    replayed = bandit.as_of("9999-12-31T00:00Z")
    assert (bandit.digest, bandit.event_counts) == (replayed.digest, replayed.event_counts)
    np.testing.assert_allclose(information(bandit), information(replayed), atol=1e-12)
    assert bandit.decide(OFFER, id="one") == one


def test_a_bandit_learns_what_waited_as_it_arrives(moody: Moody, disk: Disk) -> None:
    """Also if it makes no call of its own in between: nothing is counted twice."""
    bandit = bandit_on(moody, disk)
    moody.away = True
    first = bandit.decide(OFFER)
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    bandit.sync()
    assert (bandit.pending.count, bandit.decision_counts["pending"]) == (1, 1)
    assert bandit.observe(first.id, 1.0).status == "rewarded"
    assert bandit.pending.count == 0


def test_no_caller_folds_a_whole_outage(disk: Disk) -> None:
    """After it each call folds a part, until nothing is left; all is as in a replay then."""
    moody = Moody(partitions=2, clock=ManualClock(1000))
    bandit = bandit_on(moody, disk)
    moody.away = True
    made = bandit.decide_many([OFFER] * 1200)
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    statuses = [bandit.observe(decision.id, 1.0).status for decision in made[:3]]
    assert statuses == ["accepted", "accepted", "rewarded"]
    bandit.sync()
    assert bandit.decision_counts["rewarded"] == 3
    assert bandit.pending.count == bandit.decision_counts["pending"] == 1197
    assert bandit.digest == bandit.as_of("9999-12-31T00:00Z").digest
    np.testing.assert_allclose(
        information(bandit), information(bandit.as_of("9999-12-31T00:00Z")), atol=1e-9
    )


def test_a_bandit_settles_nothing_while_its_journal_is_away(moody: Moody, disk: Disk) -> None:
    """Journal time stands still there; it goes on with the journal."""
    clock = moody._clock
    assert isinstance(clock, ManualClock)
    bandit = bandit_on(moody, disk, window=100)
    early = bandit.decide(OFFER)
    moody.away = True
    bandit.decide(OFFER)
    clock.now += 1000
    for _ in range(5):
        bandit.decide(OFFER)
    assert isinstance(bandit.journal, SpoolJournal)
    assert bandit.journal.status.queued == 6
    moody.away = False
    bandit.journal.forward()
    bandit.decide(OFFER)
    bandit.decide(OFFER)
    assert bandit.entry(early.id).state == "censored"


def test_a_journal_that_fails_after_it_took_an_event(moody: Moody, disk: Disk) -> None:
    """The event is safe, so the call succeeds; its meaning is learned later."""
    bandit = bandit_on(moody, disk)
    append = moody.append

    def last(
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        try:
            return append(events, recorded=recorded)
        finally:
            moody.away = True

    moody.append = last  # type: ignore[method-assign]
    decision = bandit.decide(OFFER)
    assert bandit.pending.count == 1
    moody.append = append  # type: ignore[method-assign]
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    assert bandit.observe(decision.id, 1.0).status == "rewarded"
    assert bandit.pending.count == 0


def test_a_bandit_can_be_closed_while_its_journal_is_away(moody: Moody, disk: Disk) -> None:
    """There is no snapshot, which is said; what waits stays."""
    bandit = bandit_on(moody, disk)
    moody.away = True
    bandit.decide(OFFER)
    with pytest.warns(SnapshotWarning, match="away"):
        bandit.close()
    assert disk.closed
    assert spool(Moody(clock=ManualClock(1000)), Disk(bytes(disk.data))).status.forwarded == 1
