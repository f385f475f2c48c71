"""The journal as one process has it: a connection to the store that may fail at every step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from belated.events import Event, Record
from belated.exceptions import JournalClosed, JournalUnavailable
from belated.journals import Snapshot
from belated.journals.arrivals import check_range, check_requests, route
from belated.journals.columns import ColumnPage
from belated.journals.log import Appended, Requests
from belated.journals.lookups import append_first, of_kept
from belated.journals.passed_on import PassedOn, T
from belated.journals.snapshots import check_kept, checksums_of
from tests.simulator.faults import Faults, Killed
from tests.simulator.store import Store


class SimulatedJournal(PassedOn):
    """A session of one process with the store; a :class:`~belated.journals.Journal`.

    Args:
        store: what it talks to.
        faults: what may fail.

    >>> from belated.events import Void
    >>> from belated.testing import ManualClock
    >>> faults = Faults(seed=0)
    >>> faults.stop()
    >>> journal = SimulatedJournal(Store(1, ManualClock(), faults), faults)
    >>> journal.append([Void("a", 5), Void("b", 6)])
    [1, 2]
    """

    def __init__(self, store: Store, faults: Faults) -> None:
        self._bandit = store.bandit
        self._partitions = store.partitions
        self._store = self._journal = store
        self._faults = faults
        self._epochs: dict[int, int] = {}
        self._known: dict[int, dict[str, bytes]] = {}  # checksums of what was saved or loaded here
        self._vain = 0  # how often nothing was found, in a row
        self._closed = False

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Keep events; see :meth:`Journal.append`."""
        store, faults = self._reach(), self._faults
        if faults.strike("disk full"):
            raise JournalUnavailable("no space is left")
        if store.is_busy and faults.strike("lock timed out"):
            raise JournalUnavailable("others hold the lock for too long")
        check_requests(events, requests)
        begun = store.begin(events, recorded, requests)
        power_lost = faults.strike("power lost")
        for n, one in enumerate(begun):
            if power_lost and n == len(begun) // 2:  # the partitions before are safe
                store.lose_power()
            store.sync(one)
        if faults.strike("killed before answering"):
            raise Killed
        if power_lost or faults.strike("commit unknown"):
            raise JournalUnavailable("the connection broke: nobody knows what is there")
        if any(store.end(one.partition) < one.positions[-1] for one in begun):
            # It is safe, but could not be read yet. A real journal would wait here for a while.
            faults.see("reader stalled")
            raise JournalUnavailable("a transaction that began earlier is not finished")
        places = {one.partition: iter(one.positions) for one in begun}
        return [next(places[route(event, self._partitions)]) for event in events]

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Keep events, and no second decision; see :meth:`UniqueLog.append_unique`."""
        store = self._reach()
        if store.is_contested(ids):  # a real journal would wait here for a while
            self._faults.see("contested id")
            raise JournalUnavailable("another decision is being made under this id")
        known = store.records_of(list(ids))
        return append_first(
            events,
            ids,
            known,
            lambda kept: self.append([events[n] for n in kept], requests=of_kept(requests, kept)),
        )

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Journal.read`."""
        store = self._reach()
        check_range(partition, after, limit, self._partitions)
        found = store.read(partition, after, limit)
        self._vain = 0 if found else self._vain + 1
        # A worker looks at each of its partitions in every step, and some may stay empty for long.
        patience = 1000 * self._partitions
        assert self._vain < patience, "L: a reader waits for ever for what is not there"
        return found

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """The same as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`PostgresJournal.acquire`."""
        self._epochs[partition] = self._reach().acquire(partition)
        return self._epochs[partition]

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Journal.save`."""
        store, partition = self._reach(), snapshot.partition
        if self._faults.strike("killed before saving"):
            raise Killed
        if partition in self._epochs:
            store.check_owner(partition, self._epochs[partition])
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        check_kept(snapshot, checksums, store.checksums(partition))
        if partition in self._epochs:
            store.save_as(self._epochs[partition], snapshot)
        else:
            store.save(snapshot)
        self._known[partition] = checksums
        if partition + 1 < self._partitions and self._faults.strike("killed between partitions"):
            raise Killed

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, None if there is none; see :meth:`Journal.load`."""
        found = self._reach().load(partition)
        self._known[partition] = dict(self._store.checksums(partition))
        return found

    def close(self) -> None:
        """Any later call raises :class:`JournalClosed`; the store goes on."""
        self._closed = True

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        self._reach()
        return work()

    def _reach(self) -> Store:
        if self._closed:
            raise JournalClosed("this session was closed; the store goes on")
        if not self._store.reachable:
            raise JournalUnavailable("the store does not answer")
        return self._store
