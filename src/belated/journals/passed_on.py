"""What a journal that stands before another passes on to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from belated.core.events import Configured, Decision, ModeChanged, Record, Trimmed
from belated.journals.arrivals import check_range
from belated.journals.columns import ColumnLog, ColumnPage
from belated.journals.journal import Journal
from belated.journals.local import NamedJournal
from belated.journals.log import Requests, Tail
from belated.journals.snapshots import Snapshot

#: Events handed over, and records read, in one call: few enough that no caller waits for long.
PAGE = 500

T = TypeVar("T")


class PassedOn(NamedJournal):
    """All but appending: of a spool, and of a session with a simulated store."""

    _journal: Journal

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Have the journal do something, unless it is away.

        Args:
            work: to be done.
            patient: however long it takes.
        """
        raise NotImplementedError

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Take over records with their stamps; see :meth:`Log.import_records`."""
        taken = list(records)
        self._ask(lambda: self._journal.import_records(taken, requests=requests), patient=True)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Log.read`."""
        check_range(partition, after, limit, self._partitions)
        records: list[Record] = []
        while True:  # in pages, so that the journal is given its time for each
            size = min(PAGE, limit - len(records))
            page = self._ask(lambda: self._journal.read(partition, after, size))  # noqa: B023
            records += page
            if len(page) < size or len(records) == limit:
                return records
            after = page[-1].position

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """The same as columns; see :meth:`ColumnLog.read_columns`."""
        journal = self._journal
        if isinstance(journal, ColumnLog):
            return self._ask(lambda: journal.read_columns(partition, after, limit))
        return ColumnPage.of_records(self.read(partition, after, limit))

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """What decisions were chosen from, by position; not of those that wait."""
        return self._ask(lambda: self._journal.requests(partition, positions))

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""
        return self._ask(lambda: self._journal.end(partition))

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, 0 if there is none."""
        return self._ask(lambda: self._journal.last_stamp(partition))

    def now(self) -> int:
        """Return the time of the clock that stamps records, in microseconds since 1970."""
        return self._ask(self._journal.now)

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Return all records of these ids, by partition and position; not those that wait."""
        return self._ask(lambda: self._journal.records_of(ids, limit))

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision that stands under each of these ids; not one that waits."""
        return self._ask(lambda: self._journal.decisions(ids))

    def settlements(self, partition: int) -> list[Record]:
        """Return the last records that settled a partition, in order."""
        return self._ask(lambda: self._journal.settlements(partition))

    def undone(self, partition: int) -> list[Record]:
        """Return all records of a partition that undo others, in order."""
        return self._ask(lambda: self._journal.undone(partition))

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions; see :meth:`UniqueLog.overwrite`."""
        return self._ask(lambda: self._journal.overwrite(keys), patient=True)

    def mode(self) -> ModeChanged | None:
        """Return the last event that changed the mode, None if there is none."""
        return self._ask(self._journal.mode)

    def configured(self) -> Configured | None:
        """Return the last event that says what the bandit is, None if there is none."""
        return self._ask(self._journal.configured)

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; give back what is."""
        return self._ask(lambda: self._journal.identify(identity), patient=True)

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""
        self._ask(lambda: self._journal.reidentify(identity), patient=True)

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`Shelf.acquire`."""
        return self._ask(lambda: self._journal.acquire(partition), patient=True)

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Shelf.save`."""
        self._ask(lambda: self._journal.save(snapshot), patient=True)

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, None if there is none; see :meth:`Shelf.load`."""
        return self._ask(lambda: self._journal.load(partition), patient=True)

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped; see :meth:`Log.start`."""
        return self._ask(lambda: self._journal.start(partition), patient=True)

    def drop(self, partition: int, limit: int) -> int:
        """Drop some of the records up to the start; see :meth:`Log.drop`."""
        return self._ask(lambda: self._journal.drop(partition, limit), patient=True)

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`Shelf.base`."""
        return self._ask(lambda: self._journal.base(partition), patient=True)

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so; see :meth:`Shelf.rebase`."""
        self._ask(lambda: self._journal.rebase(base, trimmed, undone), patient=True)
