"""Pages of a partition, as records or as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Event, Opaque, Record, encode, read_event
from belated.exceptions import CorruptEvent
from belated.journals.log import Log
from belated.model.kernels import page_kernels
from belated.model.kernels.pages import PADDING, crc_tables

#: Number of records per page.
PAGE = 10_000


def pages(
    log: Log, partition: int, after: int = 0, end: int | None = None, size: int = PAGE
) -> Iterator[list[Record]]:
    """Yield the records of a partition in order, in non-empty pages.

    Args:
        log: Log to read.
        partition: Partition to read.
        after: Position after which to begin; trimmed records are skipped.
        end: Last position to read; by default, the current end of the partition.
        size: Maximum number of records per page.
    """
    position = max(after, log.start(partition).position)
    last = log.end(partition) if end is None else end
    while position < last:
        page = log.read(partition, position, min(size, last - position))
        while page and page[-1].position > last:  # positions may have gaps
            page.pop()
        if not page:
            return
        yield page
        position = page[-1].position


@dataclass(frozen=True, eq=False)
class ColumnPage:
    """Consecutive records of one partition, as columns.

    Attributes:
        positions: Positions of the records.
        recorded: Timestamps of the records, in microseconds since 1970.
        digests: Digests of the events, one per row; the width is 0 if the journal has no digests.
        data: The encoded events, concatenated and zero-padded.
        ends: End offset of each event in ``data``.
    """

    positions: NDArray[np.int64]
    recorded: NDArray[np.int64]
    digests: NDArray[np.uint8]
    data: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        positions: Sequence[int],
        recorded: Sequence[int],
        digests: Sequence[bytes],
        events: Sequence[bytes],
    ) -> Self:
        """Build a page from the fields of each record."""
        digest = np.frombuffer(b"".join(digests), dtype=np.uint8)
        lengths = np.fromiter(map(len, events), dtype=np.int64, count=len(events))
        return cls(
            np.array(positions, dtype=np.int64),
            np.array(recorded, dtype=np.int64),
            digest.reshape(len(positions), len(digest) // max(1, len(positions))),
            np.frombuffer(b"".join([*events, bytes(PADDING)]), dtype=np.uint8),
            np.cumsum(lengths),
        )

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> Self:
        """Build a page from records."""
        return cls.of(
            [record.position for record in records],
            [record.recorded for record in records],
            [record.digest for record in records],
            [encode(record.event) for record in records],
        )

    def crcs(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the :func:`zlib.crc32` checksum of each event, given its starting value."""
        crcs = np.empty(len(self), dtype=np.int64)
        kernels = page_kernels()
        if kernels is not None:
            kernels.crc_all(self.data, self.ends, starts, crc_tables(), crcs)
        else:
            for n, start in enumerate(starts.tolist()):
                crcs[n] = crc32(self.event(n), start)
        return crcs

    def __len__(self) -> int:
        return len(self.positions)

    def event(self, n: int) -> memoryview:
        """Return the bytes of the nth event."""
        return self.data.data[int(self.ends[n - 1]) if n else 0 : int(self.ends[n])]

    def record(self, n: int, partition: int) -> Record:
        """Return the nth record.

        Raises:
            CorruptEvent: the bytes are not a valid event.
        """
        try:
            event = read_event(self.event(n))
        except CorruptEvent as error:
            where = f"the record at partition {partition}, position {self.positions[n]}"
            raise CorruptEvent(f"{where}: {error}") from None
        return self._record(n, partition, event)

    def records(self, partition: int) -> list[Record]:
        """Return all records."""
        return [self.record(n, partition) for n in range(len(self))]

    def stub(self, n: int, partition: int) -> Record:
        """Return the nth record without decoding its event."""
        return self._record(n, partition, Opaque(bytes(self.event(n))))

    def _record(self, n: int, partition: int, event: Event | Opaque) -> Record:
        position, recorded = int(self.positions[n]), int(self.recorded[n])
        return Record(partition, position, recorded, event, self.digests[n].tobytes())

    def __getitem__(self, lines: slice) -> ColumnPage:
        start, stop, _ = lines.indices(len(self))
        first = int(self.ends[start - 1]) if start else 0
        return ColumnPage(
            self.positions[start:stop],
            self.recorded[start:stop],
            self.digests[start:stop],
            self.data[first:],
            self.ends[start:stop] - first,
        )


@runtime_checkable
class ColumnLog(Protocol):
    """A log that also returns its records as columns."""

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return the result of :meth:`Log.read` as columns, with checksums verified."""
