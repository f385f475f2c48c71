"""A journal and a disk that fail when they are told to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from belated.core.events import Event, Record
from belated.exceptions import (
    JournalUnavailable,
)
from belated.journals import Journal, MemoryJournal, SpoolJournal
from belated.journals.log import Requests
from belated.testing import ManualClock

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


def spool(moody: Moody, disk: Disk, **how: Any) -> SpoolJournal:
    """Without a thread."""
    return SpoolJournal(moody, disk, wait=None, clock=ManualClock(1000), **how)


def events_of(journal: Journal, partition: int = 0) -> list[object]:
    """What it holds."""
    return [record.event for record in journal.read(partition, 0, 10**6)]
