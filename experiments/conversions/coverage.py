"""Coverage of 95 % intervals from conversions, when the first window ends and at other times.

n decisions, one per round, d = 4, Exp(W/4) delays cut off at W = 1,000; one fit for each, and
whether the linear predictors of six new rows are within their intervals: by the sandwich estimator,
which includes the uncertainty of F, and by Σ F g' x xᵀ alone, on the same data. Writes
``coverage.md``.

Run: python -m experiments.conversions.coverage [--repetitions 500]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import math
from pathlib import Path

import numpy as np

from belated import Bernoulli
from belated.model.estimators.conversion_law import Conversions
from belated.model.estimators.thinned import AgedDecisions, DecidedRows, Thinned
from belated.model.priors import Prior

HERE = Path(__file__).parent
FIRST, WINDOW, DIM, RIDGE = 80_000, 1_000, 4, 0.1
#: The base rate, the number of decisions in windows, and the goal for the coverage.
CASES = [(-3.5, 1.0), (0.0, 1.0), (1.0, 1.0), (-3.5, 2.0), (1.0, 2.0)]
LEAST, MOST, APART = 0.92, 0.975, 0.03


def covered(base: float, windows: float, seed: int) -> tuple[float, float, float]:
    """Return shares of six rows within their intervals, by both covariances; predicted / true."""
    rng = np.random.default_rng([FIRST, seed])
    n = int(windows * WINDOW)
    theta = np.array([base, 0.6, -0.4, 0.3])
    rows = np.column_stack([np.ones(n), 0.6 * rng.normal(size=(n, DIM - 1))]).astype(np.float32)
    chance = 1.0 / (1.0 + np.exp(-rows @ theta))
    rate = 4.0
    delay = -np.log1p(rng.random(n) * math.expm1(-rate)) / rate
    age = (n - np.arange(n)) / WINDOW
    here = (rng.random(n) < chance) & (delay <= age)
    seen = Conversions(delay[here], np.zeros(int(here.sum())), np.minimum(age[here], 1.0))
    data = AgedDecisions((DIM,), [DecidedRows(rows, here.astype(np.float64), age)], seen)
    estimate = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(DIM, RIDGE))
    x = rows.astype(np.float64)
    g = 1.0 / (1.0 + np.exp(-x @ estimate.theta))
    bread = RIDGE * np.eye(DIM) + (x * (estimate.law.at(age) * g * (1.0 - g))[:, None]).T @ x
    new = np.column_stack([np.ones(6), 0.6 * rng.normal(size=(6, DIM - 1))])
    errors = np.abs(new @ (estimate.theta - theta))
    widths = [
        np.sqrt(np.einsum("ij,jk,ik->i", new, covariance, new))
        for covariance in (estimate.covariance, np.linalg.inv(bread))
    ]
    full, alone = (float((errors < 1.959964 * width).mean()) for width in widths)
    return full, alone, float(g.mean() / chance.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=500)
    count = parser.parse_args().repetitions
    lines = [
        "| base | decisions | coverage | by Σ F g' x xᵀ | predicted / true | goal | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for base, windows in CASES:
        table = np.array([covered(base, windows, seed) for seed in range(count)])
        full, alone, ratio = table.mean(axis=0)
        error = table[:, 0].std() / math.sqrt(count)
        goal, holds = "", ""
        if windows == 1.0:
            goal, reached = f"{LEAST} to {MOST}", LEAST <= full <= MOST
            if base == 1.0:
                goal += f", {APART} above"
                reached = reached and full - alone >= APART
            holds = "yes" if reached else "no"
        shown = f"{full:.3f} ± {error:.3f} | {alone:.3f} | {ratio:.3f} | {goal} | {holds} |"
        lines.append(f"| {base} | {windows:g} W | {shown}")
        print(lines[-1], flush=True)
    (HERE / "coverage.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
