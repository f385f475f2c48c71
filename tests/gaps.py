"""A journal whose positions have gaps, as every journal's may."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from belated.core.events import Event, Record
from belated.journals import MemoryJournal
from belated.journals.arrivals import arrange, check_range, check_requests, route, stamps_for
from belated.journals.log import Requests

_position = attrgetter("position")


class GappyJournal(MemoryJournal):
    """A journal in memory whose positions increase by steps drawn at random."""

    _steps = random.Random(7)

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Keep events at positions of our choice."""
        partitions = [route(event, self._partitions) for event in events]
        check_requests(events, requests)
        with self._lock:
            self._check_open()
            stamps = stamps_for(events, recorded, self._clock)
            arranged = arrange(zip(partitions, stamps, events, strict=True), self._tail)
            return self._keep(arranged, requests)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position, which need not be that of a record."""
        self._check_open()
        check_range(partition, after, limit, self._partitions)
        self._check_kept(partition, after)
        start = bisect_right(self._streams[partition], after, key=_position)
        return self._streams[partition][start : start + limit]

    def _keep(self, records: list[Record], requests: Requests | None = None) -> list[int]:
        spread = []
        for n, one in enumerate(records):
            kept = {0: requests[n]} if requests and n in requests else None
            position = self._tail(one.partition).position + self._steps.choice((1, 2, 7, 1000))
            record = Record(one.partition, position, one.recorded, one.event)
            spread += super()._keep([record], kept)
        return spread
