"""How many rewards are still to come, and by when.

The curve is drawn many times, each hazard from Beta(events, at risk - events), and then how many of
the pending rewards come: so the interval knows both the curve's uncertainty and plain luck. A half
added to each cell, as a prior would, adds up over the cells and ruins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector
from belated.core.results import Result, Shortened
from belated.core.times import Duration, as_duration, duration_us
from belated.evaluation.delays import curve_steps
from belated.evaluation.table import DecisionTable
from belated.exceptions import InvalidInput

#: How often the curve is drawn; cells of a curve and of ages, at most.
DRAWS, CELLS = 400, 400
#: Decisions at risk without which a hazard is not trusted, and the part of the curve before that
#: which says what follows.
FEW, LAST_PART = 20, 0.25
#: No decision converts more surely than this.
SUREST = 0.999
#: Groups of ages in which predictions are rescaled, at most, and conversions of each.
STRATA, ENOUGH = 10, 50


@dataclass(frozen=True)
class Expected(Result):
    """How many rewards come within a time.

    Attributes:
        ahead: from now; None: all that will come.
        mean: expected number.
        low: lower end of the interval.
        high: upper end.
    """

    ahead: timedelta | None
    mean: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Forecast(Shortened, Result):
    """How many of the missing rewards are still to come.

    Attributes:
        missing: decisions without a reward that may still have one.
        level: of the intervals.
        expected: for each time ahead.
    """

    missing: int
    level: float
    expected: tuple[Expected, ...]


def forecast(
    table: DecisionTable,
    ahead: Duration | Sequence[Duration] | None = None,
    *,
    level: float = 0.95,
) -> Forecast:
    """Return how many of the missing rewards are still to come.

    Beyond the ages that were seen, rewards go on as in the last quarter of the curve. Conversions
    are expected up to the greatest age that was seen; their rate is the predicted mean of each
    decision, rescaled to what has arrived in each of up to ten groups of ages: a model that learns
    was further off at first.

    Args:
        table: of the decisions.
        ahead: how far to look; several give one number each; None: all that will come.
        level: of the intervals.

    Raises:
        InvalidInput: too few rewards have come to say.
    """
    spans = [ahead] if ahead is None or isinstance(ahead, str | timedelta) else list(ahead)
    table = table.live()
    arrived = int(table.arrived.sum())
    if arrived < FEW:
        message = f"{arrived} of {len(table):,} decisions have a reward: a forecast needs {FEW}"
        raise InvalidInput(f"{message}; wait for more", arrived)
    rng = np.random.default_rng(0)
    draw = _conversions if table.conversions else _outcomes
    steps = [None if one is None else as_duration(one, "ahead") for one in spans]
    missing, counts = draw(table, [None if s is None else duration_us(s) for s in steps], rng)
    tail = (1.0 - level) / 2
    expected = []
    for step, drawn in zip(steps, counts, strict=True):
        low, high = np.quantile(drawn, [tail, 1.0 - tail], method="inverted_cdf")
        expected.append(Expected(step, float(drawn.mean()), float(low), float(high)))
    return Forecast(missing, level, tuple(expected))


def _cells(table: DecisionTable) -> tuple[Vector, Vector, Vector]:
    """The steps of the curve, some of them together: their hazards add up to the same."""
    times, rises, at_risk = curve_steps(table)
    if len(times) <= CELLS:
        return times, rises, at_risk
    starts = np.unique(np.linspace(0, len(times), CELLS + 1).astype(int))[:-1]
    ends = np.append(starts[1:], len(times)) - 1
    events = np.add.reduceat(rises, starts)
    return times[ends], events, events / np.add.reduceat(rises / at_risk, starts)


def _drawn_logs(rises: Vector, at_risk: Vector, rng: np.random.Generator) -> Matrix:
    """log(1 - hazard) of each cell, drawn; where all at risk are gone nothing is left."""
    others = np.maximum(at_risk - rises, 1e-9)
    hazards = rng.beta(rises, others, size=(DRAWS, len(rises)))
    logs: Matrix = np.log1p(-np.minimum(hazards, 1.0 - 1e-12))
    return logs


def _grouped(ages: Vector) -> tuple[Vector, NDArray[np.int64]]:
    """Ages in cells: one age for each, and the number of the cell of each decision."""
    edges = np.unique(np.quantile(ages, np.linspace(0, 1, CELLS + 1)))
    cell = np.minimum(np.searchsorted(edges, ages, side="right") - 1, max(len(edges) - 2, 0))
    count = np.bincount(cell)
    filled = count > 0
    typical = np.bincount(cell, weights=ages)[filled] / count[filled]
    return typical, (np.cumsum(filled) - 1)[cell].astype(np.int64)


def _outcomes(
    table: DecisionTable, ahead: list[int | None], rng: np.random.Generator
) -> tuple[int, list[Vector]]:
    """Rewards to come where every decision has one."""
    end = np.inf if table.retention is None else float(table.retention)
    ages = table.age[~table.arrived & (table.age < end)]
    if not len(ages):
        return 0, [np.zeros(DRAWS) for _ in ahead]
    times, rises, at_risk = _cells(table)
    trusted = at_risk >= FEW
    last = float(times[trusted][-1]) if trusted.any() else float(times[0])
    logs = np.cumsum(_drawn_logs(rises, at_risk, rng)[:, times <= last], axis=1)
    logs = np.concatenate([np.zeros((DRAWS, 1)), logs], axis=1)
    times = times[times <= last]
    rate = _tail_rate(table, last, rng)

    def log_left(age: Vector) -> Matrix:
        known = logs[:, np.searchsorted(times, age, side="right")]
        found: Matrix = known - rate[:, None] * np.maximum(age - last, 0.0)
        return found

    typical, cell = _grouped(ages)
    waiting = np.bincount(cell)
    now, counts = log_left(typical), []
    for span in ahead:
        until = np.full(len(typical), end) if span is None else np.minimum(typical + span, end)
        left = np.exp(log_left(until) - now) if np.isfinite(until).all() else np.zeros(now.shape)
        counts.append(rng.binomial(waiting, 1.0 - left).sum(axis=1).astype(np.float64))
    return len(ages), counts


def _tail_rate(table: DecisionTable, last: float, rng: np.random.Generator) -> Vector:
    """The hazard beyond the curve, per microsecond, as in its last part."""
    start = (1.0 - LAST_PART) * last
    delay = np.minimum(table.delay, table.age)
    exposure = np.clip(np.minimum(delay, last) - start, 0.0, None).sum()
    events = (table.arrived & (table.delay > start) & (table.delay <= last)).sum()
    rate: Vector = rng.gamma(events + 0.5, 1.0, DRAWS) / max(float(exposure), 1.0)
    return rate


def _conversions(
    table: DecisionTable, ahead: list[int | None], rng: np.random.Generator
) -> tuple[int, list[Vector]]:
    """Conversions to come, up to the greatest age that was seen."""
    times, rises, at_risk = _cells(table)
    parts = _drawn_logs(rises, at_risk, rng)[:, :0:-1]
    shares = np.exp(np.concatenate([np.zeros((DRAWS, 1)), np.cumsum(parts, axis=1)], axis=1))
    shares = np.concatenate([np.zeros((DRAWS, 1)), shares[:, ::-1]], axis=1)

    def come_by(age: Vector) -> Matrix:
        found: Matrix = shares[:, np.searchsorted(times, age, side="right")]
        return found

    means = table.mean if (table.mean > 0.0).all() else np.ones(len(table))
    typical, cell = _grouped(table.age)
    decisions, conversions = np.bincount(cell), np.bincount(cell, weights=table.arrived)
    rate = np.bincount(cell, weights=means) / decisions
    now = come_by(typical)
    expected = now * (rate * decisions)
    group = _strata(expected.mean(axis=0), conversions.sum())
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    seen = np.maximum(np.add.reduceat(conversions, starts), 0.5)
    scale = rng.gamma(seen, size=(DRAWS, len(seen))) / np.add.reduceat(expected, starts, axis=1)
    chance = np.minimum(scale[:, np.cumsum(np.diff(group, prepend=-1) > 0) - 1] * rate, SUREST)
    waiting = (decisions - conversions).astype(np.int64)
    counts = []
    for span in ahead:
        later = 1.0 if span is None else come_by(typical + span)
        to_come = chance * (later - now) / (1.0 - chance * now)
        counts.append(rng.binomial(waiting, to_come).sum(axis=1).astype(np.float64))
    return int(waiting[typical < table.reach].sum()), counts


def _strata(expected: Vector, conversions: float) -> NDArray[np.int64]:
    """Cells of ages in groups, each with about as many conversions: the group of each cell.

    Predictions are rescaled within each, for a model that learns is off by less and less.
    """
    count = int(np.clip(conversions // ENOUGH, 1, STRATA))
    place = (np.cumsum(expected) - expected / 2) / expected.sum()
    found: NDArray[np.int64] = np.minimum(count * place, count - 1).astype(np.int64)
    return found
