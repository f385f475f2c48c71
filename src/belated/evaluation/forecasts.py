"""Forecast how many rewards are still to come, and by when.

Many delay curves are sampled, with each hazard drawn from Beta(events, at risk - events). For each
curve, the number of pending rewards that arrive is sampled. The interval therefore covers both the
uncertainty of the curve and chance. Hazards have no prior, because adding ½ to each cell would
accumulate over the cells and bias the forecast.
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
from belated.exceptions import InvalidInput, NotEvaluable

#: Number of sampled curves; maximum number of cells, both of the curve and of ages.
DRAWS, CELLS = 400, 400
#: Minimum number of decisions at risk for a reliable hazard; the fraction at the end of the
#: reliable curve from which the curve is extrapolated.
FEW, LAST_PART = 20, 0.25
#: Maximum share of the pending decisions that may be older than the observed delays at a horizon.
UNSEEN = 0.2
#: Maximum conversion probability of a decision.
SUREST = 0.999
#: Maximum number of age groups in which predictions are rescaled, and conversions per group.
STRATA, ENOUGH = 10, 50


@dataclass(frozen=True)
class Expected(Result):
    """The number of rewards expected within a time horizon.

    Attributes:
        ahead: the horizon, measured from now; None means no limit.
        mean: expected number of rewards.
        low: lower bound of the interval.
        high: upper bound of the interval.
    """

    ahead: timedelta | None
    mean: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Forecast(Shortened, Result):
    """Forecast of the number of missing rewards that will still arrive.

    Attributes:
        missing: number of decisions without a reward that may still receive one.
        level: confidence level of the intervals.
        expected: the number of rewards expected within each horizon.
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
    """Forecast how many of the missing rewards will still arrive.

    If every outcome is reported within a window, rewards that arrive after it are not counted.
    For decisions older than the observed delays, outcomes are assumed to continue at the rate of
    the last quarter of the curve, and the interval allows for none or all of them; no conversions
    are expected from such decisions. A horizon is rejected if more than a fifth of the pending
    decisions would be that old. The conversion rate is the predicted mean of each decision,
    rescaled to the rewards that have arrived in each of up to ten age groups, because the early
    predictions of a learning model are less accurate.

    Args:
        table: the decisions.
        ahead: the horizon, or several horizons for a forecast at each; None means no limit.
        level: confidence level of the intervals.

    Raises:
        InvalidInput: too few rewards have arrived for a forecast.
        NotEvaluable: the log is too short for one of the horizons.
    """
    spans = [ahead] if ahead is None or isinstance(ahead, str | timedelta) else list(ahead)
    table = table.live()
    arrived = int(table.arrived.sum())
    if arrived < FEW:
        message = f"a forecast needs at least {FEW} rewards, but only {arrived} have arrived for"
        raise InvalidInput(f"{message} {len(table):,} decisions: wait for more rewards", arrived)
    rng = np.random.default_rng(0)
    draw = _conversions if table.conversions else _outcomes
    steps = [None if span is None else as_duration(span, "ahead") for span in spans]
    limits = [None if step is None else duration_us(step) for step in steps]
    missing, counts = draw(table, limits, rng)
    tail = (1.0 - level) / 2
    expected = []
    for step, (draws, fewest, most) in zip(steps, counts, strict=True):
        low = np.quantile(fewest, tail, method="inverted_cdf")
        high = np.quantile(most, 1.0 - tail, method="inverted_cdf")
        expected.append(Expected(step, float(draws.mean()), float(low), float(high)))
    return Forecast(missing, level, tuple(expected))


def _cells(table: DecisionTable) -> tuple[Vector, Vector, Vector]:
    """Return the curve's steps, merged into at most :data:`CELLS` cells of equal total hazard."""
    times, rises, at_risk = curve_steps(table)
    if len(times) <= CELLS:
        return times, rises, at_risk
    starts = np.unique(np.linspace(0, len(times), CELLS + 1).astype(int))[:-1]
    ends = np.append(starts[1:], len(times)) - 1
    events = np.add.reduceat(rises, starts)
    return times[ends], events, events / np.add.reduceat(rises / at_risk, starts)


def _drawn_logs(rises: Vector, at_risk: Vector, rng: np.random.Generator) -> Matrix:
    """Sample log(1 - hazard) for each cell; the hazard is about 1 if all decisions have rewards."""
    failures = np.maximum(at_risk - rises, 1e-9)
    hazards = rng.beta(rises, failures, size=(DRAWS, len(rises)))
    logs: Matrix = np.log1p(-np.minimum(hazards, 1.0 - 1e-12))
    return logs


def _grouped(ages: Vector) -> tuple[Vector, NDArray[np.int64]]:
    """Group ages into cells; return the mean age of each cell, and the cell of each decision."""
    edges = np.unique(np.quantile(ages, np.linspace(0, 1, CELLS + 1)))
    cell = np.minimum(np.searchsorted(edges, ages, side="right") - 1, max(len(edges) - 2, 0))
    count = np.bincount(cell)
    filled = count > 0
    typical = np.bincount(cell, weights=ages)[filled] / count[filled]
    return typical, (np.cumsum(filled) - 1)[cell].astype(np.int64)


def _outcomes(
    table: DecisionTable, ahead: list[int | None], rng: np.random.Generator
) -> tuple[int, list[Matrix]]:
    """Sample the number of rewards to come if all are reported: expected, minimum and maximum."""
    limit = table.retention if table.rewards.window_us is None else table.rewards.window_us
    end = np.inf if limit is None else float(limit)
    ages = table.age[~table.arrived & (table.age < end)]
    if not len(ages):
        return 0, [np.zeros((3, DRAWS)) for _ in ahead]
    times, rises, at_risk = _cells(table)
    # A decision without a reward shows that none arrived up to its age, even after the last reward.
    followed = np.where(table.arrived, table.delay, table.age)
    last = float(np.sort(followed)[-min(FEW, len(table))])
    logs = np.cumsum(_drawn_logs(rises, at_risk, rng)[:, times <= last], axis=1)
    logs = np.concatenate([np.zeros((DRAWS, 1)), logs], axis=1)
    times = times[times <= last]
    rate = _tail_rate(table, last, rng)

    def log_left(age: Vector) -> Matrix:
        within = logs[:, np.searchsorted(times, age, side="right")]
        log_share: Matrix = within - rate[:, None] * np.maximum(age - last, 0.0)
        return log_share

    typical, cell = _grouped(ages)
    waiting = np.bincount(cell)
    now, counts = log_left(typical), []
    for span in ahead:
        until = _until(typical, span, end, waiting, last)
        remaining = (
            np.exp(log_left(until) - now) if np.isfinite(until).all() else np.zeros(now.shape)
        )
        beyond = (until > last) & np.isfinite(until)
        seen = np.exp(log_left(np.maximum(np.minimum(until, last), typical)) - now)
        drawn = rng.binomial(waiting, 1.0 - remaining)
        fewest, most = drawn.copy(), drawn.copy()  # they differ only beyond the end of the curve
        fewest[:, beyond] = rng.binomial(waiting[beyond], 1.0 - seen[:, beyond])
        most[:, beyond] = waiting[beyond]
        counts.append(np.array([cells.sum(axis=1) for cells in (drawn, fewest, most)]))
    return len(ages), counts


def _until(
    ages: Vector, span: int | None, end: float, pending: NDArray[np.int64], last: float
) -> Vector:
    """Return the age of each group of decisions at a horizon.

    Args:
        ages: current age of each group.
        span: the horizon; None means until age ``end``.
        end: age after which no reward counts; infinite if every decision eventually has a reward.
        pending: number of pending decisions in each group.
        last: the longest delay about which the log has information.

    Raises:
        NotEvaluable: more than the share :data:`UNSEEN` of the pending decisions would be older
            than ``last``.
    """
    until = np.full(len(ages), end) if span is None else np.minimum(ages + span, end)
    until = np.maximum(until, ages)
    beyond = pending[(until > last) & np.isfinite(until)].sum()
    if beyond > UNSEEN * pending.sum():
        share, days = beyond / pending.sum(), last / 86_400e6
        message = f"{share:.0%} of the pending decisions will be older than the longest delay"
        raise NotEvaluable(
            f"{message} observed in the log ({days:.3g} days): use a shorter forecast horizon, or"
            " wait until decisions are as old as the window"
        )
    return until


def _tail_rate(table: DecisionTable, last: float, rng: np.random.Generator) -> Vector:
    """Sample the hazard after the end of the curve, per microsecond, from the last part of it."""
    start = (1.0 - LAST_PART) * last
    delay = np.minimum(table.delay, table.age)
    exposure = np.clip(np.minimum(delay, last) - start, 0.0, None).sum()
    events = (table.arrived & (table.delay > start) & (table.delay <= last)).sum()
    rate: Vector = rng.gamma(events + 0.5, 1.0, DRAWS) / max(float(exposure), 1.0)
    return rate


def _conversions(
    table: DecisionTable, ahead: list[int | None], rng: np.random.Generator
) -> tuple[int, list[Matrix]]:
    """Sample the number of conversions to come."""
    last = float(np.sort(table.age)[-min(FEW, len(table))])
    window = np.inf if table.rewards.window_us is None else float(table.rewards.window_us)
    end = max(window, min(float(table.delay[table.arrived].max()), last))  # includes late rewards
    times, rises, at_risk = _cells(table)
    parts = _drawn_logs(rises, at_risk, rng)[:, :0:-1]
    shares = np.exp(np.concatenate([np.zeros((DRAWS, 1)), np.cumsum(parts, axis=1)], axis=1))
    shares = np.concatenate([np.zeros((DRAWS, 1)), shares[:, ::-1]], axis=1)

    def arrived_by(age: Vector) -> Matrix:
        arrived: Matrix = shares[:, np.searchsorted(times, age, side="right")]
        return arrived

    means = table.mean if (table.mean > 0.0).all() else np.ones(len(table))
    typical, cell = _grouped(table.age)
    decisions, conversions = np.bincount(cell), np.bincount(cell, weights=table.arrived)
    rate = np.bincount(cell, weights=means) / decisions
    now = arrived_by(typical)
    expected = now * (rate * decisions)
    group = _strata(expected.mean(axis=0), conversions.sum())
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    seen = np.maximum(np.add.reduceat(conversions, starts), 0.5)
    scale = rng.gamma(seen, size=(DRAWS, len(seen))) / np.add.reduceat(expected, starts, axis=1)
    chance = np.minimum(scale[:, np.cumsum(np.diff(group, prepend=-1) > 0) - 1] * rate, SUREST)
    waiting = (decisions - conversions).astype(np.int64)
    pending = np.where(typical < end, waiting, 0)
    counts = []
    for span in ahead:
        later = arrived_by(_until(typical, span, end, pending, last))
        to_come = chance * (later - now) / (1.0 - chance * now)
        counts.append(np.tile(rng.binomial(waiting, to_come).sum(axis=1), (3, 1)))
    return int(pending.sum()), counts


def _strata(expected: Vector, conversions: float) -> NDArray[np.int64]:
    """Return the group of each age cell; groups have about the same number of conversions.

    Predictions are rescaled within each group, because a learning model becomes more accurate.
    """
    count = int(np.clip(conversions // ENOUGH, 1, STRATA))
    place = (np.cumsum(expected) - expected / 2) / expected.sum()
    groups: NDArray[np.int64] = np.minimum(count * place, count - 1).astype(np.int64)
    return groups
