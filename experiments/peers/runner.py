"""Play the rounds of a problem with one peer; runs inside the peer's own environment.

Reads a task as JSON from standard input and writes a JSON line for each of its cells: the final
regret and the CPU seconds spent in the peer's calls. What a peer needs beforehand (its text, its
dictionaries) is made outside the clock.

The reward of round s, delayed by D_s, is learned before the choice of round t if and only if
s + D_s <= t - 1. All that arrive before one choice are given together, in the order of s.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from typing import Any

import numpy as np
from adapters import Adapter, Arrival


def play(adapter: Adapter, problem: Any, delay: str) -> dict[str, float]:
    offered = problem["offered"].astype(float)
    offered.flags.writeable = False  # as in simulate: some keep the rows they are given
    means, uniform = problem["means"], problem["uniform"]
    horizon = len(means)
    arrivals: dict[int, list[int]] = {}
    for s, wait in enumerate(problem[delay].tolist()):
        if s + wait + 1 < horizon:
            arrivals.setdefault(s + wait + 1, []).append(s)
    out: dict[int, Arrival] = {}
    regret = seconds = 0.0
    for t in range(horizon):
        offer = adapter.prepare(offered[t])
        came = [out.pop(s) for s in arrivals.pop(t, ())]
        start = time.process_time()
        if came:
            adapter.learn(came)
        index, note = adapter.choose(offer)
        seconds += time.process_time() - start
        reward = float(uniform[t] < means[t, index])
        out[t] = Arrival(offer, index, note, reward)
        regret += means[t].max() - means[t, index]
    return {"regret": regret, "cpu_seconds": seconds}


def main() -> None:
    warnings.simplefilter("ignore")  # a peer's own deprecations: nobody reads them here
    task = json.load(sys.stdin)
    learner = getattr(importlib.import_module(f"adapters.{task['peer']}"), task["learner"])
    for file, seed, delay in task["cells"]:
        problem = dict(np.load(file))
        arms, dim = problem["means"].shape[1], problem["offered"].shape[-1]
        shared = problem["offered"].ndim == 3
        adapter = learner(arms, dim, shared, seed, **task["settings"])
        print(json.dumps(play(adapter, problem, delay)), flush=True)


if __name__ == "__main__":
    main()
