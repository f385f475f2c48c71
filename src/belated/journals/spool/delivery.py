"""How what waited in a spool gets into the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from belated.core.events import Event, Opaque, Record, read_event
from belated.journals.arrivals import Clock, gather
from belated.journals.journal import Journal
from belated.journals.spool.file import Batch, Page

#: Is told which events have left the spool, and their positions.
Delivered = Callable[[Sequence[Event], Sequence[int]], None]


def deliver(page: Page, journal: Journal, clock: Clock, delivered: Delivered | None) -> None:
    """Append the batches of a page, in their order."""
    for is_plain, batches in groupby(page.batches, _is_plain):
        if is_plain:
            events, requests = gather((_events_of(one), one.requests) for one in batches)
            positions = journal.append(events, requests=requests)
            if delivered is not None:
                delivered(events, positions)
            continue
        for batch in batches:
            _deliver_special(batch, journal, clock)


def _deliver_special(batch: Batch, journal: Journal, clock: Clock) -> None:
    """What has times of its own, or was left by a later release that was rolled back."""
    events = _events_of(batch)
    if len(events) == len(batch.events):
        journal.append(events, recorded=batch.recorded, requests=batch.requests)
        return
    times = batch.recorded or [clock()] * len(batch.events)
    records = []
    for data, partition, given in zip(batch.events, batch.partitions, times, strict=True):
        stamp = max(given, journal.last_stamp(partition))
        records.append(Record(partition, 0, stamp, read_event(data)))
    journal.import_records(records, requests=batch.requests)


def _is_plain(batch: Batch) -> bool:
    return batch.recorded is None and len(_events_of(batch)) == len(batch.events)


def _events_of(batch: Batch) -> list[Event]:
    """Those of its events that this release can read."""
    found = map(read_event, batch.events)
    return [event for event in found if not isinstance(event, Opaque)]
