"""Operators who erase decisions, retract what was reported and trim the journal, now and then."""

from __future__ import annotations

from functools import partial

from belated.events import Decision, Erased, Event, Record, Retracted, Reward
from belated.exceptions import BelatedError
from belated.ids import erased_key_of
from belated.journals import Snapshot
from belated.journals.log import EMPTY, Tail
from belated.journals.lookups import erased_key_in
from belated.learner import Fold
from belated.learner.trimming import last_to_drop, make_bases, trim
from belated.rewards import retention_us
from tests.simulator.world import PLAIN, World


class UndoingOperator:
    """Undoes something in some runs; what was retracted may be restored.

    Args:
        world: it lives in.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.stream("undoing")
        self._retracted: list[Retracted] = []
        if self._rng.random() < 0.5:
            world.schedule.after(self._pause(), self._undo)

    def _pause(self) -> float:
        return self._rng.expovariate(3 / self._world.knobs.span)

    def _undo(self) -> None:
        world, rng, store = self._world, self._rng, self._world.store
        if not world.active:
            return
        partition = rng.randrange(world.knobs.partitions)
        if rng.random() < 0.2:
            self._overwrite(partition)
        start = store.start(partition).position  # what a base has may still be readable
        records = [one for one in store.readable(partition) if one.position > start]
        event = self._choose(partition, records)
        if event is not None and store.reachable and not store.is_busy:
            store.append([event])
            if isinstance(event, Retracted):
                self._retracted.append(event)
            world.faults.see("record undone")
            world.trace_event("the operator", event)
        world.schedule.after(self._pause(), self._undo)

    def _overwrite(self, partition: int) -> None:
        """Destroy the bytes of what was erased; a learner may not have read that it was."""
        store = self._world.store
        acts = (one.event for one in store.undone(partition))
        if store.reachable and store.overwrite(
            [one.key for one in acts if isinstance(one, Erased)]
        ):
            self._world.faults.see("record overwritten")

    def _choose(self, partition: int, records: list[Record]) -> Event | None:
        rng, store = self._rng, self._world.store
        now = store.now()
        if self._retracted and rng.random() < 0.3:
            old = rng.choice(self._retracted)
            if old.start <= store.start(old.partition).stamp:
                return None  # what was trimmed cannot be restored
            return Retracted(old.partition, now, old.start, old.end, old.reporter, restored=True)
        kinds = (Decision, Reward) if rng.random() < 0.5 else Reward
        found = [record for record in records if isinstance(record.event, kinds)]
        if not found:
            return None
        record = rng.choice(found)
        if isinstance(record.event, Decision):
            key = erased_key_of(record.event.id)
            start = store.start(partition).position
            gone = (one for one in store.records(partition) if one.position <= start)
            if any(erased_key_in(one.event) == key for one in gone):
                return None  # some of it was trimmed, and cannot be erased
            return Erased(key, now)
        if record.recorded <= store.start(partition).stamp:
            return None  # others of that moment were trimmed
        # What nobody's key has reported: in these runs, nearly all; to the microsecond, or not.
        end = record.recorded + rng.choice([1, 2, self._world.knobs.span])
        return Retracted(partition, now, record.recorded, end, "")


class TrimmingOperator:
    """Drops what is old, slice by slice, in some runs; old may be a moment ago.

    Args:
        world: it lives in.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.stream("trimming")
        self._retention = retention_us(world.knobs.retention, world.knobs.rewards)
        if self._rng.random() < 0.5:
            world.schedule.after(self._pause(), self._begin)

    def _pause(self) -> float:
        return self._rng.expovariate(10 / self._world.knobs.span)

    def _soon(self) -> float:
        return self._rng.expovariate(100 / self._world.knobs.span)

    def _begin(self) -> None:
        """Make the bases; what happens until they take their places may make them useless."""
        world, store = self._world, self._world.store
        if not world.active:
            return
        known = [len(store.undone(partition)) for partition in range(store.partitions)]
        try:
            last = [self._last(partition) for partition in range(store.partitions)]
            bases = make_bases(store, self._fold(), last)
        except BelatedError:  # a record that cannot be read
            bases = []
        for base in bases:
            partition = base.partition
            world.schedule.after(
                self._soon(),
                partial(self._rebase, base, last[partition], known[partition]),
            )
        world.schedule.after(self._pause(), self._begin)

    def _fold(self) -> Fold:
        knobs = self._world.knobs
        return Fold(
            knobs.policy,
            knobs.rewards,
            partitions=knobs.partitions,
            retention=self._retention,
            kernels=PLAIN,
            tuning=knobs.tuning,
        )

    def _last(self, partition: int) -> Tail:
        store, knobs = self._world.store, self._world.knobs
        saved = store.saved(partition)
        if saved is None or self._rng.random() < 0.3:
            return EMPTY
        before = store.now() - self._rng.choice([0, knobs.span // 10, self._retention or 0])
        return last_to_drop(store, partition, before, saved, knobs.tuning.link)

    def _rebase(self, base: Snapshot, last: Tail, known: int) -> None:
        store = self._world.store
        if not store.reachable or store.is_busy:
            return
        try:
            trim(store, base, last, known, reason="", actor="")
        except BelatedError:  # something was undone meanwhile, or the snapshot is gone
            return
        self._drop(base.partition)

    def _drop(self, partition: int) -> None:
        world = self._world
        if world.store.drop(partition, self._rng.choice([1, 5, 1000])):
            world.faults.see("record trimmed")
            world.schedule.after(self._soon(), partial(self._drop, partition))
