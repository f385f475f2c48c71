"""The file of a spool: full, torn, damaged, somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from belated.core.events import Decision, Event, Reward, Void
from belated.exceptions import (
    CorruptJournal,
    JournalError,
    JournalMismatch,
    JournalUnavailable,
    NotAJournal,
    UnsupportedFormat,
)
from belated.journals import MemoryJournal, SpoolJournal
from belated.testing import ManualClock
from tests.unit.spool.moody import FIRST, Disk, Moody, events_of, spool

# --- the file ----------------------------------------------------------------------------------


def test_a_full_spool_says_what_to_do(moody: Moody, disk: Disk) -> None:
    """Nothing is acknowledged; once the journal is back there is room again."""
    journal = spool(moody, disk, limit=FIRST + 100)
    moody.away = True
    taken = 3  # of 29 bytes or so
    for n in range(taken):
        journal.append([Void(f"{n}", 1)])
    with pytest.raises(JournalUnavailable, match=r"size limit of the spool.*safe to retry"):
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


def test_torn_tail_is_truncated(moody: Moody) -> None:
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


def test_flipped_bit_is_reported_with_its_offset(moody: Moody) -> None:
    """Wherever it is, in the header of a frame or in its body: nothing is dropped silently."""
    data = filled()
    starts = [len(filled(calls)) for calls in range(3)]
    for at in range(FIRST, len(data)):
        for bit in (0, 7):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            disk = Disk(bytes(damaged))
            start = max(start for start in starts if start <= at)
            with pytest.raises(CorruptJournal, match=rf"offset {start};.*truncate -s {start}`"):
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
