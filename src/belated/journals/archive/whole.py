"""A journal together with its archive: as if nothing had ever been trimmed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from belated.core.events import Event, Record, digest_of, read_event
from belated.core.times import as_datetime
from belated.exceptions import InvalidInput, ReadOnly
from belated.journals.archive.archive import Archive
from belated.journals.archive.days import Times
from belated.journals.arrivals import check_range
from belated.journals.journal import Journal, PassedOn
from belated.journals.log import EMPTY, Appended, Requests, Tail
from belated.journals.pages import ColumnPage
from belated.journals.snapshots import Snapshot

T = TypeVar("T")


class WholeJournal(PassedOn):
    """Reads what was trimmed from the archive, and the rest from the journal; appends nothing.

    The archived records that the journal no longer has are held in memory, as bytes.

    Args:
        journal: with the newer records.
        archive: with those that it may have dropped.

    Raises:
        InvalidInput: the journal has dropped records that the archive does not have.
    """

    def __init__(self, journal: Journal, archive: Archive) -> None:
        archive.check(journal.partitions)
        self._bandit, self._partitions = journal.bandit, journal.partitions
        self._journal = journal
        self._archive = archive
        self._records: dict[int, tuple[Times, Times, Any]] = {}
        self._requests: dict[int, dict[int, bytes]] = {}
        for partition in range(journal.partitions):
            start = journal.start(partition)
            if start.stamp >= (until := archive.until(partition)) and start != EMPTY:
                message = (
                    f"partition {partition} of {journal.bandit!r} was trimmed up to "
                    f"{as_datetime(start.stamp)}, and archived up to {as_datetime(until)} only"
                )
                raise InvalidInput(f"{message}: the records between are in neither")

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        return work()

    def start(self, partition: int) -> Tail:
        """Nothing was dropped."""
        return EMPTY

    def base(self, partition: int) -> Snapshot | None:
        """Nothing stands for what was dropped: it is here."""
        return None

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Log.read`."""
        check_range(partition, after, limit, self._partitions)
        start = self._journal.start(partition).position
        if after >= start:
            return self._journal.read(partition, after, limit)
        positions, stamps, events = self._archived(partition, start)
        first = int(np.searchsorted(positions, after, side="right"))
        stop = min(first + limit, len(positions))
        rest = self._journal.read(partition, start, max(limit - (stop - first), 1))
        # If the journal stores digests, a fold compares decisions by them.
        digests = any(one.digest for one in rest)
        found = [
            Record(
                partition, position, stamp, read_event(data), digest_of(data) if digests else b""
            )
            for position, stamp, data in zip(
                positions[first:stop].tolist(),
                stamps[first:stop].tolist(),
                events[first:stop].to_pylist(),
                strict=True,
            )
        ]
        return found + rest[: limit - len(found)]

    def _archived(self, partition: int, start: int) -> tuple[Times, Times, Any]:
        if partition not in self._records:
            self._records[partition] = self._archive.records(partition, start)
        return self._records[partition]

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """The same as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """What decisions were chosen from, by position."""
        start = self._journal.start(partition).position
        found = self._journal.requests(partition, [one for one in positions if one > start])
        if len(found) < len(positions) and start:
            if partition not in self._requests:
                self._requests[partition] = self._archive.requests(partition)
            known = self._requests[partition]
            found |= {one: known[one] for one in positions if one <= start and one in known}
        return found

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Refused: append to the journal itself."""
        raise ReadOnly("a journal with its archive is for reading: append to the journal itself")

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Refused: append to the journal itself."""
        raise ReadOnly("a journal with its archive is for reading: append to the journal itself")

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
