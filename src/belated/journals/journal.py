"""What a bandit holds: a log, and what is stored beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, runtime_checkable

from belated.core.events import Record, Trimmed
from belated.journals.arrivals import check_range
from belated.journals.log import Requests, UniqueLog
from belated.journals.pages import ColumnLog, ColumnPage
from belated.journals.snapshots import Snapshot

#: Records read through a :class:`PassedOn` in one call: few enough that no caller waits for long.
PAGE = 500

P = ParamSpec("P")
T = TypeVar("T")


@runtime_checkable
class Journal(UniqueLog, Protocol):
    """The events of one bandit, what it is, and its owners, snapshots and bases.

    All but the log is written once for all stores, in
    :class:`~belated.journals.shelf.CellShelf`. :class:`belated.testing.JournalContract` has
    the tests of both.
    """

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; returns what is stored now."""

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, in place of what was stored."""

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`CellShelf.acquire`."""

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`CellShelf.save`."""

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; see :meth:`CellShelf.load`."""

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`CellShelf.base`."""

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so; see :meth:`CellShelf.rebase`."""


class NamedJournal:
    """The name of a bandit and its number of partitions, for as long as ``with`` lasts."""

    _bandit: str
    _partitions: int

    @property
    def bandit(self) -> str:
        """The name of the bandit."""
        return self._bandit

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    def close(self) -> None:
        """Let go of whatever is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _passed_on(
    method: Callable[Concatenate[Any, P], T], *, patient: bool = False
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that has the journal behind do the same; see :meth:`PassedOn._ask`."""
    name = method.__name__

    @wraps(method)
    def pass_on(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = self._ask(
            lambda: getattr(self._journal, name)(*args, **kwargs), patient=patient
        )
        return answer

    return pass_on


class PassedOn(NamedJournal):
    """Passes all but appending on to another journal."""

    _journal: Journal

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Have the journal behind do something, unless it is down.

        Args:
            work: to be done.
            patient: however long it takes.
        """
        raise NotImplementedError

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their stamps; see :meth:`Log.import_records`."""
        taken = list(records)  # by this thread: they may come from a file that it has open
        self._ask(lambda: self._journal.import_records(taken, requests=requests), patient=True)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records beyond a position; see :meth:`Log.read`."""
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
        """Return the same as columns; see :meth:`ColumnLog.read_columns`."""
        journal = self._journal
        if isinstance(journal, ColumnLog):
            return self._ask(lambda: journal.read_columns(partition, after, limit))
        return ColumnPage.of_records(self.read(partition, after, limit))

    requests = _passed_on(Journal.requests)
    end = _passed_on(Journal.end)
    last_stamp = _passed_on(Journal.last_stamp)
    now = _passed_on(Journal.now)
    records_of = _passed_on(Journal.records_of)
    decisions = _passed_on(Journal.decisions)
    settlements = _passed_on(Journal.settlements)
    undone = _passed_on(Journal.undone)
    mode = _passed_on(Journal.mode)
    actions = _passed_on(Journal.actions)
    configured = _passed_on(Journal.configured)
    overwrite = _passed_on(Journal.overwrite, patient=True)
    identify = _passed_on(Journal.identify, patient=True)
    reidentify = _passed_on(Journal.reidentify, patient=True)
    acquire = _passed_on(Journal.acquire, patient=True)
    save = _passed_on(Journal.save, patient=True)
    load = _passed_on(Journal.load, patient=True)
    start = _passed_on(Journal.start, patient=True)
    drop = _passed_on(Journal.drop, patient=True)
    base = _passed_on(Journal.base, patient=True)
    rebase = _passed_on(Journal.rebase, patient=True)
