"""An operator who erases decisions, and retracts what was reported, now and then."""

from __future__ import annotations

from belated.events import Decision, Erased, Event, Record, Retracted, Reward
from belated.ids import key_of
from belated.testing.simulator.world import World


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
        event = self._choose(partition, store.records(partition))
        if event is not None and store.reachable and not store.is_busy:
            for one in store.begin([event]):
                store.sync(one)
            if isinstance(event, Retracted):
                self._retracted.append(event)
            world.faults.see("record undone")
            world.trace_event("the operator", event)
        world.schedule.after(self._pause(), self._undo)

    def _choose(self, partition: int, records: list[Record]) -> Event | None:
        rng, now = self._rng, self._world.store.now()
        if self._retracted and rng.random() < 0.3:
            old = rng.choice(self._retracted)
            return Retracted(old.partition, now, old.start, old.end, old.reporter, restored=True)
        kinds = (Decision, Reward) if rng.random() < 0.5 else Reward
        found = [record for record in records if isinstance(record.event, kinds)]
        if not found:
            return None
        record = rng.choice(found)
        if isinstance(record.event, Decision):
            return Erased(key_of(record.event.id), now)
        # What nobody's key has reported: in these runs, nearly all; to the microsecond, or not.
        end = record.recorded + rng.choice([1, 2, self._world.knobs.span])
        return Retracted(partition, now, record.recorded, end, "")
