"""A journal whose positions have gaps, as those of any journal may."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from belated.core.events import Record
from belated.journals import MemoryJournal
from belated.journals.arrivals import check_range
from belated.journals.log import Requests

#: The distances between positions.
STEPS = (1, 2, 7, 1000)
_position = attrgetter("position")


class GappyJournal(MemoryJournal):
    """A journal in memory whose positions increase by steps drawn at random."""

    _steps = random.Random(7)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position, which need not be that of a record."""
        self._check_open()
        check_range(partition, after, limit, self._partitions)
        self._check_kept(partition, after)
        start = bisect_right(self._streams[partition], after, key=_position)
        return self._streams[partition][start : start + limit]

    def _insert(
        self, handle: None, records: list[Record], data: Sequence[bytes], requests: Requests | None
    ) -> list[Record]:
        spread: list[Record] = []
        for n, record in enumerate(records):
            request = {0: requests[n]} if requests and n in requests else None
            position = self._tail(None, record.partition).position + self._steps.choice(STEPS)
            shifted = Record(record.partition, position, record.recorded, record.event)
            spread += super()._insert(handle, [shifted], data, request)
        return spread
