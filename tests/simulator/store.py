"""The store: where the journal really is, beyond the reach of any process.

What was synced survives everything. A transaction gets its positions when it begins, and others may
begin after it and be synced before it: its records stand before theirs. Until it is synced or
given up, a reader that saw what comes after would pass over it, so nothing behind it is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from belated.events import Decision, Event, Opaque, Record, encode
from belated.exceptions import CorruptEvent, OwnerFenced
from belated.journals import MemoryJournal, Snapshot
from belated.journals.arrivals import Clock, check_partition, route, stamps_for
from belated.journals.log import EMPTY, Requests, Tail
from belated.journals.lookups import to_overwrite
from tests.simulator.faults import Faults

_position = attrgetter("position")


@dataclass
class Transaction:
    """Events written to one partition: ``open`` until they are ``synced``, or ``gone``."""

    partition: int
    positions: list[int] = field(default_factory=list)
    events: list[tuple[int, Event]] = field(default_factory=list)
    requests: dict[int, bytes] = field(default_factory=dict)  # by position
    state: str = "open"


class Store(MemoryJournal):
    """A memory journal for what readers see, and behind its end a tail that they do not see yet.

    Positions have gaps where a transaction was given up.

    Args:
        partitions: of the journal.
        clock: of the machine it is on.
        faults: is told what happened.
    """

    def __init__(self, partitions: int, clock: Clock, faults: Faults) -> None:
        super().__init__(partitions=partitions, clock=clock)
        self.reachable = True
        #: Records that cannot be read, by partition and position: "damaged", or of a "newer" kind.
        self.veiled: dict[tuple[int, int], str] = {}
        #: Partition, epoch and position of every snapshot that was taken from an owner.
        self.lineage: list[tuple[int, int, int]] = []
        self._faults = faults
        self._next = [1] * partitions
        self._unseen: list[list[Transaction]] = [[] for _ in range(partitions)]
        #: By partition, that of its owner.
        self.epochs = [0] * partitions
        self._spoiled: dict[int, str] = {}  # by partition, the piece that is
        # What was dropped, by partition, and what was overwritten, by partition and position.
        self._dropped: list[list[Record]] = [[] for _ in range(partitions)]
        self._overwritten: dict[tuple[int, int], Record] = {}
        #: Ids of decisions that can no longer be read: a decision can be made under them again.
        self.forgotten: set[str] = set()
        #: By id, the bytes of each decision that has ever stood under it.
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
        begun: dict[int, Transaction] = {}
        stamps = stamps_for(events, recorded, self._clock)
        for n, (partition, stamp, event) in enumerate(zip(places, stamps, events, strict=True)):
            one = begun.setdefault(partition, Transaction(partition))
            one.positions.append(self._next[partition])
            one.events.append((stamp, event))
            if requests and n in requests:
                one.requests[self._next[partition]] = requests[n]
            self._next[partition] += 1
        for partition, one in begun.items():
            self._unseen[partition].append(one)
        return list(begun.values())

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Write events that no fault befalls; see :meth:`Log.append`."""
        begun = self.begin(events, recorded, requests)
        for one in begun:
            self.sync(one)
        places = {one.partition: iter(one.positions) for one in begun}
        return [next(places[route(event, self._partitions)]) for event in events]

    def sync(self, one: Transaction) -> bool:
        """Make a transaction last; False if it is gone already."""
        if one.state == "open":
            unseen = self._unseen[one.partition]
            if any(other.state == "open" for other in unseen[: unseen.index(one)]):
                self._faults.see("commits out of order")
            one.state = "synced"
            self._publish(one.partition)
        return one.state == "synced"

    def give_up(self, one: Transaction) -> None:
        """Roll a transaction back, if it is not synced: its positions stay unused."""
        if one.state == "open":
            one.state = "gone"
            self._publish(one.partition)

    def lose_power(self) -> None:
        """Whatever is not synced is gone."""
        for one in [one for unseen in self._unseen for one in unseen if one.state == "open"]:
            self._faults.see("unsynced tail dropped")
            self.give_up(one)

    def is_contested(self, ids: Collection[str]) -> bool:
        """Whether a decision under one of these ids is written and not shown yet."""
        return any(
            isinstance(event, Decision) and event.id in ids
            for unseen in self._unseen
            for one in unseen
            if one.state != "gone"
            for _, event in one.events
        )

    @property
    def is_busy(self) -> bool:
        """Whether any transaction is unfinished."""
        return any(self._unseen)

    def _publish(self, partition: int) -> None:
        """Show what has nothing unfinished before it."""
        unseen = self._unseen[partition]
        while unseen and unseen[0].state != "open":
            self._show(unseen.pop(0))

    def _show(self, one: Transaction) -> None:
        if one.state == "synced":
            for position, (stamp, event) in zip(one.positions, one.events, strict=True):
                held = max(stamp, self.last_stamp(one.partition))
                record = Record(one.partition, position, held, event)
                kept = one.requests.get(position)
                self._keep([record], None if kept is None else {0: kept})

    def _keep(self, records: list[Record], requests: Requests | None = None) -> list[int]:
        for record in records:
            self._next[record.partition] = max(self._next[record.partition], record.position + 1)
        positions = super()._keep(records, requests)
        self._note_standing(
            [record.event.id for record in records if isinstance(record.event, Decision)]
        )
        return positions

    def _note_standing(self, ids: Sequence[str]) -> None:
        for id, standing in self.decisions(ids).items():
            self.stood.setdefault(id, set()).add(encode(standing))

    # --- reading -------------------------------------------------------------------------------

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Records as a process reads them: none with a damaged one, and none beyond a newer one."""
        self._check_kept(partition, after)
        stream = self._streams[partition]
        start = bisect_right(stream, after, key=_position)
        found = stream[start : start + limit]
        for n, record in enumerate(found if self.veiled else []):
            veil = self.veiled.get((partition, record.position))
            if veil == "newer":
                unread = Opaque(bytes([99]) + encode(record.event))
                veiled = msgspec.structs.replace(record, event=unread)
                return [*found[:n], veiled]
            if veil == "damaged":
                where = f"partition {partition}, position {record.position}"
                raise CorruptEvent(f"the record at {where} was changed after it was written")
        return found

    def records(self, partition: int) -> list[Record]:
        """All that was ever recorded, as it was recorded."""
        return [
            self._overwritten.get((partition, one.position), one)
            for one in [*self._dropped[partition], *self._streams[partition]]
        ]

    def readable(self, partition: int) -> list[Record]:
        """All that readers would see if nothing were wrong with any record."""
        return list(self._streams[partition])

    def drop(self, partition: int, limit: int) -> int:
        """Drop records, and remember them for the checks."""
        before = self.readable(partition)
        count = super().drop(partition, limit)
        self._dropped[partition] += before[:count]
        self._forget(before[:count])
        return count

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite events, and remember them for the checks."""
        found = [record for record, _ in to_overwrite(self._of(set(keys)))]
        self._overwritten |= {(record.partition, record.position): record for record in found}
        self._forget(found)
        return super().overwrite(keys)

    def _forget(self, records: Sequence[Record]) -> None:
        made = (record.event for record in records)
        ids = {event.id for event in made if isinstance(event, Decision)}
        self.forgotten |= ids
        self._note_standing(sorted(ids))  # where there were rivals, another stands now

    def _tail(self, partition: int) -> Tail:
        check_partition(partition, self._partitions)
        stream = self._streams[partition] or self._dropped[partition]
        return Tail(stream[-1].position, stream[-1].recorded) if stream else EMPTY

    # --- snapshots -----------------------------------------------------------------------------

    def acquire(self, partition: int) -> int:
        """A partition has a new owner; returns the epoch."""
        self.epochs[partition] += 1
        return self.epochs[partition]

    def check_owner(self, partition: int, epoch: int) -> None:
        """Refuse whoever was the owner once."""
        if epoch != self.epochs[partition]:
            self._faults.see("owner superseded")
            raise OwnerFenced(partition)

    def save_as(self, epoch: int, snapshot: Snapshot) -> None:
        """Store the snapshot of an owner."""
        self.check_owner(snapshot.partition, epoch)
        self.save(snapshot)
        self.lineage.append((snapshot.partition, epoch, snapshot.position))

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Journal.save`."""
        before = self._snapshots.get(snapshot.partition)
        self._known[snapshot.partition] = self.checksums(snapshot.partition)  # sessions know theirs
        super().save(snapshot)
        replaced = self._snapshots.get(snapshot.partition) is not before
        if replaced and self._spoiled.get(snapshot.partition) not in snapshot.kept:
            self._spoiled.pop(snapshot.partition, None)

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, unless it is damaged; see :meth:`Journal.load`."""
        found = super().load(partition)
        if partition in self._spoiled:
            assert found is None, "a damaged snapshot was taken for a good one"
            del self._spoiled[partition]
            self._faults.see("damaged snapshot discarded")
        return found

    def checksums(self, partition: int) -> dict[str, bytes]:
        """Of the pieces of the stored snapshot."""
        stored = self._snapshots.get(partition)
        return stored.checksums if stored else {}

    def saved(self, partition: int) -> int | None:
        """The position of the snapshot; None if there is none, or it is damaged."""
        if not self.has_snapshot(partition):
            return None
        return self._snapshots[partition].snapshot.position

    def has_snapshot(self, partition: int) -> bool:
        """Whether there is one, and it is not damaged."""
        return partition in self._snapshots and partition not in self._spoiled

    def spoil(self, partition: int, draw: float, torn: bool) -> None:
        """Flip a bit in the stored snapshot, or tear a byte off."""
        if partition in self._spoiled:  # a second flip might undo the first
            return
        pieces = self._snapshots[partition].snapshot.pieces
        names = [name for name, data in pieces.items() if data]
        name = names[int(draw * len(names))]
        data = pieces[name]
        pieces[name] = data[:-1] if torn else bytes([data[0] ^ 1]) + data[1:]
        self._spoiled[partition] = name
