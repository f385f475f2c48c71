"""Archive a journal: write the days whose decisions are final, with all their records.

A decision is final once the watermark has passed its retention, after which no reward counts. A day
of a partition is written when all its decisions are final. Records are read in order, so memory
holds only the records of unwritten days.
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
    """Archive every final day that has not been archived yet; return the manifests written.

    Args:
        journal: the journal to read.
        archive: the archive to write to.
        rewards: what a missing reward means.
        retention: how long a decision accepts rewards, in microseconds.
        support: the range of valid rewards; rewards outside it are ignored.
        step: called with the number of records read.

    Raises:
        InvalidInput: there is no retention, or records were trimmed before they were archived.
    """
    if retention is None:
        message = f"{journal.bandit} has no retention, so its decisions accept rewards forever"
        raise InvalidInput(f"{message} and are never final: set a retention first", retention)
    archive.check(journal.partitions)
    archived = []
    for partition in range(journal.partitions):
        _check_trimmed(journal, archive, partition, retention)
        ledger = ledger_of(rewards, retention, support, Undone.of(journal.undone(partition)))
        days = _Days(journal, archive, partition, PartitionReader(ledger, {}, {}), retention)
        for page in pages(journal, partition):
            for day in days.take(page):
                archived.append(archive.write(day))
            step(len(page))
    return archived


def forgettable(archive: Archive, partition: int, retention: int) -> int:
    """Return the time before which a journal may drop its records, in microseconds since 1970.

    Archiving the next days requires the records of the preceding retention period, because a
    reward may arrive before its decision.
    """
    return max(0, archive.until(partition) - retention)


def _check_trimmed(journal: Journal, archive: Archive, partition: int, retention: int) -> None:
    start = journal.start(partition)
    if start != EMPTY and start.stamp >= forgettable(archive, partition, retention):
        message = (
            f"partition {partition} of {journal.bandit} was trimmed up to "
            f"{as_datetime(start.stamp)}, but not all of it was archived, so the archive would "
            "have a gap"
        )
        raise InvalidInput(f"{message}: archive first, then run `belated journal trim --archived`")


class _Days:
    """The unwritten days of one partition, with their records."""

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
        # A day is written only once, so records held back from archived days are added to this day.
        self._since = archive.until(partition) // DAY
        # Archived records are neither folded nor written again.
        self._archived = archive.positions(partition, journal.start(partition).position)
        self._rows: list[list[StoredRecord]] = []  # records of each decision, starting at `_first`
        self._decisions: list[Decision] = []
        self._first = 0
        self._days: list[int] = []  # days with records, in order
        self._starts: list[int] = []  # number of the first decision of each day
        self._others: dict[int, list[StoredRecord]] = {}
        self._early: dict[bytes, list[StoredRecord]] = {}  # records that precede their decision

    def take(self, page: list[Record]) -> Iterator[ArchivedDay]:
        """Fold a page of records; yield the days that have become final."""
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
        """Assign a record to its decision, or to the other records of its day."""
        event, day = record.event, max(record.recorded // DAY, self._since)
        if status == "erased" and not isinstance(event, Overwritten):  # never archive erased data
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
        """Remove the oldest day and return it for archiving."""
        day, _ = self._days.pop(0), self._starts.pop(0)
        stop = self._starts[0] if self._starts else self._first + len(self._rows)
        count = stop - self._first
        other_records = self._others.pop(day, [])
        for key, records in [*self._early.items()]:  # their decisions can no longer arrive
            if records[0].recorded < end:
                other_records += records
                del self._early[key]
        columns = self._reader.columns(self._partition, self._first, stop)
        table = self._reader.table(columns, self._ledger.watermark, self._retention)
        archived = ArchivedDay(
            partition=self._partition,
            partitions=self._journal.partitions,
            day=day,
            columns=arrow_columns(table),
            decisions=self._archived_of(table),
            others=sorted(other_records),
        )
        del self._rows[:count], self._decisions[:count]
        self._first = stop
        return archived

    def _archived_of(self, table: JournalTable) -> list[ArchivedDecision]:
        positions = table.position.tolist()
        requests: dict[int, bytes] = {}
        for start in range(0, len(positions), PAGE):
            requests |= self._journal.requests(self._partition, positions[start : start + PAGE])
        decisions = []
        for line, position in enumerate(positions):
            decision, data = self._decisions[line], requests.get(position)
            stored = read_context(decision)
            offered = shares = context = None
            if stored is not None:
                context = msgspec.json.encode(stored.context).decode()
            if data is not None:
                request = KeptRequest.read(data)
                offered = None if request.actions is None else list(map(str, request.actions))
                shares = request.propensities
            records = self._rows[line]
            decisions.append(ArchivedDecision(decision.x, records, data, offered, shares, context))
        return decisions
