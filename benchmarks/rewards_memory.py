"""Memory that a learner needs for rewards, from 10⁶ to 10⁷ of them: constant with a retention.

Rewards are learned in pages, as by a learner that catches up, in 4 partitions; each is forgotten
100,000 rewards later, as with a retention. Resident memory of the process, the bytes of a snapshot
of the statistics, and the number of stored rows are printed after each tenth; then CPU time per
reward. Each family runs in a separate process.

Run: python benchmarks/rewards_memory.py [--rewards 10000000] [--dim 20]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import subprocess
import sys
import time
from collections import deque

import numpy as np
from resident_memory import resident

from belated import Bernoulli, DelayedUCB, Gaussian, Poisson
from belated.fold.learner import Learner
from belated.model.families import Family

PARTITIONS, PAGE, REMEMBERED = 4, 10_000, 10
FAMILIES: dict[str, Family] = {
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "gaussian": Gaussian(),
}


def measure(name: str, rewards: int, dim: int) -> None:
    family, rng = FAMILIES[name], np.random.default_rng(0)
    theta = rng.normal(size=dim) / np.sqrt(dim)
    learner = Learner(DelayedUCB(dim, family), partitions=PARTITIONS)
    remembered: deque[tuple[int, range]] = deque()
    nothing = np.empty((0, dim), np.float32), np.empty(0), np.empty(0, np.int64)
    unused, old = (np.zeros(PAGE), np.zeros(PAGE, np.int64)), np.zeros(PAGE, np.bool_)
    spent = 0.0
    print(f"{name}, d = {dim}: megabytes resident, of a snapshot, and thousands of rows kept")
    for count in range(PAGE, rewards + 1, PAGE):
        rows = rng.standard_normal((PAGE, dim), dtype=np.float32)
        y = family.sample(rows @ theta, rng)
        partition = count // PAGE % PARTITIONS
        start = time.process_time()
        first = learner.next_handle(partition)
        remembered.append((partition, range(first, first + PAGE)))
        if len(remembered) > REMEMBERED:
            before, handles = remembered.popleft()
            for handle in handles:
                learner.forget(handle, before)
        learner.is_bulk = True  # as in a catch-up, which ends with a fit: here it never ends
        learner.learn_page(PAGE, nothing, (rows, *unused), (y, unused[1]), old, partition)
        spent += time.process_time() - start
        if count % (rewards // 10) == 0:
            pieces = [learner.pack(partition) for partition in range(PARTITIONS)]
            stored = sum(len(data) for part in pieces for data in part.values())
            outcomes = (
                sum(len(part[key]) for part in pieces for key in part if key[:2] == "y ") // 8
            )
            del pieces
            print(
                f"  {count:>10,}: {resident() / 1e6:6.0f} {stored / 1e6:6.1f} {outcomes / 1e3:6.0f}"
            )
    print(f"  {1e6 * spent / rewards:.2f} µs of CPU time a reward, freezing included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewards", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--family", choices=FAMILIES, help="this one only")
    arguments = parser.parse_args()
    if arguments.family:
        measure(arguments.family, arguments.rewards, arguments.dim)
        return
    for family in FAMILIES:
        command = [sys.executable, __file__, "--family", family]
        command += ["--rewards", str(arguments.rewards), "--dim", str(arguments.dim)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
