"""Rounds for speed.py, a slice at a time; runs inside the peer's own environment.

Reads a task as JSON from the first line of standard input. Then each line is the number of rounds
of a slice, or 0 to begin again with a learner that knows nothing; the answer is the CPU seconds.
A round: choose one of K rows, learn its reward.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
import warnings

import numpy as np
from adapters import Arrival

#: Tables of rows, which come again and again; few enough to stay in the cache, as rows that were
#: just made are.
TABLES = 8


def main() -> None:
    warnings.simplefilter("ignore")
    task = json.loads(sys.stdin.readline())
    arms, dim = task["arms"], task["dim"]
    learner = getattr(importlib.import_module(f"adapters.{task['peer']}"), task["learner"])
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(TABLES, arms, dim))
    tables /= np.linalg.norm(tables, axis=2, keepdims=True)
    tables.flags.writeable = False
    theta = rng.normal(size=dim)
    means = (1.0 / (1.0 + np.exp(-3.0 * tables @ theta / np.linalg.norm(theta)))).tolist()
    for line in sys.stdin:
        rounds = int(line)
        if not rounds:
            adapter = learner(arms, dim, True, 0, **task["settings"])
            offers = itertools.cycle(zip(map(adapter.prepare, tables), means, strict=True))
        uniform = rng.random(rounds).tolist()
        start = time.process_time()
        for u, (offer, mean) in zip(uniform, offers, strict=False):
            index, note = adapter.choose(offer)
            adapter.learn([Arrival(offer, index, note, float(u < mean[index]))])
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
