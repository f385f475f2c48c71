"""Features that change while a bandit runs: releases, and the rows that each makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from belated.core.events import Decision
from belated.core.inputs import Row
from belated.features import Category, Number, PerArm
from belated.fold.contexts import NAME, name_of, pack_context
from tests.simulator.settings import stream
from tests.simulator.world import World, rows_of

AGE, COUNTRY, VISITS = Number(18, 90), Category(["AT", "DE"]), Number(1, 80, log=True)
#: Fields are added, dropped and encoded differently; actions are added, renamed and removed.
FIRST = PerArm(["mail", "call", "visit"], context={"age": AGE, "country": COUNTRY})
RELEASES = (
    FIRST,
    replace(FIRST, context={"age": AGE, "country": COUNTRY, "visits": VISITS}),
    replace(FIRST, context={"country": COUNTRY}),
    replace(FIRST, context={"age": Number(0, 50), "country": Category(["FR", "AT", "DE"])}),
    FIRST.with_actions(["none"]),
    replace(FIRST, actions=["none", "mail", "call", "visit"]),
    replace(FIRST, actions=["mail", "phone", "visit"], renamed={"call": "phone"}),
    replace(FIRST, actions=["visit", "mail"]),
)


def context_of(key: str) -> dict[str, Any]:
    """Return the context of a request: that of a retry is the same.

    >>> sorted(context_of("order-17"))
    ['age', 'country', 'visits']
    """
    rng = stream(0, key)
    return {
        "age": rng.uniform(10, 95),
        "country": rng.choice(["AT", "DE", "FR"]),
        "visits": rng.choice([None, rng.randrange(1, 90)]),
    }


def offered(key: str, features: object, dim: int) -> dict[str, Any]:
    """Return the offer for a key, by argument: rows, or the context for features."""
    return {"rows": rows_of(key, dim)} if features is None else {"context": context_of(key)}


def row_of(features: Any, decision: Decision) -> Row | None:
    """Return the row that features make of the data of a decision; None if they make none."""
    if features is None:
        return decision.x
    context, _ = msgspec.msgpack.decode(decision.context[NAME:])
    action = features.renamed.get(decision.action, decision.action)
    if action not in features.actions:
        return None
    row: Row = features.rows(dict.fromkeys(["age", "country", "visits"]) | context, [action])[0]
    return row


def decision_of(
    features: PerArm, id: str, at: int, key: str, place: int, *, activated: bool = True
) -> Decision:
    """Return a decision as another program appends it, with a context that lacks unread fields."""
    assert isinstance(features.context, dict)
    context = {name: value for name, value in context_of(key).items() if name in features.context}
    packed = pack_context(context, features.actions)
    assert packed is not None
    x = features.rows(context, features.actions)[place]
    made_of = name_of(features.fingerprint) + packed.of_decision(place)
    action = features.actions[place]
    return Decision(id, at, action, place, x, 0.5, 0.5, 0, activated, context=made_of)


class Process(Protocol):
    """It runs with the features that were current when it started."""

    def kill(self) -> None:
        """End the process; it starts again by itself."""


class ReleaseManager:
    """Replaces the features, or rolls them back, and has processes restart one after the other.

    Args:
        world: it lives in.
        processes: returns those that use the features.
    """

    def __init__(self, world: World, processes: Callable[[], Sequence[Process]]) -> None:
        self._world = world
        self._processes = processes
        self._rng = world.stream("releases")
        self._before = RELEASES[0]
        world.features = FIRST
        world.schedule.after(self._pause(), self._release)

    def _pause(self) -> float:
        return self._rng.expovariate(3 / self._world.settings.span)

    def _release(self) -> None:
        world, rng = self._world, self._rng
        if not world.active:
            return
        current = world.features
        is_rollback = self._before is not current and rng.random() < 0.4
        release = self._before if is_rollback else rng.choice(RELEASES)
        if release is not current:
            assert current is not None
            self._before, world.features = current, release
            world.faults.see("features rolled back" if is_rollback else "features changed")
            world.trace_event("the release manager", release)
            for process in self._processes():  # some stay behind until they die by themselves
                if rng.random() < 0.7:
                    world.schedule.after(self._pause() / 10, process.kill)
        world.schedule.after(self._pause(), self._release)
