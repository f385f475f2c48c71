"""CPU time of decide + observe with ``half_life="auto"``, as a ratio to that without it.

Both bandits have journals in memory, choose one of K rows and use the default estimator; rewards
arrive at once, or 2,000 decisions late. Slices of rounds alternate; prints the median of the ratios
of neighbouring slices, with its 95 % interval. A round with "auto" also predicts with each
half-life, weighs those predictions and fits the candidates.

Run: python benchmarks/forgetting.py [--slices 40] [--sizes 20x10 100x100]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
import warnings
from collections import deque
from collections.abc import Callable

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.model import kernels

TARGET = 1.5
LATE = 2_000
#: Rounds of a slice, and rounds before the first, which exclude early fits.
SLICE, WARM = 200, 3_000


def rounds(half_life: str | None, arms: int, dim: int, late: int, using: kernels.Kernels) -> Step:
    """Return a function that plays rounds of a bandit."""
    policy = DelayedUCB(dim, Bernoulli(), half_life=half_life)
    clock = iter(range(1_700_000_000_000_000, 2_000_000_000_000_000, 500_000))
    bandit = Bandit(
        policy=policy,
        rewards=Explicit(),
        seed=0,
        kernels=using,
        keep_requests=0.0,
        clock=lambda: next(clock),
    )
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(64, arms, dim))
    tables /= np.linalg.norm(tables, axis=2, keepdims=True)
    theta = rng.normal(size=dim)
    theta *= 3.0 / np.linalg.norm(theta)
    waiting: deque[tuple[str, float]] = deque()
    tables = tables.astype(np.float32)

    def play(count: int) -> None:
        for n in range(count):
            decision = bandit.decide(rows=tables[n % 64])
            mean = 1.0 / (1.0 + np.exp(-decision.x @ theta))
            waiting.append((decision.id, float(rng.random() < mean)))
            if len(waiting) > late:
                bandit.observe(*waiting.popleft())

    return play


Step = Callable[[int], None]


def measure(arms: int, dim: int, late: int, using: kernels.Kernels, slices: int) -> None:
    plays = [rounds(half_life, arms, dim, late, using) for half_life in (None, "auto")]
    seconds: list[list[float]] = [[], []]
    for play in plays:
        play(WARM + late)
    for n in range(slices):
        for index in (0, 1) if n % 2 else (1, 0):
            start = time.thread_time()
            plays[index](SLICE)
            seconds[index].append((time.thread_time() - start) / SLICE)
    ratios = np.array(seconds[1]) / np.array(seconds[0])
    draws = np.random.default_rng(1).choice(ratios, size=(2_000, slices))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    kind = "compiled" if using is not kernels.plain() else "plain"
    ratio = float(np.median(ratios))
    verdict = "within" if ratio <= TARGET else "above"
    print(
        f"{arms}x{dim} {kind:8} rewards {late:5} late:"
        f" none {1e6 * np.median(seconds[0]):6.1f} us, auto {1e6 * np.median(seconds[1]):6.1f} us,"
        f" ratio {ratio:.2f} [{low:.2f}, {high:.2f}], {verdict} {TARGET}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=40)
    parser.add_argument("--sizes", nargs="*", default=["20x10", "100x100"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for size in arguments.sizes:
        arms, dim = map(int, size.split("x"))
        for using in (kernels.plain(), kernels.compiled()):
            for late in (0, LATE):
                measure(arms, dim, late, using, arguments.slices)


if __name__ == "__main__":
    main()
