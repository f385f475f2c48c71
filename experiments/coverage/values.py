"""How often 95 % intervals of off-policy values contain the truth, and how wide they are.

Four actions in eight contexts; the evaluated policy is uniform. Logs of 1,000, 4,000 and 20,000
decisions are made uniformly, by a policy with a floor of 2 % or 10 %, or by a policy without a
floor and a uniform holdout of 5 %. The policy prefers in each context the action with the highest
mean reward so far, and learns five times. Rewards are conversions, of which all have arrived, or
about half. Widths are relative to those of an oracle: a doubly robust estimate that knows the mean
reward of each action in each context, with its true standard deviation.

Writes ``values.md``. With ``--methods``, compares methods on logs of up to 4,000 decisions, and
writes ``methods.md``.

Run: python -m experiments.coverage.values [--runs 2000] [--sizes 1000 4000 20000] [--methods]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from belated import Bernoulli, DefaultAfter
from belated.core.inputs import Vector
from belated.evaluation.arrivals import arrival_weights
from belated.evaluation.columns import NEVER
from belated.evaluation.sequences import betting_interval
from belated.evaluation.table import DecisionTable
from belated.evaluation.values import (
    REFUSED,
    cross_fitted,
    dispersion,
    interval,
    off_policy_value,
)
from experiments.evaluation.logs import offers_of
from experiments.tables import rule

HERE = Path(__file__).parent
ACTIONS, CONTEXTS, FOLDS, BATCHES = 4, 8, 5, 5
CELLS = CONTEXTS * ACTIONS
#: Floor of the policy, and share of the holdout.
LOGS = {
    "uniform": (1.0, 0.0), "floor .02": (0.02, 0.0), "floor .1": (0.1, 0.0),
    "holdout only": (0.0, 0.05),
}  # fmt: skip
RATES, SIZES, PENDING = (0.01, 0.07, 0.3), (1_000, 4_000, 20_000), ("all arrived", "half pending")
#: Effective sizes below which a refusal is allowed: of decisions and of conversions.
FEW_DECISIONS, FEW_CONVERSIONS = 50, 10
Z = 1.959964
#: The first decision, and the time in which all are made, in microseconds.
START, TIME = 1_700_000_000_000_000, 1_000_000_000

Ends = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Run:
    """One log, as the estimate sees it.

    Attributes:
        means: true mean reward by context and action.
        context: of each decision.
        chosen: index of the chosen action.
        shares: propensity of each action, by batch and context.
        batch: of each decision.
        age: of each decision; the time in which decisions are made is 1.
        delay: until the conversion; infinite if there is none so far.
        window: no conversion is later.
    """

    means: Vector
    context: NDArray[np.int64]
    chosen: NDArray[np.int64]
    shares: Vector
    batch: NDArray[np.int64]
    age: Vector
    delay: Vector
    window: float


def simulate(count: int, log: str, rate: float, pending: str, rng: np.random.Generator) -> Run:
    """Return a log of decisions."""
    floor, holdout = LOGS[log]
    factor = np.exp(0.5 * rng.normal(size=(CONTEXTS, ACTIONS)))
    means = np.minimum(rate * factor / factor.mean(), 0.95)
    context = rng.integers(CONTEXTS, size=count)
    decided = np.arange(count) / count
    half = pending == PENDING[1]
    delay = np.minimum(0.25 + rng.exponential(0.35, count), 0.8) if half else np.full(count, 1e-3)
    now, window = (1.0, 0.8) if half else (1.01, 2e-3)
    place, luck = rng.random(count), rng.random(count)
    batch = np.arange(count) * BATCHES // count
    shares = np.empty((BATCHES, CONTEXTS, ACTIONS))
    cell, reward = np.empty(count, np.int64), np.zeros(count, np.bool_)
    for n, part in enumerate(np.split(np.arange(count), np.flatnonzero(np.diff(batch)) + 1)):
        seen = reward[: part[0]] & (decided[: part[0]] + delay[: part[0]] <= decided[part[0]])
        tried = np.bincount(cell[: part[0]], minlength=CELLS)
        score = (np.bincount(cell[: part[0]], seen, CELLS) + 5 * rate) / (tried + 5)
        score += 1e-6 * rng.random(CELLS)
        policy = np.full((CONTEXTS, ACTIONS), floor / ACTIONS)
        policy[np.arange(CONTEXTS), score.reshape(CONTEXTS, ACTIONS).argmax(1)] += 1.0 - floor
        shares[n] = holdout / ACTIONS + (1.0 - holdout) * policy
        bounds = shares[n].cumsum(1)
        cell[part] = context[part] * ACTIONS
        for action in range(ACTIONS - 1):
            cell[part] += place[part] > bounds[context[part], action]
        reward[part] = luck[part] < means.reshape(-1)[cell[part]]
    age = now - decided
    delay = np.where(reward & (delay <= age), delay, np.inf)
    return Run(means, context, cell % ACTIONS, shares, batch, age, delay, window)


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an interval is computed from.

    Attributes:
        direct: predicted mean of each decision under the uniform policy.
        ratio: importance weights.
        omega: inverse probability of censoring weights, 0 without a conversion.
        prediction: predicted mean of the chosen action.
        design: effective sample size by design.
        means: predicted mean by fold, context and action.
        fold: of each decision.
    """

    direct: Vector
    ratio: Vector
    omega: Vector
    prediction: Vector
    design: float
    means: Vector
    fold: NDArray[np.int64]

    @property
    def interval(self) -> Ends:
        """The interval of the library."""
        ones = np.ones(len(self.ratio))
        effective = float(self.ratio.sum() ** 2 / np.square(self.ratio).sum())
        spread = dispersion(self.omega, self.prediction, ones, 0.0, 1.0)
        _, low, high = interval(
            self.direct, ones, self.ratio, self.omega, self.prediction,
            min(effective, self.design), 0.95, 0.0, 1.0, spread,
        )  # fmt: skip
        return max(low, 0.0), min(high, 1.0)


def estimated(run: Run) -> Estimate:
    """Return what an interval is computed from.

    The predicted means are those that :func:`cross_fitted` returns, from counts of cells.
    """
    count, half = len(run.context), run.window > 0.1
    omega = arrival_weights(run.delay, run.age) if half else 1.0 * (run.delay < 1.0)
    fold = np.random.default_rng(0).integers(FOLDS, size=count)
    cell = (fold * CONTEXTS + run.context) * ACTIONS + run.chosen
    tried = np.bincount(cell, minlength=FOLDS * CELLS).reshape(FOLDS, CELLS)
    rewards = np.bincount(cell, omega, FOLDS * CELLS).reshape(FOLDS, CELLS)
    offset = _solved(rewards.sum(), tried.sum(), 0.0, 1e-2)
    remaining = rewards.sum(0) - rewards, tried.sum(0) - tried
    means = expit(offset + _solved(*remaining, offset, 1.0)).reshape(FOLDS, CONTEXTS, ACTIONS)
    ratio = (1.0 / ACTIONS / run.shares)[run.batch, run.context, run.chosen]
    squares = (1.0 / ACTIONS**2 / run.shares).sum(2)[run.batch, run.context].mean()
    total = omega.sum()
    return Estimate(
        direct=means.mean(2)[fold, run.context],
        ratio=ratio,
        omega=omega,
        prediction=means.reshape(-1)[cell],
        design=float(count * total / np.square(omega).sum() / squares) if total else 0.0,
        means=means,
        fold=fold,
    )


def _solved(rewards: Vector, tried: Vector, offset: Vector, ridge: float) -> Vector:
    """The coefficient of each cell: where the score of the penalized likelihood is 0."""
    effects = np.zeros(np.shape(rewards))
    for _ in range(8):
        mean = expit(offset + effects)
        step = (rewards - tried * mean - ridge * effects) / (tried * mean * (1.0 - mean) + ridge)
        effects = effects + np.clip(step, -2.0, 2.0)
    return effects


def check(run: Run) -> None:
    """Compare with the library on one log."""
    count = len(run.context)
    decided = START + np.round((run.age.max() - run.age) * TIME).astype(np.int64)
    has_arrived = np.isfinite(run.delay)
    rewarded = decided + np.floor(np.where(has_arrived, run.delay, 0.0) * TIME).astype(np.int64)
    table = DecisionTable.of(
        made=decided,
        rewarded=np.where(has_arrived, rewarded, NEVER),
        value=np.where(has_arrived, 1.0, np.nan),
        rewards=DefaultAfter(f"{run.window * TIME / 1e6:.0f}s"),
        as_of=START + round(run.age.max() * TIME),
    )
    rows = np.zeros((count, ACTIONS, CELLS), np.float32)
    cells = run.context[:, None] * ACTIONS + np.arange(ACTIONS)
    np.put_along_axis(rows, cells[..., None], 1.0, axis=2)
    offers = offers_of(rows, run.chosen, run.shares[run.batch, run.context])
    own = estimated(run)
    predicted = own.means[own.fold, run.context]
    predictions = cross_fitted(
        offers, arrival_weights(table.delay, table.age), np.ones(count), Bernoulli()
    )
    np.testing.assert_allclose(predicted.reshape(-1), predictions, rtol=1e-3)
    value = off_policy_value(table, offers, np.full(len(predictions), 1.0 / ACTIONS), Bernoulli())
    np.testing.assert_allclose(own.interval, (value.low, value.high), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(own.design, value.effective_sample_size, rtol=1e-3)


# --- other methods --------------------------------------------------------------------------------


def normal(it: Estimate, rng: np.random.Generator) -> Ends:
    """Doubly robust, with the estimated standard deviation."""
    terms = it.direct + it.ratio * (it.omega - it.prediction)
    half = Z * terms.std() / math.sqrt(len(terms))
    return terms.mean() - half, terms.mean() + half


def student(it: Estimate, rng: np.random.Generator) -> Ends:
    """Fieller's interval with Student's quantile: the variance is estimated."""
    ones = np.ones(len(it.ratio))
    effective = float(it.ratio.sum() ** 2 / np.square(it.ratio).sum())
    least = min(effective, it.design)
    return interval(it.direct, ones, it.ratio, it.omega, it.prediction, least, 0.95)[1:]


def bootstrap(it: Estimate, rng: np.random.Generator) -> Ends:
    """Studentized bootstrap of the weighted residuals."""
    residual, squares = it.omega - it.prediction, np.square(it.ratio)
    sums = np.stack([
        it.ratio * residual, it.ratio, squares * np.square(residual), squares * residual, squares,
    ])  # fmt: skip
    a, b, c, d, e = (
        sums @ np.vstack([rng.poisson(1.0, (200, len(residual))), np.ones(len(residual))]).T
    )
    shift = a / b
    error = np.sqrt(np.maximum(c - 2 * shift * d + shift**2 * e, 1e-18)) / b
    low, high = np.quantile((shift[:-1] - shift[-1]) / error[:-1], [0.025, 0.975])
    spread = Z * it.direct.std() / math.sqrt(len(residual))
    point = it.direct.mean() + shift[-1]
    return point - math.hypot(high * error[-1], spread), point + math.hypot(low * error[-1], spread)


def bernstein(it: Estimate, rng: np.random.Generator) -> Ends:
    """Maurer's and Pontil's empirical Bernstein bound of the weighted rewards."""
    terms, count, logarithm = it.ratio * it.omega, len(it.ratio), math.log(4 / 0.05)
    half = math.sqrt(2 * terms.var(ddof=1) * logarithm / count)
    half += 7 * it.ratio.max() * max(it.omega.max(), 1.0) * logarithm / (3 * (count - 1))
    return terms.mean() - half, terms.mean() + half


def betting(it: Estimate, rng: np.random.Generator) -> Ends:
    """The library's confidence sequence, of all decisions."""
    most = max(float(it.omega.max()), 1.0)
    terms = it.ratio * it.omega / most
    low, high = betting_interval(terms, it.ratio * (1.0 - it.omega / most), 0.95, 1e-4)
    return low * most, high * most


METHODS: dict[str, Callable[[Estimate, np.random.Generator], Ends]] = {
    "score": lambda estimate, rng: estimate.interval,
    "Student-t": student,
    "normal": normal,
    "bootstrap-t": bootstrap,
    "empirical Bernstein": bernstein,
    "betting": betting,
}


# --- tables ---------------------------------------------------------------------------------------


def measure(cell: tuple[int, str, float, str], runs: int, methods: list[str]) -> dict[str, Vector]:
    """Return, for each run, its effective sizes, the oracle's error, and the ends of intervals."""
    results: dict[str, list[tuple[float, ...]]] = {name: [] for name in ("size", *methods)}
    for seed in range(runs):
        rng = np.random.default_rng([400, *map(hash_of, cell), seed])
        run = simulate(*cell, rng)
        estimate = estimated(run)
        if seed == 0 and cell[0] < SIZES[-1] and estimate.design >= REFUSED:
            check(run)
        truth = float(run.means.mean())
        oracle = run.means.mean(1)[run.context]
        oracle += estimate.ratio * (estimate.omega - run.means[run.context, run.chosen])
        results["size"].append(
            (estimate.design, estimate.design * truth, float(oracle.mean()) - truth, truth)
        )
        for name in methods:
            results[name].append(METHODS[name](estimate, rng))
    return {name: np.array(values) for name, values in results.items()}


def hash_of(value: float | str) -> int:
    """A number for a part of a cell, the same in every process."""
    return int.from_bytes(str(value).encode()) % 2**31


def covered(ends: Vector, truth: Vector) -> float:
    """The share of intervals that contain the truth."""
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean())


def width(ends: Vector) -> float:
    """The mean width of intervals within [0, 1]."""
    return float(np.diff(np.clip(ends, 0.0, 1.0), axis=1).mean())


#: The head of the table.
HEAD = [
    f"Refused: below {REFUSED:.0f} effective decisions. Widths are relative to the oracle's.",
    "",
    *rule("decisions", [
        "log", "rate", "rewards", "runs", "effective decisions", "effective conversions",
        "refused", "coverage", "width", "relative width",
    ]),
]  # fmt: skip


def cell_of(count: int, log: str, rate: float, pending: str) -> tuple[str, ...]:
    """Return the first columns of a line."""
    return f"| {count:,}", log, f"{rate:g}", pending


def line(cell: tuple[int, str, float, str], runs: int) -> str:
    """Return a line of the table."""
    results = measure(cell, runs, ["score"])
    design, conversions, error, truth = results["size"].T
    is_answered = design >= REFUSED
    cells = [*cell_of(*cell), f"{runs:,}", f"{design.mean():,.0f}"]
    cells += [f"{conversions.mean():,.1f}", f"{1 - is_answered.mean():.3f}"]
    if is_answered.any():
        ends, oracle = results["score"][is_answered], 2 * Z * float(error[is_answered].std())
        cells += [f"{covered(ends, truth[is_answered]):.3f}", f"{width(ends):.4f}"]
        cells += [f"{width(ends) / oracle:.2f}"]
    else:
        cells += ["", "", ""]
    return " | ".join(cells) + " |"


def compare(runs: int) -> list[str]:
    """Return the table of methods: the least coverage, and the mean of relative widths."""
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    for cell in itertools.product(SIZES[:2], LOGS, RATES, PENDING):
        measures = measure(cell, runs, list(METHODS))
        design, _, error, truth = measures["size"].T
        is_answered = design >= REFUSED
        if is_answered.mean() < 0.5:
            continue
        oracle = 2 * Z * float(error.std())
        for name in METHODS:
            ends = measures[name][is_answered]
            results[name].append((covered(ends, truth[is_answered]), width(ends) / oracle))
    lines = rule("method", ["least coverage", "mean coverage", "width / oracle's"])
    for name, cells in results.items():
        share, relative = np.array(cells).T
        lines.append(f"| {name} | {share.min():.2f} | {share.mean():.3f} | {relative.mean():.2f} |")
    return lines


def lines_of(path: Path) -> dict[tuple[str, ...], str]:
    """Return the lines of a table by their cell."""
    if not path.exists():
        return {}
    lines = [row for row in path.read_text(encoding="utf-8").splitlines() if row.startswith("| ")]
    return {tuple(row.split(" | ")[:4]): row for row in lines[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="the others are kept")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--methods", action="store_true")
    options = parser.parse_args()
    if options.methods:
        head = f"{options.runs:,} logs per cell."
        text = "\n".join([head, "", *compare(options.runs)]) + "\n"
        (HERE / "methods.md").write_text(text, encoding="utf-8")
        return
    path = HERE / "values.md"
    lines_by_cell = lines_of(path)
    cells = list(itertools.product(options.sizes, LOGS, RATES, PENDING))
    order = [cell_of(*cell) for cell in itertools.product(SIZES, LOGS, RATES, PENDING)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for cell, text in zip(
            cells, pool.map(line, cells, itertools.repeat(options.runs)), strict=True
        ):
            print(text, flush=True)
            lines_by_cell[cell_of(*cell)] = text
            lines = [lines_by_cell[cell] for cell in order if cell in lines_by_cell]
            path.write_text("\n".join([*HEAD, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
