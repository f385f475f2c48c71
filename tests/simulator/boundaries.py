"""Who writes when a window or a retention ends: to the microsecond, one before, or one after."""

from __future__ import annotations

from functools import partial

from belated.events import Decision, Event, Reward, Settled, Void
from belated.rewards import retention_us
from tests.simulator.checks import check_oracle, replayed
from tests.simulator.world import World


class BoundaryWriter:
    """Looks for decisions, and writes when their time is over: to the microsecond.

    Args:
        world: it lives in.
    """

    def __init__(self, world: World) -> None:
        knobs = world.knobs
        self._world = world
        self._rng = world.stream("boundaries")
        window, retention = knobs.rewards.window_us, retention_us(knobs.retention, knobs.rewards)
        self._spans = [span for span in (window, retention) if span is not None]
        self._seen: set[tuple[int, int]] = set()
        if self._spans:
            world.schedule.after(0, self._look)

    def _look(self) -> None:
        world, rng = self._world, self._rng
        if not world.active:
            return
        for partition in range(world.knobs.partitions):
            for record in world.store.records(partition):
                place = partition, record.position
                if isinstance(record.event, Decision) and place not in self._seen:
                    self._seen.add(place)
                    if rng.random() < 0.9:
                        self._aim(record.event.id, partition, record.recorded)
        world.schedule.after(rng.expovariate(20 / world.knobs.span), self._look)

    def _aim(self, id: str, partition: int, recorded: int) -> None:
        """Write something of a decision when its window or retention ends."""
        world, rng = self._world, self._rng
        when = recorded + rng.choice(self._spans) + rng.choice([-1, 0, 0, 1])
        wait = when - world.store.now()
        value = rng.choice([0.0, 1.0])
        told: list[Reward | Void] = [Reward(id, when, value)] * 2 + [Void(id, when)]
        event = rng.choice(told)
        world.sent.append(event)
        if rng.random() < 0.5:  # settled at that moment, in either order
            both: list[Event] = [Settled(partition, when), event]
            rng.shuffle(both)
        else:
            both = [event]
        if wait >= 0:
            world.schedule.after(wait, partial(self._write, both))

    def _write(self, events: list[Event]) -> None:
        store = self._world.store
        if store.reachable and not store.is_busy:
            for one in store.begin(events):
                store.sync(one)
            self._world.trace_event("the boundary writer", events)
            if isinstance(events[0], Settled):  # the rules hold at this very moment too
                partitions = range(self._world.knobs.partitions)
                replay = replayed(self._world, [store.end(one) for one in partitions])
                check_oracle(replay, [store.records(one) for one in partitions])
