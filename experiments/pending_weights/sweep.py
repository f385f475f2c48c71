"""Do weights frozen at the choice cost anything?

The information of a pending decision is counted with the slope at its predicted mean when it was
chosen, so that it adds. The alternative looks at every pending decision again at each fit, and
counts it with the slope at the current estimate. This runs both on the same problems, contexts,
luck and delays, and prints the paired difference in regret.

Run: python -m experiments.pending_weights.sweep [--seeds 40]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
from collections import Counter
from typing import Any

import joblib
import numpy as np
from tqdm import tqdm

from belated import DelayedUCB, delays, environments, simulate
from belated.core.inputs import Vector
from belated.fold import fold
from belated.fold.learner import Learner
from belated.model.statistics import Information

HORIZON = 10_000
WORLDS = {"fixed": environments.fixed, "users": environments.users}
DELAYS = {
    "geo100": delays.Geometric(mean=100),
    "geo1000": delays.Geometric(mean=1000),
    "batch1000": delays.Batched(1000),
}


class Recomputing(Learner):
    """Counts every pending decision with its current weight, at each fit and renewal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.out: Counter[tuple[bytes, float]] = Counter()  # rows repeat, so they are counted

    def add_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        self.out[x.tobytes(), weight] += 1
        super().add_pending(x, weight, began)

    def learn(self, x: Vector, y: float, weight: float, *more: Any) -> int:
        self.out[x.tobytes(), weight] -= 1
        return super().learn(x, y, weight, *more)

    def fit(self) -> None:
        super().fit()
        counts = {key: count for key, count in self.out.items() if count}
        self.out = Counter(counts)
        if counts:
            rows = np.array([np.frombuffer(row) for row, _ in counts])
            slopes = self.policy.family.slope(rows @ self.model.theta)
            weights = slopes * np.array(list(counts.values()))
            observed = self.weighting.observed
            assert observed is not None
            self.model.renew(observed, observed + Information.of(rows, weights).matrix)


def run(world: str, wait: str, seed: int) -> tuple[str, str, float, float]:
    regret = []
    for learner in (Learner, Recomputing):
        fold.Learner = learner  # type: ignore[misc]
        problem = WORLDS[world](seed)
        policy = DelayedUCB(problem.dim, problem.family)
        trace = simulate(policy, problem, DELAYS[wait], horizon=HORIZON, seed=seed)
        regret.append(float(trace.regret[-1]))
    return world, wait, regret[0], regret[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = range(1000, 1000 + parser.parse_args().seeds)
    cells = list(itertools.product(WORLDS, DELAYS, seeds))
    runs = joblib.Parallel(n_jobs=-1, return_as="generator_unordered")(
        joblib.delayed(run)(*cell) for cell in cells
    )
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for world, wait, frozen, recomputed in tqdm(runs, total=len(cells), unit="pair"):
        results.setdefault((world, wait), []).append((frozen, recomputed))
    print(f"regret after {HORIZON} rounds, {len(seeds)} paired seeds, mean ± standard error")
    print("| problem | delay | frozen | recomputed | frozen - recomputed | t |")
    print("|---|---|--:|--:|--:|--:|")
    for world, wait in itertools.product(WORLDS, DELAYS):
        pair = np.array(results[world, wait])
        difference = pair[:, 0] - pair[:, 1]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        means = pair.mean(axis=0)
        print(
            f"| {world} | {wait} | {means[0]:.0f} | {means[1]:.0f} |"
            f" {difference.mean():+.1f} ± {error:.1f} | {difference.mean() / error:+.1f} |"
        )


if __name__ == "__main__":
    main()
