"""CPU time of the checks for warnings, as a share of decide + observe.

The time of the checks within a run is divided by the time of the run: checks are so rare that the
difference of two runs would drown in noise. Measured from the start, and over as many later rounds.

Run: python benchmarks/advice.py [--rounds 20000]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.advice import advise
from belated.fold import follower
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.model.estimators import Laplace, Online

TARGET = 0.02


def measured(bandit: Bandit, rows: Any, rounds: int) -> tuple[list[float], float]:
    """Return the seconds of each check, and of the whole run."""
    looks: list[float] = []

    def timed(fold: Fold, duplicates: int) -> Any:
        start = time.process_time()
        seen = evidence_of(fold, duplicates)
        advise(seen)  # the bandit calls it again: that call is not counted
        looks.append(time.process_time() - start)
        return seen

    with patch.object(follower, "evidence_of", timed):
        start = time.process_time()
        for n in range(rounds):
            bandit.observe(bandit.decide(rows=rows[n % len(rows)]).id, float(n % 2))
        total = time.process_time() - start
    return looks, total - sum(looks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    for dim, arms in ((10, 20), (50, 20)):
        rows = (rng.normal(size=(256, arms, dim)) / dim**0.5).astype(np.float32)
        for estimator in (Online(), Laplace()):
            policy = DelayedUCB(dim, Bernoulli(), estimator=estimator)
            bandit = Bandit(policy=policy, rewards=Explicit(), seed=1)
            for name in ("from the start", "behind them"):
                looks, total = measured(bandit, rows, rounds)
                print(
                    f"d = {dim}, {type(estimator).__name__}, {name}: {sum(looks) / total:.2%} of"
                    f" {1e6 * total / rounds:.0f} µs a round ({len(looks)} looks of"
                    f" {1e3 * max(looks):.1f} ms at most); aimed at: {TARGET:.0%}"
                )


if __name__ == "__main__":
    main()
