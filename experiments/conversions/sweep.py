"""Regret, predictions and coverage of ways to learn from conversions, on fresh seeds.

Parts, by what they show: the price of not knowing the law (``law``), the value of counting pending
decisions in full (``weight``), deliveries in batches (``batches``), zeros at once (``flip``), the
best window of ``DefaultAfter`` (``default``), predictions over time (``predictions``), and longer
windows, or both outcomes at their end (``windows``). All runs are in ``table.csv``, written after
each seed, from which an interrupted sweep continues. Then run analysis.py.

Run: python -m experiments.conversions.sweep [--seeds 40] [--parts law weight ...] [--minutes M]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from belated import delays, simulate
from belated.core.inputs import Matrix, Vector
from belated.exceptions import AdviceWarning
from belated.fold.learner import Learner
from belated.model.estimators.estimate import Z
from experiments.conversions.problems import HORIZON, POLICIES, PROBLEMS, WAYS, policy_of

TABLE = Path(__file__).parent / "table.csv"
FIRST = 70_000
#: Number of last rounds whose chosen rows are predicted.
LATEST = 500

SHOPS = ("fresh500", "fixed500", "fresh3000", "fixed3000")

Cell = tuple[str, str, str, int]
#: Problem, way, policy and horizon of each run of a part.
PARTS: dict[str, list[Cell]] = {
    "law": [
        (problem, way, policy, HORIZON)
        for problem in ("fresh500", "fresh3000", "fixed500", "lomax")
        for policy in POLICIES
        for way in ("conversions", "known F")
    ],
    "weight": [
        ("fixed500", "F-weight", "ucb", HORIZON),
        ("const1000", "conversions", "ucb", HORIZON),
        ("const1000", "known F, F-weight", "ucb", HORIZON),
        ("const1000", "uncounted", "ucb", HORIZON),
    ],
    "batches": [("batch1000", way, "ucb", HORIZON) for way in ("conversions", "batches")],
    "flip": [
        (problem, "flip", "thompson", HORIZON) for problem in ("fresh500", "fresh3000", "fixed500")
    ],
    "default": [
        ("fixed3000", "conversions", "ucb", HORIZON),
        *((problem, "default W/10", "ucb", HORIZON) for problem in SHOPS),
    ],
    "predictions": [
        (problem, "conversions", "ucb", PROBLEMS[problem].window // part)
        for problem in ("fresh500", "fresh3000")
        for part in (2, 1)
    ],
    "windows": [
        *(
            (problem, way, "ucb", HORIZON)
            for problem in SHOPS
            for way in ("default W/2", "default W", "hold")
        ),
        *(
            (problem, way, "ucb", PROBLEMS[problem].window // part)
            for problem in ("fresh500", "fresh3000")
            for part in (2, 1)
            for way in ("default W", "hold")
        ),
        *(("batch1000", way, "ucb", HORIZON) for way in ("single", "hold")),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", AdviceWarning)
    start, table = time.monotonic(), pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame()
    runs: list[Mapping[Hashable, Any]] = [*table.to_dict("records")]
    finished = {_key(run) for run in runs}
    for seed in range(FIRST, FIRST + arguments.seeds):
        for cell in [cell for part in arguments.parts for cell in PARTS[part]]:
            if (*cell, seed) in finished or time.monotonic() - start > 60 * arguments.minutes:
                continue
            finished.add((*cell, seed))
            runs.append(run(*cell, seed))
        table = pd.DataFrame(runs).sort_values(["problem", "way", "policy", "rounds", "seed"])
        table.to_csv(TABLE, index=False, float_format="%.4g")
    print(f"{len(runs)} runs in table.csv")


def run(problem: str, way: str, policy: str, rounds: int, seed: int) -> dict[Hashable, Any]:
    """Run once; return the regret, predictions for the rows chosen last, and coverage."""
    setting, start = PROBLEMS[problem], time.process_time()
    world = setting.world(seed)
    options, rewards = WAYS[way](setting)
    wait = delays.Constant(0) if way == "at once" else setting.delay
    trace = simulate(
        policy_of(policy, world.dim, options),
        world,
        wait,
        horizon=rounds,
        seed=seed,
        rewards=rewards,
    )
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(4)[0])
    chosen, true = [], []
    for t, (rows, means) in enumerate(world.rounds(rounds, stream)):
        if t >= rounds - LATEST:
            chosen.append(rows[trace.actions[t]])
            true.append(float(means[trace.actions[t]]))
    predicted = world.family.mean(np.array(chosen) @ trace.learner.model.theta)
    return {
        "problem": problem,
        "way": way,
        "policy": policy,
        "rounds": rounds,
        "seed": seed,
        "regret": float(trace.regret[-1]),
        "predicted": float(np.mean(predicted)),
        "true": float(np.mean(true)),
        "covered": covered(trace.learner, rows, world.theta) if way == "conversions" else None,
        "seconds": time.process_time() - start,
    }


def covered(learner: Learner, rows: Matrix, theta: Vector) -> float:
    """Return the share of the last offered rows whose predictors are within their intervals."""
    estimate = learner.estimate
    deviation = np.sqrt(np.vecdot(rows @ estimate.covariance, rows))
    return float((np.abs(rows @ (estimate.mean - theta)) <= Z * deviation).mean())


def _key(run: Mapping[Hashable, Any]) -> tuple[str, str, str, int, int]:
    return run["problem"], run["way"], run["policy"], run["rounds"], run["seed"]


if __name__ == "__main__":
    main()
