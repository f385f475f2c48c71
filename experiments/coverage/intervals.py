"""How often 95 % intervals of coefficients hold them, after 2,000 rounds of DelayedUCB.

Ten features, geometric delays of mean 100. The intervals are those that ``bandit.estimate`` shows,
over all that the prior's precision may be; beside them those given its estimate, and given fixed
precisions. Writes ``table.md``, each figure beside its goal.

Run: python -m experiments.coverage.intervals [SEEDS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from belated import Bernoulli, DelayedUCB, delays, environments, simulate
from belated.core.inputs import Matrix, Vector
from belated.model.estimators import Laplace
from belated.model.priors import Prior
from belated.model.statistics import Seen

HERE = Path(__file__).parent
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


def intervals(seen: Seen) -> Iterator[tuple[str, Vector, Matrix]]:
    """Ways to fit the same rewards: the name, the centre of the intervals, and the covariance."""
    estimate = Laplace().fit(seen, family=FAMILY, prior=Prior.ridge(DIM, "auto"))
    yield "integrated (shown)", estimate.mean, estimate.covariance
    yield "estimated", estimate.theta, np.linalg.inv(estimate.precision)
    for ridge in (1.0, 0.1):
        fitted = Laplace().fit(seen, family=FAMILY, prior=Prior.ridge(DIM, ridge))
        yield f"{ridge:g}", fitted.mean, fitted.covariance


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 21_000
    warnings.simplefilter("ignore")
    lines = [
        f"{HORIZON:,} rounds, {count} seeds from {first}.",
        "",
        "| rows | θ* | prior precision | coordinates | ellipsoid | deviation | goal |",
        "|---|--:|---|--:|--:|--:|---|",
    ]
    for (rows, norm), goal in PROBLEMS.items():
        results = defaultdict(list)
        for seed in range(first, first + count):
            world = getattr(environments, rows)(seed, norm=norm)
            trace = simulate(DelayedUCB(DIM, FAMILY), world, LAW, horizon=HORIZON, seed=seed)
            for name, centre, covariance in intervals(trace.learner.observed):
                error, deviation = centre - world.theta, np.sqrt(np.diag(covariance))
                inside = float((np.abs(error) <= HALF * deviation).mean())
                within = float(error @ np.linalg.solve(covariance, error) <= RADIUS)
                results[name].append((inside, within, float(deviation.mean())))
        for name, values in results.items():
            inside, within, width = np.array(values).T
            share = f"{inside.mean():.3f} ± {inside.std() / count**0.5:.3f}"
            target = goal if "shown" in name else ""
            cells = f"{share} | {within.mean():.2f} | {width.mean():.2f} | {target}"
            lines.append(f"| {rows} | {norm:g} | {name} | {cells} |")
            print(lines[-1], flush=True)
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
