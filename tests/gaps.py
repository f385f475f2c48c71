"""A journal whose positions have gaps, as every journal's may."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from belated.core.events import Record
from belated.journals import MemoryJournal
from belated.journals.arrivals import check_range
from belated.journals.log import Requests

#: How far apart positions are.
STEPS = (1, 2, 7, 1000)
_position = attrgetter("position")


class GappyJournal(MemoryJournal):
    """A journal in memory whose positions increase by steps drawn at random."""

    _steps = random.Random(7)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position, which need not be that of a record."""
        self._check_open()
        check_range(partition, after, limit, self._partitions)
        self._check_kept(partition, after)
        start = bisect_right(self._streams[partition], after, key=_position)
        return self._streams[partition][start : start + limit]

    def _insert(
        self, handle: None, records: list[Record], data: Sequence[bytes], requests: Requests | None
    ) -> list[Record]:
        spread: list[Record] = []
        for n, one in enumerate(records):
            kept = {0: requests[n]} if requests and n in requests else None
            step = self._steps.choice((1, 2, 7, 1000))
            position = self._tail(None, one.partition).position + step
            record = Record(one.partition, position, one.recorded, one.event)
            spread += super()._insert(handle, [record], data, kept)
        return spread
