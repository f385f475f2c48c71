"""One run against a service: the rounds of :func:`belated.simulate`, with decisions over HTTP."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from belated.delays import NEVER, DelayProcess
from belated.simulation.environments import Environment
from experiments.serving import Caller


def play(
    port: int,
    bandit: str,
    world: Environment,
    delay: DelayProcess,
    *,
    horizon: int,
    seed: int,
    pace: float,
) -> float:
    """The regret after ``horizon`` rounds, which begin ``pace`` seconds after each other.

    Contexts, luck and delays come from the same streams of the seed as in a simulation.
    """
    contexts, luck, waits, _ = streams(seed)
    uniform = luck.random(horizon)
    arrivals = arrivals_of(delay, horizon, waits)
    caller, path = Caller(port), f"/v1/{bandit}"
    rewards: list[dict[str, Any]] = []
    regret, start = 0.0, time.monotonic()
    for t, (rows, means) in enumerate(world.rounds(horizon, contexts)):
        time.sleep(max(0.0, start + t * pace - time.monotonic()))
        arrived = [rewards[s] for s in arrivals.pop(t, ())]
        for at in range(0, len(arrived), 1000):
            caller.tell("POST", f"{path}/rewards/batch", {"rewards": arrived[at : at + 1000]})
        chosen = caller.tell("POST", f"{path}/decisions", {"rows": rows.tolist()})
        mean = float(means[chosen["index"]])
        rewards.append({"id": chosen["id"], "value": world.reward(mean, float(uniform[t]))})
        regret += float(means.max()) - mean
    caller.close()
    return regret


def streams(seed: int) -> list[np.random.Generator]:
    """Of contexts, luck, delays, and a player's own draws, as in a simulation."""
    return [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)]


def arrivals_of(
    delay: DelayProcess, horizon: int, rng: np.random.Generator
) -> dict[int, list[int]]:
    """By round, the rounds whose rewards are there from it on."""
    arrivals: dict[int, list[int]] = {}
    for s, wait in enumerate(delay.sample(horizon, rng).tolist()):
        if wait != NEVER:
            arrivals.setdefault(s + wait + 1, []).append(s)
    return arrivals
