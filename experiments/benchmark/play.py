"""Play the rounds of problems with one entry; runs inside the library's own environment.

Reads a task as JSON from standard input and writes a JSON line for each of its cells: the final
regret and the CPU seconds spent in the library's calls. Conversions that a library needs (text,
dictionaries) are not timed. All rewards that arrive before a choice are passed together, in the
order of their decisions.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from typing import Any

import numpy as np
from adapters import Adapter, Arrival, Problem


def play(adapter: Adapter, file: Any, delay: str) -> dict[str, float]:
    offered = file["offered"].astype(float)
    offered.flags.writeable = False  # some libraries keep references to the rows they are given
    means, uniform, noise = file["means"], file["uniform"], file.get("noise")
    waits = file[f"delay: {delay}"]
    horizon = len(means)
    arrivals: dict[int, list[tuple[int, Arrival]]] = {}
    regret = seconds = 0.0
    for t in range(horizon):
        offer = adapter.prepare(offered[t])
        arrived = sorted(arrivals.pop(t, ()), key=_round)
        start = time.process_time()
        if arrived:
            adapter.learn([arrival for _, arrival in arrived])
        index, note = adapter.choose(offer)
        seconds += time.process_time() - start
        mean = means[t, index]
        reward = float(uniform[t] < mean) if noise is None else float(mean + noise[t])
        wait = int(waits[t] if waits.ndim == 1 else waits[t, index])
        arrivals.setdefault(t + wait + 1, []).append((t, Arrival(offer, index, note, reward)))
        regret += means[t].max() - mean
    return {"regret": round(float(regret), 2), "cpu_seconds": round(seconds, 3)}


def _round(arrival: tuple[int, Arrival]) -> int:
    return arrival[0]


def main() -> None:
    warnings.simplefilter("ignore")  # deprecation warnings of the library
    task = json.load(sys.stdin)
    module, name = task["learner"].split(":")
    learner = getattr(importlib.import_module(f"adapters.{module}"), name)
    for path, seed, delay in task["cells"]:
        file = dict(np.load(path))
        problem = Problem(
            arms=file["means"].shape[1],
            dim=file["offered"].shape[-1],
            shared=file["offered"].ndim == 3,
            numbers="noise" in file,
            seed=seed,
        )
        print(json.dumps(play(learner(problem, **task["settings"]), file, delay)), flush=True)


if __name__ == "__main__":
    main()
