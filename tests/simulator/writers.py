"""Processes without a bandit: they write whatever they are told, and look at nothing."""

from __future__ import annotations

from functools import partial

from belated.events import Decision, Event
from tests.simulator.messages import DecisionRequest, Reply, Request, rows_of
from tests.simulator.schedule import SECOND
from tests.simulator.store import Transaction
from tests.simulator.world import World


class Writer:
    """Keeps its transactions open for a while: those of others overtake them.

    Args:
        world: it lives in.
        name: of the process.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._rng = world.stream(name)
        self._clock = world.clock(name)

    def receive(self, what: Request, reply: Reply) -> None:
        """Write what is told, twice now and then; or a decision, whether or not there is one."""
        world, rng = self._world, self._rng
        if not world.store.reachable:
            return
        if not isinstance(what, DecisionRequest):
            self._write([what] * rng.choice([1, 1, 1, 2]), reply)
        elif what.name is not None and rng.random() < 0.3:
            x = rows_of(what.name, world.knobs.policy.dim)[1]
            rival = Decision(what.name, self._clock(), 1, 1, x, 0.5, 0.5, 0, what.activated)
            world.sent.append(rival)
            self._write([rival])

    def _write(self, events: list[Event], reply: Reply | None = None) -> None:
        world = self._world
        (begun,) = world.store.begin(events)
        if world.faults.strike("event of a newer release"):  # which others cannot read yet
            for place in [(begun.partition, position) for position in begun.positions]:
                world.store.veiled[place] = "newer"
                upgraded = partial(world.store.veiled.pop, place, None)
                world.schedule.after(self._rng.expovariate(5 / world.knobs.span), upgraded)
        idle = world.faults.strike("transaction idle")
        wait = self._rng.expovariate(3 / world.knobs.span if idle else 1 / SECOND)
        world.schedule.after(wait, partial(self._finish, begun, reply))

    def _finish(self, begun: Transaction, reply: Reply | None) -> None:
        store = self._world.store
        if self._world.faults.strike("transaction aborted"):
            store.give_up(begun)
        if store.sync(begun) and reply is not None:
            reply("written")
        self._world.trace_event(self._name, f"{begun.partition} {begun.positions} {begun.state}")
