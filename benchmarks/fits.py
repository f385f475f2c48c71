"""CPU time of the default estimator's fits per round, over the first rounds of a bandit.

A new bandit fits often: at every arrival at first, then whenever its rewards have grown by 5 %.
Rows have unit length and rewards depend on them, as in the problems used to choose the defaults.
Only the time within ``Learner.fit`` counts.

Run: python benchmarks/fits.py [--rounds 1500] [--repeats 5]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, Gaussian, Poisson
from belated.model import kernels
from belated.model.families import Family

TARGET = 40.0
ARMS = 10


def cost(dim: int, family: Family, rounds: int, seed: int) -> tuple[float, int]:
    """Return the microseconds per round within fits, and the number of fits."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=dim)
    theta *= 3.0 / np.linalg.norm(theta)
    bandit = Bandit(policy=DelayedUCB(dim, family), rewards=Explicit("7d"), seed=seed)
    learner = bandit._fold.learner
    spent: list[float] = []
    learner.fit = timed(learner.fit, spent)  # type: ignore[method-assign]
    for _ in range(rounds):
        rows = rng.normal(size=(ARMS, dim))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        decision = bandit.decide(rows=rows)
        mean = family.mean_and_slope(float(decision.x @ theta))[0]
        bandit.observe(decision.id, drawn(family, mean, rng))
    return sum(spent) / rounds * 1e6, len(spent)


def timed(act: Callable[[], None], spent: list[float]) -> Callable[[], None]:
    def fit() -> None:
        start = time.process_time()
        act()
        spent.append(time.process_time() - start)

    return fit


def drawn(family: Family, mean: float, rng: np.random.Generator) -> float:
    """Draw a reward with this mean."""
    if isinstance(family, Bernoulli):
        return float(rng.random() < mean)
    if isinstance(family, Poisson):
        return float(rng.poisson(mean))
    return float(mean + rng.normal())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    kernels.compiled()
    print(f"CPU µs a round within fits, {arguments.rounds} rounds, goal {TARGET:g} at d = 20")
    for dim in (20, 100):
        for family in (Bernoulli(), Poisson(), Gaussian()):
            results = [cost(dim, family, arguments.rounds, n) for n in range(arguments.repeats)]
            spent = [seconds for seconds, _ in results]
            print(
                f"d = {dim:3d} {type(family).__name__:9s} median {statistics.median(spent):6.1f}"
                f"  [{min(spent):.1f}, {max(spent):.1f}]  {results[0][1]} fits",
                flush=True,
            )


if __name__ == "__main__":
    main()
