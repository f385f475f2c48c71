"""How often 95 % intervals of coefficients hold them, after 2,000 rounds of DelayedUCB.

Ten features, geometric delays of mean 100. The rewards of each run are fitted with the prior that
the policy estimates, with the mean corrected for skewness, with the square of the estimated
precision, and with fixed precisions. Prints a table, each figure beside its goal.

Run: python -m experiments.coverage.intervals [SEEDS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from belated import Bernoulli, DelayedUCB, delays, environments, simulate
from belated.estimators import Estimate, Laplace
from belated.inputs import Vector
from belated.priors import Prior
from belated.statistics import Seen

HORIZON, DIM = 2_000, 10
FAMILY = Bernoulli()
LAW = delays.Geometric(mean=100)
#: Half the width of an interval, and the square of the radius of the ellipsoid, in deviations.
HALF, RADIUS = 1.959964, 18.307
#: Problems: how rows are offered, the length of θ*, and what is asked of the intervals.
PROBLEMS = {
    ("fixed", 8.0): "at least .92",
    ("fixed", 3.0): "as before",
    ("fixed", 1.0): "as before",
    ("fresh", 8.0): "at least .93",
    ("fresh", 3.0): "as before",
    ("fresh", 1.0): "as before",
}
#: What may lie below the estimated precision at the least.
LEAST = 0.02


def estimates(seen: Seen) -> Iterator[tuple[str, Vector, Estimate]]:
    """Ways to fit the same rewards: the name, the centre of the intervals, and the estimate."""
    found = Laplace(mean_correction=True).fit(seen, family=FAMILY, prior=Prior.ridge(DIM, "auto"))
    yield "estimated", found.theta, found
    yield "estimated, mean corrected", found.mean, found
    squared = max(float(found.prior.precision[0, 0]) ** 2, LEAST)
    for name, ridge in (("estimated, squared", squared), ("0.1", 0.1), ("0.02", 0.02)):
        fitted = Laplace().fit(seen, family=FAMILY, prior=Prior.ridge(DIM, ridge))
        yield name, fitted.theta, fitted


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 7_000
    warnings.simplefilter("ignore")
    print(f"{HORIZON} rounds, {count} seeds from {first}")
    print("| rows | θ* | prior precision | coordinates | ellipsoid | deviation | goal |")
    print("|---|--:|---|--:|--:|--:|---|")
    for (rows, norm), goal in PROBLEMS.items():
        held = defaultdict(list)
        for seed in range(first, first + count):
            world = getattr(environments, rows)(seed, norm=norm)
            trace = simulate(DelayedUCB(DIM, FAMILY), world, LAW, horizon=HORIZON, seed=seed)
            for name, centre, found in estimates(trace.learner.observed):
                error, deviation = centre - world.theta, np.sqrt(np.diag(found.covariance))
                inside = float((np.abs(error) <= HALF * deviation).mean())
                within = float(error @ found.precision @ error <= RADIUS)
                held[name].append((inside, within, float(deviation.mean())))
        for name, lines in held.items():
            inside, within, width = np.array(lines).T
            share = f"{inside.mean():.3f} ± {inside.std() / count**0.5:.3f}"
            cells = f"{share} | {within.mean():.2f} | {width.mean():.2f} | {goal}"
            print(f"| {rows} | {norm:g} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
