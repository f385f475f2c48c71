"""One run against a service: the rounds of :func:`belated.simulate`, with decisions over HTTP."""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from typing import Any

import numpy as np

from belated.delays import NEVER, DelayProcess
from belated.environments import Environment


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
    contexts, luck, waits, _ = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)
    )
    uniform = luck.random(horizon)
    arrivals: dict[int, list[int]] = {}
    for s, wait in enumerate(delay.sample(horizon, waits).tolist()):
        if wait != NEVER:
            arrivals.setdefault(s + wait + 1, []).append(s)
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    path = f"/v1/{bandit}"
    told: list[dict[str, Any]] = []
    regret, start = 0.0, time.monotonic()
    for t, (rows, means) in enumerate(world.rounds(horizon, contexts)):
        time.sleep(max(0.0, start + t * pace - time.monotonic()))
        came = [told[s] for s in arrivals.pop(t, ())]
        for at in range(0, len(came), 1000):
            _ask(connection, f"{path}/rewards/batch", {"rewards": came[at : at + 1000]}, 202)
        chosen = _ask(connection, f"{path}/decisions", {"rows": rows.tolist()}, 201)
        mean = float(means[chosen["index"]])
        told.append({"id": chosen["id"], "value": world.reward(mean, float(uniform[t]))})
        regret += float(means.max()) - mean
    connection.close()
    return regret


def _ask(connection: HTTPConnection, path: str, body: object, expected: int) -> Any:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != expected:
        raise RuntimeError(f"{path}: {answer.status} {data[:200]!r}")
    return json.loads(data)
