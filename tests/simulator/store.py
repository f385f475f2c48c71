"""The simulated store, and the sessions through which processes use it.

Synced records survive everything. A transaction gets its positions when it begins, and others may
begin after it and be synced before it; its records still come before theirs. Until it is synced or
rolled back, readers see nothing behind it: they would skip its records.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock

import msgspec

from belated.core.events import Decision, Event, Opaque, Record, encode
from belated.exceptions import CorruptEvent, JournalClosed, JournalUnavailable, OwnerFenced
from belated.journals import MemoryJournal
from belated.journals.arrivals import (
    Clock,
    FirstDecisions,
    check_partition,
    check_range,
    check_requests,
    route,
    stamps_for,
)
from belated.journals.cells import NO_VERSIONS, Cell, Outcome, cell_name
from belated.journals.coordination import owner_cell
from belated.journals.journal import DelegatingJournal, T
from belated.journals.log import EMPTY, Appended, Requests, Tail
from belated.journals.memory import MemoryCells
from belated.journals.pages import ColumnPage
from belated.journals.shelf import CellShelf
from belated.journals.snapshots import Snapshot, damage
from tests.simulator.faults import Faults, Killed

_position = attrgetter("position")


@dataclass
class Transaction:
    """Events written to one partition: ``open``, then ``synced`` or ``gone``."""

    partition: int
    positions: list[int] = field(default_factory=list)
    events: list[tuple[int, Event]] = field(default_factory=list)
    requests: dict[int, bytes] = field(default_factory=dict)  # by position
    state: str = "open"


class Store(MemoryJournal):
    """A memory journal of what readers see, followed by transactions that they do not see yet.

    Positions have gaps where a transaction was rolled back.

    Args:
        partitions: of the journal.
        clock: of its machine.
        faults: counts what happened.

    Attributes:
        lock: held by a session while it decides whether an id is free.
        veiled: records that cannot be read, by partition and position: ``damaged``, or of a
            ``newer`` release.
        lineage: partition, epoch and position of every snapshot that an owner has saved.
        forgotten: ids of decisions that can no longer be read, so that they can be used again.
        stood: the bytes of every decision that was ever the valid one, by id.
    """

    def __init__(self, partitions: int, clock: Clock, faults: Faults) -> None:
        super().__init__(partitions=partitions, clock=clock)
        self.lock = Lock()
        self.reachable = True
        self.veiled: dict[tuple[int, int], str] = {}
        self.lineage: list[tuple[int, int, int]] = []
        self._faults = faults
        self._next = [1] * partitions
        self._unseen: list[list[Transaction]] = [[] for _ in range(partitions)]
        self._dropped: list[list[Record]] = [[] for _ in range(partitions)]
        self._overwritten: dict[tuple[int, int], Record] = {}  # by partition and position
        self.forgotten: set[str] = set()
        self.stood: dict[str, set[bytes]] = {}

    # --- writing -------------------------------------------------------------------------------

    def begin(
        self,
        events: Sequence[Event],
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[Transaction]:
        """Write events, in one transaction for each partition."""
        places = [route(event, self._partitions) for event in events]
        transactions: dict[int, Transaction] = {}
        stamps = stamps_for(events, recorded, self._clock)
        for n, (partition, stamp, event) in enumerate(zip(places, stamps, events, strict=True)):
            transaction = transactions.setdefault(partition, Transaction(partition))
            transaction.positions.append(self._next[partition])
            transaction.events.append((stamp, event))
            if requests and n in requests:
                transaction.requests[self._next[partition]] = requests[n]
            self._next[partition] += 1
        for partition, transaction in transactions.items():
            self._unseen[partition].append(transaction)
        return list(transactions.values())

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Write events without faults; see :meth:`Log.append`."""
        transactions = self.begin(events, recorded, requests)
        for transaction in transactions:
            self.sync(transaction)
        return self.positions_of(transactions, events)

    def positions_of(self, begun: list[Transaction], events: Sequence[Event]) -> list[int]:
        """Return the position of each event of these transactions."""
        positions = {transaction.partition: iter(transaction.positions) for transaction in begun}
        return [next(positions[route(event, self._partitions)]) for event in events]

    def sync(self, transaction: Transaction) -> bool:
        """Commit a transaction; return False if it was rolled back."""
        if transaction.state == "open":
            queue = self._unseen[transaction.partition]
            if any(earlier.state == "open" for earlier in queue[: queue.index(transaction)]):
                self._faults.see("commits out of order")
            transaction.state = "synced"
            self._publish(transaction.partition)
        return transaction.state == "synced"

    def give_up(self, transaction: Transaction) -> None:
        """Roll a transaction back unless it is synced; its positions stay unused."""
        if transaction.state == "open":
            transaction.state = "gone"
            self._publish(transaction.partition)

    def lose_power(self) -> None:
        """Roll back everything that is not synced."""
        for queue in self._unseen:
            for transaction in [waiting for waiting in queue if waiting.state == "open"]:
                self._faults.see("unsynced tail dropped")
                self.give_up(transaction)

    def is_contested(self, ids: Collection[str]) -> bool:
        """Whether a decision with one of these ids is written and not visible yet."""
        return any(
            isinstance(event, Decision) and event.id in ids
            for queue in self._unseen
            for transaction in queue
            if transaction.state != "gone"
            for _, event in transaction.events
        )

    @property
    def is_busy(self) -> bool:
        """Whether any transaction is unfinished."""
        return any(self._unseen)

    def _publish(self, partition: int) -> None:
        """Make visible what has no open transaction before it."""
        queue = self._unseen[partition]
        while queue and queue[0].state != "open":
            self._show(queue.pop(0))

    def _show(self, transaction: Transaction) -> None:
        if transaction.state == "synced":
            for position, (stamp, event) in zip(
                transaction.positions, transaction.events, strict=True
            ):
                stamp_shown = max(stamp, self.last_stamp(transaction.partition))
                record = Record(transaction.partition, position, stamp_shown, event)
                request = transaction.requests.get(position)
                self._insert(None, [record], [], None if request is None else {0: request})

    def _insert(
        self, handle: None, records: list[Record], data: Sequence[bytes], requests: Requests | None
    ) -> list[Record]:
        for record in records:
            self._next[record.partition] = max(self._next[record.partition], record.position + 1)
        records_inserted = super()._insert(handle, records, data, requests)
        self._note_standing(
            [record.event.id for record in records if isinstance(record.event, Decision)]
        )
        return records_inserted

    def _note_standing(self, ids: Sequence[str]) -> None:
        for id, decision in self.decisions(ids).items():
            self.stood.setdefault(id, set()).add(encode(decision))

    # --- reading -------------------------------------------------------------------------------

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Read as a process does: fail on a damaged record, and stop at one of a newer release."""
        self._check_kept(partition, after)
        stream = self._streams[partition]
        start = bisect_right(stream, after, key=_position)
        page = stream[start : start + limit]
        for n, record in enumerate(page if self.veiled else []):
            veil = self.veiled.get((partition, record.position))
            if veil == "newer":
                opaque = Opaque(bytes([99]) + encode(record.event))
                veiled_record = msgspec.structs.replace(record, event=opaque)
                return [*page[:n], veiled_record]
            if veil == "damaged":
                where = f"partition {partition}, position {record.position}"
                raise CorruptEvent(f"the record at {where} was changed after it was written")
        return page

    def records(self, partition: int) -> list[Record]:
        """Return all that was ever recorded, as it was recorded."""
        return [
            self._overwritten.get((partition, record.position), record)
            for record in [*self._dropped[partition], *self._streams[partition]]
        ]

    def readable(self, partition: int) -> list[Record]:
        """Return what readers would see if every record were readable."""
        return list(self._streams[partition])

    def drop(self, partition: int, limit: int) -> int:
        """Drop records, and remember them for the checks."""
        visible = self.readable(partition)
        count = super().drop(partition, limit)
        self._dropped[partition] += visible[:count]
        self._forget(visible[:count])
        return count

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite events, and remember them for the checks."""
        records_before = [record for stream in self._streams for record in stream]
        count = super().overwrite(keys)
        records_after = [record for stream in self._streams for record in stream]
        overwritten = [
            old for old, new in zip(records_before, records_after, strict=True) if old is not new
        ]
        self._overwritten |= {(record.partition, record.position): record for record in overwritten}
        self._forget(overwritten)
        return count

    def _forget(self, records: Sequence[Record]) -> None:
        events = (record.event for record in records)
        ids = {event.id for event in events if isinstance(event, Decision)}
        self.forgotten |= ids
        self._note_standing(sorted(ids))  # a rival may be the valid one now

    def _tail(self, handle: None, partition: int) -> Tail:
        check_partition(partition, self._partitions)
        stream = self._streams[partition] or self._dropped[partition]
        return Tail(stream[-1].position, stream[-1].recorded) if stream else EMPTY

    # --- snapshots -----------------------------------------------------------------------------

    @property
    def epochs(self) -> list[int]:
        """The epochs of the owners of partitions."""
        names = [owner_cell(self.bandit, partition) for partition in range(self._partitions)]
        cells = self.cells.get(names)
        return [cells[name].version if name in cells else 0 for name in names]

    def is_damaged(self, partition: int) -> bool:
        """Whether the stored snapshot is damaged."""
        snapshot = self._snapshots.load(partition)
        return snapshot is not None and damage(snapshot[2], snapshot[1]) is not None

    def saved(self, partition: int) -> int | None:
        """Return the position of the snapshot, None if there is no valid one."""
        contents = self._snapshots.stored(partition).contents
        return None if contents is None or self.is_damaged(partition) else contents.position

    def has_snapshot(self, partition: int) -> bool:
        """Whether there is a valid snapshot."""
        return self.saved(partition) is not None

    def spoil(self, partition: int, draw: float, torn: bool) -> None:
        """Flip a bit in the stored snapshot, or tear a byte off."""
        cells = self.cells.scan(cell_name("snapshot-piece", self.bandit, partition, ""))
        pieces = {name: cell.value for name, cell in cells.items() if cell.value}
        name = [*pieces][int(draw * len(pieces))]
        data = pieces[name]
        self.cells.transact({}, {name: data[:-1] if torn else bytes([data[0] ^ 1]) + data[1:]})


class SessionCells(MemoryCells):
    """The cells of the store, as one process reaches them.

    Args:
        store: that they are of.
    """

    def __init__(self, store: Store) -> None:
        self.__dict__ |= vars(store._facts.cells)
        self.store = store

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return cells by name; see :meth:`Cells.get`."""
        self._reach()
        return super().get(names, known)

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names begin like this."""
        self._reach()
        return super().scan(prefix)

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Change cells if others are as expected; see :meth:`Cells.transact`."""
        self._reach()
        return super().transact(expected, puts, deletes)

    def _reach(self) -> None:
        if not self.store.reachable:
            raise JournalUnavailable("the store does not answer")


class _SessionShelf(CellShelf):
    """What one process knows of owners and snapshots."""

    def __init__(self, store: Store) -> None:
        self._bandit, self._partitions, self._place = store.bandit, store.partitions, "the store"
        self.end, self.append, self.undone = store.end, store.append, store.undone  # type: ignore
        self._open_shelf(SessionCells(store))


class SimulatedJournal(DelegatingJournal):
    """The session of one process with the store: a :class:`~belated.journals.Journal` that fails.

    Args:
        store: that it uses.
        faults: that may occur.

    >>> from belated.core.events import Void
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
        self._shelf = _SessionShelf(store)
        self._empty_reads = 0  # in a row
        self._closed = False

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events; see :meth:`Journal.append`."""
        store, faults = self._reach(), self._faults
        if faults.strike("disk full"):
            raise JournalUnavailable("no space is left")
        if store.is_busy and faults.strike("lock timed out"):
            raise JournalUnavailable("others hold the lock for too long")
        check_requests(events, requests)
        batch = store.begin(events, recorded, requests)
        power_lost = faults.strike("power lost")
        for n, transaction in enumerate(batch):
            if power_lost and n == len(batch) // 2:  # the partitions before are durable
                store.lose_power()
            store.sync(transaction)
        if faults.strike("killed before answering"):
            raise Killed
        if power_lost or faults.strike("commit unknown"):
            raise JournalUnavailable("the connection broke: nobody knows what is there")
        if any(
            store.end(transaction.partition) < transaction.positions[-1] for transaction in batch
        ):
            # Durable, but not visible yet; a real journal would wait here for a while.
            faults.see("reader stalled")
            raise JournalUnavailable("a transaction that began earlier is not finished")
        return store.positions_of(batch, events)

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Append events whose ids are free; see :meth:`UniqueLog.append_unique`."""
        store = self._reach()
        with store.lock:
            if store.is_contested(ids):  # a real journal would wait here for a while
                self._faults.see("contested id")
                raise JournalUnavailable("another decision is being made under this id")
            first_decisions = FirstDecisions(events, ids, store.records_of(list(ids)))
            requests = first_decisions.requests(requests)
            return first_decisions.appended(self.append(first_decisions.events, requests=requests))

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Journal.read`."""
        store = self._reach()
        check_range(partition, after, limit, self._partitions)
        records = store.read(partition, after, limit)
        self._empty_reads = 0 if records else self._empty_reads + 1
        # A worker reads each of its partitions in every step, and some may stay empty for long.
        limit = 1000 * self._partitions
        assert self._empty_reads < limit, "L: a reader waits for ever for what is not there"
        return records

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return the same as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`CellShelf.acquire`."""
        self._reach()
        return self._shelf.acquire(partition)

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Journal.save`."""
        store, partition = self._reach(), snapshot.partition
        if self._faults.strike("killed before saving"):
            raise Killed
        try:
            self._shelf.save(snapshot)
        except OwnerFenced:
            self._faults.see("owner superseded")
            raise
        epoch = self._shelf._epochs.get((os.getpid(), partition))
        if epoch is not None:
            store.lineage.append((partition, epoch, snapshot.position))
        if partition + 1 < self._partitions and self._faults.strike("killed between partitions"):
            raise Killed

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; see :meth:`Journal.load`."""
        is_damaged = self._reach().is_damaged(partition)
        snapshot = self._shelf.load(partition)
        if is_damaged:
            assert snapshot is None, "a damaged snapshot was taken for a good one"
            self._faults.see("damaged snapshot discarded")
        return snapshot

    def close(self) -> None:
        """Close the session; later calls raise :class:`JournalClosed`."""
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
