"""Clients: they want decisions, tell what came of them, and try again until they are answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from belated.events import Activation, Reward, Void
from belated.families import Bernoulli, Gaussian
from tests.simulator.messages import (
    REFUSED,
    Answer,
    DecisionEvent,
    DecisionRequest,
    Request,
    Server,
)
from tests.simulator.schedule import DAY, HOUR, SECOND
from tests.simulator.world import World


class Client:
    """Wants some decisions while the world is active.

    Args:
        world: it lives in.
        name: of the client.
        servers: to ask, any of them.
    """

    def __init__(self, world: World, name: str, servers: Sequence[Server]) -> None:
        self._world = world
        self._name = name
        self._servers = servers
        self._rng = world.stream(name)
        family = world.knobs.policy.family
        third = 0.25 if isinstance(family, Bernoulli) else -1.5
        self._values = (0.0, 1.0, third if isinstance(family, Bernoulli | Gaussian) else 4.0)
        for number in range(world.knobs.decisions):
            when = self._rng.uniform(0, world.knobs.span)
            world.schedule.after(when, partial(self._want, number))

    # --- asking --------------------------------------------------------------------------------

    def _ask(self, what: Request, then: Callable[[Answer], None] | None = None) -> None:
        """Send until there is an answer; a few do not wait for one."""
        world, answered = self._world, False
        world.sent.append(what)

        def hear(answer: Answer) -> None:
            nonlocal answered
            world.trace_event(self._name, f"heard {_brief(answer)}: {what}")
            if answer != REFUSED:
                world.acknowledged.append((what, answer))
            if answer == "unmatched":
                world.faults.see("told before the decision")
            if not answered and then is not None:
                then(answer)
            answered = True

        def reply(answer: Answer) -> None:
            world.network.send(partial(hear, answer))

        def attempt(wait: float) -> None:
            if not answered:
                # Some are in a hurry, and ask two at once.
                for _ in range(self._rng.choice([1, 1, 1, 2])):
                    server = self._rng.choice(self._servers)
                    world.network.send(partial(server.receive, what, reply))
                if wait < math.inf:
                    world.schedule.after(wait, partial(attempt, min(2 * wait, DAY)))

        attempt(math.inf if self._rng.random() < 0.1 else 10 * SECOND)

    def _want(self, number: int) -> None:
        rng = self._rng
        name = rng.choice([f"{self._name}-{number}", f"shared-{number}", None, None])
        count = 1 if name or rng.random() < 0.7 else 3
        self._ask(DecisionRequest(name, count, activated=rng.random() < 0.8), self._decided)
        if name and rng.random() < 0.3:  # somebody knows the outcome before the decision is made
            self._outcome(name)

    # --- telling -------------------------------------------------------------------------------

    def _decided(self, answer: Answer) -> None:
        assert not isinstance(answer, str)
        for decision in answer:
            if not decision.activated and self._rng.random() < 0.8:
                self._later(Activation(decision.id, self._now()))
            if self._rng.random() < 0.8:
                self._outcome(decision.id)

    def _outcome(self, id: str) -> None:
        """What is told of a decision in the end: plainly, in half of all cases."""
        rng, at = self._rng, self._now()
        value, other = rng.choice(self._values), rng.choice(self._values)
        plain = Reward(id, at, value)
        told: list[list[DecisionEvent]] = [
            [plain],
            [Reward(id, at, other, "click"), plain],  # in parts
            [plain, Reward(id, at, other, revision=1)],  # corrected
            [plain, Reward(id, at, other, revision=2), Reward(id, at, value, revision=1)],
            [plain, Reward(id, at + 1, value)],  # again
            [plain, Reward(id, at, other)],  # contradicted
            [plain, Void(id, at)],
            [Reward(id, at, rng.choice([math.nan, -7e300]))],
        ]
        for one in rng.choice(told) if rng.random() < 0.5 else told[0]:
            self._later(one)

    def _later(self, what: DecisionEvent) -> None:
        delay = self._rng.choice([0.01, 0.3, 2.0]) * self._rng.expovariate(1.0)
        far = HOUR * self._rng.choice([0, 0, 0, 30])
        self._world.schedule.after(delay * self._world.knobs.span + far, partial(self._ask, what))

    def _now(self) -> int:
        return self._world.schedule.now + self._rng.randint(-5, 5) * SECOND


def _brief(answer: Answer) -> object:
    return answer if isinstance(answer, str) else [(one.id, one.index) for one in answer]
