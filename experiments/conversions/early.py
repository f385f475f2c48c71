"""Predictions before a window has ended, if the window is long compared with the delays.

Decisions come at a steady rate, 15 % convert, delays are exponential. After some mean delays the
estimate of the rate is compared with the truth, for windows of up to a million mean delays. Writes
``early.md``.

Run: python -m experiments.conversions.early [--repetitions 100] [--decisions 100]
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
SEED, RATE = 91_000, 0.15
#: Windows, and the moments at which predictions are compared, in mean delays.
WINDOWS, MOMENTS = (2, 4, 20, 100, 10_000, 1_000_000), (1, 2, 3, 5, 10)


def predicted(window: float, moment: float, rate: float, seed: int) -> float:
    """Return the estimate over the truth after this many mean delays, at this rate of decisions."""
    rng = np.random.default_rng(seed)
    count = round(rate * moment)
    age = np.minimum(rng.uniform(0.0, moment, count), window)
    delay = -np.log1p(rng.random(count) * math.expm1(-window))
    seen = (rng.random(count) < RATE) & (delay <= age)
    conversions = Conversions(delay[seen] / window, np.zeros(seen.sum()), age[seen] / window)
    rows = DecidedRows(np.ones((count, 1), np.float32), seen.astype(float), age / window)
    estimate = Thinned().fit(
        AgedDecisions((1,), [rows], conversions), family=Bernoulli(), prior=Prior.ridge(1)
    )
    return 1.0 / (1.0 + math.exp(-estimate.theta[0])) / RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--decisions", type=float, default=100.0, help="in a mean delay")
    arguments = parser.parse_args()
    title = (
        f"Predicted over true, the median of {arguments.repetitions} (a tenth is below and above"
    )
    lines = [f"{title} the brackets), with {arguments.decisions:g} decisions in a mean delay.", ""]
    lines.append("| window | " + " | ".join(f"after {n} delays" for n in MOMENTS) + " |")
    lines.append("|---|" + "--:|" * len(MOMENTS))
    for window in WINDOWS:
        cells = []
        for moment in MOMENTS:
            ratios = [
                predicted(window, moment, arguments.decisions, SEED + n)
                for n in range(arguments.repetitions)
            ]
            low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
            cells.append(f"{middle:.2f} [{low:.2f}, {high:.2f}]")
        lines.append(f"| {window:,} delays | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    (HERE / "early.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
