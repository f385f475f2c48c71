"""Conversions that take from a ten-millionth to a third of the window: predictions and regret.

Rounds are a second apart and the mean delay is 100 rounds; the window is up to ten million times as
long. Each run is the shop of ``problems.py`` with fresh rows and the default policy, no floor, and
an intercept with which the best action converts at the given rate. Every run is repeated with the
same customers and delays: with the delay law learned, and with the law known. Predictions are those
for the rows chosen last, at the first moment with 30 conversions and three mean delays. Runs are in
``scales.csv``, the table is ``scales.md``.

Run: python -m experiments.conversions.scales [--seeds 40] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from belated import Bernoulli, ConversionsOnly, DelayedUCB, delays, simulate
from belated.exceptions import AdviceWarning
from belated.simulation import Trace
from experiments.conversions.problems import (
    Cut,
    Known,
    Problem,
    Shop,
    exponential,
    lognormal,
    weibull,
)
from experiments.parallel import Rows, table_of

HERE = Path(__file__).parent
FIRST, MEAN = 120_000, 100
RATIOS, RATES = (1e-7, 1e-5, 1e-3, 0.01, 0.1, 0.3), (0.01, 0.1, 0.3)
SHAPES: dict[str, Callable[[int, float], Cut]] = {
    "exponential": exponential,
    "weibull": weibull,
    "lognormal": lognormal,
}
#: Conversions and mean delays after which predictions are compared, and the number of rows.
CONVERSIONS, DELAYS, LATEST = 30, 3, 100
#: Conversions of the best action over which regret is counted, and the minimum of rounds.
REGRET, ROUNDS = 60, 1_000

#: Seeds of deliveries in batches, which have no bound.
BATCHES = 8
#: Columns that identify a run: an interrupted experiment continues from its table.
KEY = ("ratio", "rate", "shape", "seed")

Cell = tuple[float, float, str]


def intercept_of(rate: float) -> float:
    """Return the intercept with which the best of ten actions converts at a rate."""
    best = np.random.default_rng(1).normal(size=(100_000, 10)).max(axis=1)
    low, high = -20.0, 5.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        is_low = Bernoulli().mean(middle + best).mean() < rate
        low, high = (middle, high) if is_low else (low, middle)
    return low


INTERCEPTS = {rate: intercept_of(rate) for rate in RATES}


def problem_of(ratio: float, rate: float, shape: str) -> Problem:
    window = round(MEAN / ratio)
    wait: Any = delays.Batched(MEAN) if shape == "batches" else SHAPES[shape](window, MEAN)
    return Problem(lambda seed: Shop(seed, False, INTERCEPTS[rate]), wait, window)


def simulated(cell: Cell, seed: int, rounds: int, known: bool) -> Trace:
    problem = problem_of(*cell)
    world = problem.world(seed)
    options: dict[str, Any] = {"estimator": Known(truth=problem.truth)} if known else {}
    policy = DelayedUCB(world.dim, Bernoulli(), **options)
    rewards = ConversionsOnly(problem.rewards(problem.window))
    return simulate(policy, world, problem.delay, horizon=rounds, seed=seed, rewards=rewards)


def run(cell: Cell, seed: int) -> Rows:
    """Return the regret with the law learned and known, and the first comparable predictions."""
    warnings.simplefilter("ignore", AdviceWarning)
    ratio, rate, shape = cell
    start = time.process_time()
    rounds = max(ROUNDS, round(REGRET / rate))
    learned = simulated(cell, seed, rounds, known=False)
    batches = shape == "batches"
    regret = np.nan if batches else simulated(cell, seed, rounds, known=True).regret[-1]
    arrivals = np.sort((np.arange(rounds) + learned.delay + 1)[learned.rewards > 0])
    enough = int(arrivals[CONVERSIONS - 1]) + 1 if len(arrivals) >= CONVERSIONS else rounds
    moment = min(max(enough, DELAYS * MEAN), rounds)
    early = simulated(cell, seed, moment, known=False)
    predicted, true = predictions(early, cell, seed, moment)
    thetas = [np.abs(trace.learner.model.theta).max() for trace in (early, learned)]
    row = {
        "ratio": ratio,
        "rate": rate,
        "shape": shape,
        "seed": seed,
        "regret": learned.regret[-1],
        "known": regret,
        "moment": moment / MEAN,
        "predicted": predicted / true,
        "theta": max(thetas),
        "seconds": time.process_time() - start,
    }
    return [row]


def predictions(trace: Trace, cell: Cell, seed: int, rounds: int) -> tuple[float, float]:
    """Return the mean prediction for the rows chosen last, and the true mean."""
    world = problem_of(*cell).world(seed)
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(4)[0])
    offered = itertools.islice(world.rounds(rounds, stream), rounds - LATEST, None)
    actions = trace.actions[-LATEST:].tolist()
    chosen = [(rows[a], means[a]) for (rows, means), a in zip(offered, actions, strict=True)]
    rows, means = (np.array(column) for column in zip(*chosen, strict=True))
    predicted = world.family.mean(rows @ trace.learner.model.theta)
    return float(predicted.mean()), float(means.mean())


def summary(table: pd.DataFrame) -> str:
    """Return a line per cell, and whether all are within their bounds."""
    lines = [
        "Predicted over true: mean [least, most] over runs, bounds .8 to 1.25 for the mean and 3"
        " for each run. Regret: ratio of the means with the law learned and known ± its standard"
        " error, bound 1.25 for a cell and 1.1 for the geometric mean over shapes.",
        "",
        "| delay ÷ window | rate | shape | runs | at delays | predicted ÷ true | largest θ |"
        " regret | regret ÷ known law | reached |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for (ratio, rate), cell in table.groupby(["ratio", "rate"]):
        ratios = {}
        for shape, runs in cell.groupby("shape", observed=True):
            low, mean, high = (getattr(runs.predicted, name)() for name in ("min", "mean", "max"))
            reached = 0.8 <= mean <= 1.25 and high < 3 and runs.theta.max() < 20
            text = ""
            if not runs.known.isna().any():
                value, error = ratio_of(runs.regret.to_numpy(), runs.known.to_numpy())
                ratios[shape] = value
                reached, text = reached and value <= 1.25, f"{value:.2f} ± {error:.2f}"
            verdict = "" if shape == "batches" else ("yes" if reached else "no")
            lines.append(
                f"| {ratio:g} | {rate:g} | {shape} | {len(runs)} | {runs.moment.mean():.1f} |"
                f" {mean:.2f} [{low:.2f}, {high:.2f}] | {runs.theta.max():.1f} |"
                f" {runs.regret.mean():.1f} | {text} | {verdict} |"
            )
        if len(ratios) > 1:
            mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
            verdict = "yes" if mean <= 1.1 else "no"
            lines.append(
                f"| {ratio:g} | {rate:g} | **all** | | | | | | **{mean:.2f}** | {verdict} |"
            )
    return "\n".join(lines) + "\n"


def ratio_of(regret: np.ndarray, known: np.ndarray) -> tuple[float, float]:
    """Return the ratio of two paired means, and its standard error by the delta method."""
    value = regret.mean() / known.mean()
    error = (regret - value * known).std(ddof=1) / known.mean() / np.sqrt(len(known))
    return float(value), float(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the table")
    arguments = parser.parse_args()
    path = arguments.out / "scales.csv"
    finished = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEY])
    finished_keys = set(finished[[*KEY]].itertuples(index=False, name=None))
    seeds = {**dict.fromkeys(SHAPES, arguments.seeds), "batches": min(arguments.seeds, BATCHES)}
    cells = [
        ((ratio, rate, shape), seed)
        for ratio, rate in itertools.product(arguments.ratios, arguments.rates)
        for shape, count in seeds.items()
        for seed in range(FIRST, FIRST + count)
        if (ratio, rate, shape, seed) not in finished_keys
    ]
    results = table_of(run, cells, jobs=arguments.jobs, unit="run")
    table = pd.concat([finished, results]) if len(finished) else results
    table["shape"] = pd.Categorical(table["shape"], [*SHAPES, "batches"])
    table = table.sort_values([*KEY])
    table.to_csv(path, index=False, float_format="%.4g")
    (arguments.out / "scales.md").write_text(summary(table), encoding="utf-8")
    print(summary(table))


if __name__ == "__main__":
    main()
