"""The journal of a bandit: a log and the state that is stored with it."""

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

#: Number of records per read call of a :class:`DelegatingJournal`, small enough that each call is
#: short.
PAGE = 500

P = ParamSpec("P")
T = TypeVar("T")


@runtime_checkable
class Journal(UniqueLog, Protocol):
    """The events of one bandit, and its identity, owners, snapshots and bases.

    :class:`~belated.journals.shelf.CellShelf` implements everything except the log for all stores.
    :class:`belated.testing.JournalContract` tests both.
    """

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store the identity of the bandit if it has none; return the stored identity."""

    def reidentify(self, identity: dict[str, str]) -> None:
        """Replace the stored identity of the bandit."""

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`CellShelf.acquire`."""

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`CellShelf.save`."""

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot, or None; see :meth:`CellShelf.load`."""

    def base(self, partition: int) -> Snapshot | None:
        """Return the state that replaces dropped records; see :meth:`CellShelf.base`."""

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and append its :class:`Trimmed` event; see :meth:`CellShelf.rebase`."""


class NamedJournal:
    """Base class of journals: a context manager with a name and a number of partitions."""

    _bandit: str
    _partitions: int

    @property
    def bandit(self) -> str:
        """The name of the bandit."""
        return self._bandit

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._partitions

    def close(self) -> None:
        """Close the journal."""
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


def _delegated(
    method: Callable[Concatenate[Any, P], T], *, patient: bool = False
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls the wrapped journal; see :meth:`DelegatingJournal._ask`."""
    name = method.__name__

    @wraps(method)
    def delegate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._ask(
            lambda: getattr(self._journal, name)(*args, **kwargs), patient=patient
        )
        return result

    return delegate


class DelegatingJournal(NamedJournal):
    """Delegates everything except appending to another journal."""

    _journal: Journal

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Run a call to the wrapped journal.

        Args:
            work: The call.
            patient: Whether to wait without a timeout.
        """
        raise NotImplementedError

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their timestamps; see :meth:`Log.import_records`."""
        # Read the records in this thread, because the iterator may use its file or connection.
        whole = list(records)
        self._ask(lambda: self._journal.import_records(whole, requests=requests), patient=True)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`."""
        check_range(partition, after, limit, self._partitions)
        records: list[Record] = []
        while True:  # in pages, because the timeout of a call applies to each page
            size = min(PAGE, limit - len(records))
            page = self._ask(lambda: self._journal.read(partition, after, size))  # noqa: B023
            records += page
            if len(page) < size or len(records) == limit:
                return records
            after = page[-1].position

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return the records after a position as columns; see :meth:`ColumnLog.read_columns`."""
        journal = self._journal
        if isinstance(journal, ColumnLog):
            return self._ask(lambda: journal.read_columns(partition, after, limit))
        return ColumnPage.of_records(self.read(partition, after, limit))

    requests = _delegated(Journal.requests)
    end = _delegated(Journal.end)
    last_stamp = _delegated(Journal.last_stamp)
    now = _delegated(Journal.now)
    records_of = _delegated(Journal.records_of)
    decisions = _delegated(Journal.decisions)
    settlements = _delegated(Journal.settlements)
    undone = _delegated(Journal.undone)
    mode = _delegated(Journal.mode)
    actions = _delegated(Journal.actions)
    configured = _delegated(Journal.configured)
    overwrite = _delegated(Journal.overwrite, patient=True)
    identify = _delegated(Journal.identify, patient=True)
    reidentify = _delegated(Journal.reidentify, patient=True)
    acquire = _delegated(Journal.acquire, patient=True)
    save = _delegated(Journal.save, patient=True)
    load = _delegated(Journal.load, patient=True)
    start = _delegated(Journal.start, patient=True)
    drop = _delegated(Journal.drop, patient=True)
    base = _delegated(Journal.base, patient=True)
    rebase = _delegated(Journal.rebase, patient=True)
