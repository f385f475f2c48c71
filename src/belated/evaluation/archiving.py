"""Archive a journal: which decisions are final, day by day, with all their records.

A decision is final once the watermark is beyond its retention: no reward of it counts any more. A
day of a partition is written when all its decisions are. Records are read in order, so only those
of days that are not yet written are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from belated.core.events import Decision, Overwritten, Record, encode
from belated.core.ids import key_of
from belated.core.inputs import Interval
from belated.core.rewards import Rewards
from belated.core.times import as_datetime
from belated.evaluation.files import arrow_columns
from belated.evaluation.requests import PAGE
from belated.evaluation.sources import EVERY, JournalTable, PartitionReader, ledger_of
from belated.exceptions import InvalidInput
from belated.fold.contexts import read_context
from belated.fold.requests import KeptRequest
from belated.fold.undone import Undone
from belated.journals import Journal
from belated.journals.archive import (
    DAY,
    Archive,
    ArchivedDay,
    ArchivedDecision,
    Manifest,
    StoredRecord,
)
from belated.journals.log import EMPTY
from belated.journals.pages import pages


def archive_journal(
    journal: Journal,
    archive: Archive,
    *,
    rewards: Rewards,
    retention: int | None,
    support: Interval = EVERY,
    step: Callable[[int], None] = lambda count: None,
) -> list[Manifest]:
    """Archive every day that is final and not archived yet; returns what was written.

    Args:
        journal: to read.
        archive: to write to.
        rewards: what a missing reward means.
        retention: how long a reward counts, in microseconds.
        support: rewards outside do not count.
        step: is told how many records were read.

    Raises:
        InvalidInput: rewards count for ever; or records were trimmed before they were archived.
    """
    if retention is None:
        message = f"{journal.bandit} has no retention: its decisions take rewards for ever"
        raise InvalidInput(f"{message}, and none of them is final; give it one first", retention)
    archive.check(journal.partitions)
    written = []
    for partition in range(journal.partitions):
        _check_trimmed(journal, archive, partition, retention)
        ledger = ledger_of(rewards, retention, support, Undone.of(journal.undone(partition)))
        days = _Days(journal, archive, partition, PartitionReader(ledger, {}, {}), retention)
        for page in pages(journal, partition):
            for day in days.take(page):
                written.append(archive.write(day))
            step(len(page))
    return written


def forgettable(archive: Archive, partition: int, retention: int) -> int:
    """Return up to when a journal may drop its records, in microseconds since 1970.

    Days that are still to be archived need the records of a retention before them: a reward may
    come before its decision.
    """
    return max(0, archive.until(partition) - retention)


def _check_trimmed(journal: Journal, archive: Archive, partition: int, retention: int) -> None:
    start = journal.start(partition)
    if start != EMPTY and start.stamp >= forgettable(archive, partition, retention):
        message = (
            f"partition {partition} of {journal.bandit} was trimmed up to "
            f"{as_datetime(start.stamp)}, before all of that was archived: the archive would have "
            "a gap"
        )
        raise InvalidInput(f"{message}. Archive first, then `belated journal trim --archived`")


class _Days:
    """The days of one partition that are not written yet, with their records."""

    def __init__(
        self,
        journal: Journal,
        archive: Archive,
        partition: int,
        reader: PartitionReader,
        retention: int,
    ) -> None:
        self._journal, self._partition = journal, partition
        self._reader, self._ledger = reader, reader.ledger
        self._retention = retention
        # A day is written once: what was held back then, as its decision could come, is later.
        self._since = archive.until(partition) // DAY
        # What is in the archive already is neither folded nor written again.
        self._archived = archive.positions(partition, journal.start(partition).position)
        self._rows: list[list[StoredRecord]] = []  # of decisions from number `_first` on
        self._decisions: list[Decision] = []
        self._first = 0
        self._days: list[int] = []  # that have records, in order
        self._starts: list[int] = []  # the first decision of each
        self._others: dict[int, list[StoredRecord]] = {}
        self._early: dict[bytes, list[StoredRecord]] = {}  # their decision may come

    def take(self, page: list[Record]) -> Iterator[ArchivedDay]:
        """Fold some records; gives the days that have become final."""
        decided: list[Decision] = []
        for record in page:
            if record.position in self._archived:
                continue
            final = self._ledger.watermark
            status = self._reader.take_one(record, decided)
            self._place(record, status)
            if self._ledger.watermark > final:
                self._reader.enter(decided)
                decided = []
                yield from self._final()
        self._reader.enter(decided)

    def _place(self, record: Record, status: str) -> None:
        """Put a record to its decision, or to the others of its day."""
        event, day = record.event, max(record.recorded // DAY, self._since)
        if status == "erased" and not isinstance(event, Overwritten):  # is written nowhere again
            assert self._ledger.undone is not None
            key = self._ledger.undone.erased_key_of(event)
            assert key is not None
            event = Overwritten(key)
        stored = StoredRecord(record.position, record.recorded, encode(event))
        if not self._days or self._days[-1] < day:
            self._days.append(day)
            self._starts.append(self._first + len(self._rows))
        id = None if status == "erased" else getattr(event, "id", None)
        if status == "decided":
            assert isinstance(event, Decision)
            self._decisions.append(event)
            self._rows.append([*self._early.pop(key_of(event.id), ()), stored])
            return
        number = -1 if id is None else self._ledger.find(id)
        if number >= self._first:
            self._rows[number - self._first].append(stored)
        elif status == "unmatched":
            self._early.setdefault(key_of(id), []).append(stored)  # type: ignore[arg-type]
        else:
            self._others.setdefault(day, []).append(stored)

    def _final(self) -> Iterator[ArchivedDay]:
        while (
            self._days
            and self._ledger.watermark >= (end := (self._days[0] + 1) * DAY) + self._retention
        ):
            day = self._day(end)
            if day.decisions or day.others:
                yield day

    def _day(self, end: int) -> ArchivedDay:
        """The oldest day, which then is held no longer."""
        day, _ = self._days.pop(0), self._starts.pop(0)
        stop = self._starts[0] if self._starts else self._first + len(self._rows)
        count = stop - self._first
        others = self._others.pop(day, [])
        for key, records in [*self._early.items()]:  # no decision of theirs can come any more
            if records[0].recorded < end:
                others += records
                del self._early[key]
        columns = self._reader.columns(self._partition, self._first, stop)
        table = self._reader.table(columns, self._ledger.watermark, self._retention)
        found = ArchivedDay(
            partition=self._partition,
            partitions=self._journal.partitions,
            day=day,
            columns=arrow_columns(table),
            decisions=self._archived_of(table),
            others=sorted(others),
        )
        del self._rows[:count], self._decisions[:count]
        self._first = stop
        return found

    def _archived_of(self, table: JournalTable) -> list[ArchivedDecision]:
        positions = table.position.tolist()
        requests: dict[int, bytes] = {}
        for start in range(0, len(positions), PAGE):
            requests |= self._journal.requests(self._partition, positions[start : start + PAGE])
        found = []
        for line, position in enumerate(positions):
            decision, data = self._decisions[line], requests.get(position)
            stored = read_context(decision)
            offered = shares = context = None
            if stored is not None:
                context = msgspec.json.encode(stored.context).decode()
            if data is not None:
                kept = KeptRequest.read(data)
                offered = None if kept.actions is None else list(map(str, kept.actions))
                shares = kept.propensities
            records = self._rows[line]
            found.append(ArchivedDecision(decision.x, records, data, offered, shares, context))
        return found
