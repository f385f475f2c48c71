"""Delay curves, forecasts and tests of dependence against the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated import DefaultAfter, Explicit
from belated.evaluation.columns import NEVER
from belated.evaluation.delays import delay_curve, delay_depends
from belated.evaluation.forecasts import forecast
from belated.evaluation.table import DecisionTable
from belated.exceptions import NotEvaluable

DAY = 86_400_000_000
START = 1_700_000_000_000_000
DAYS = 100
#: Shares of the rewards at whose ages the band is held against the truth.
POINTS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
#: How far a forecast looks, in days.
AHEAD = 10

#: Decisions, and the share of their rewards that is pending.
CASES = {
    "200 decisions, 0 % pending": (200, 0.0),
    "400 decisions, 50 % pending": (400, 0.5),
    "2,000 decisions, 50 % pending": (2_000, 0.5),
    "2,000 decisions, 90 % pending": (2_000, 0.9),
}
#: Of conversions: decisions, mean delay in days before the cut at 70, rates at start and end.
RATES = {
    "2,000 decisions, fast, rate .05 to .30": (2_000, 25.0, 0.05, 0.30),
    "2,000 decisions, slow, rate .05 to .30": (2_000, 60.0, 0.05, 0.30),
    "4,000 decisions, fast, rate .10": (4_000, 25.0, 0.10, 0.10),
}
WINDOW = 70
#: Of dependence: on what, decisions, mean delay in days, how much slower, and a trend in delays.
TESTS = {
    "action, none, 20 % pending": ("action", 2_000, 20.0, 1.0, 0.0),
    "action, none, 50 % pending, trend": ("action", 2_000, 63.0, 1.0, 2.0),
    "action, twice as slow, 20 % pending": ("action", 2_000, 20.0, 2.0, 0.0),
    "reward, none, 20 % pending": ("reward", 2_000, 20.0, 1.0, 0.0),
    "reward, none, 50 % pending, trend": ("reward", 2_000, 63.0, 1.0, 2.0),
    "reward, twice as slow, 20 % pending": ("reward", 2_000, 20.0, 2.0, 0.0),
    "reward, twice as slow, 50 % pending": ("reward", 2_000, 63.0, 2.0, 0.0),
}


def mean_delay(pending: float) -> float:
    """The mean of exponential delays, in days, with which so much is pending at the end."""
    if pending == 0.0:
        return 0.5
    low, high = 1e-3, 1e3
    for _ in range(80):
        middle = math.sqrt(low * high)
        if middle * -math.expm1(-1.0 / middle) < pending:
            low = middle
        else:
            high = middle
    return middle * DAYS


def measure(case: str, seed: int) -> list[dict[str, Any]]:
    """A curve where every outcome is told, and how many come within ten days."""
    count, pending = CASES[case]
    rng = np.random.default_rng([250, list(CASES).index(case), seed])
    mean = mean_delay(pending)
    # Of nothing that is pending, the log goes on for a while after the last decision.
    now = START + DAYS * DAY + (0 if pending else 20 * DAY)
    decided = START + np.sort(rng.integers(DAYS * DAY, size=count))
    arrived = decided + (rng.exponential(mean, count) * DAY).astype(np.int64)
    is_reported = arrived <= now
    table = DecisionTable.of(
        made=decided,
        rewarded=np.where(is_reported, arrived, NEVER),
        value=np.where(is_reported, 1.0, np.nan),
        rewards=Explicit(),
        as_of=now,
    )
    curve, lines = delay_curve(table), []
    for share in POINTS:
        age = -mean * math.log1p(-share)
        if age < 0.9 * DAYS:
            value, low, high = curve.at_us(age * DAY)
            line = {"case": case, "seed": seed, "target": f"F = {share}"}
            lines.append(
                line
                | {"error": value - share, "covered": low <= share <= high, "width": high - low}
            )
    true = int(((arrived > now) & (arrived <= now + AHEAD * DAY)).sum())
    try:
        expected = forecast(table, f"{AHEAD}d").expected[0]
    except NotEvaluable:  # the log has not seen delays as long as it would need
        return lines
    line = {"case": case, "seed": seed, "target": f"rewards of the next {AHEAD} days"}
    covered = expected.low <= true <= expected.high
    return [*lines, line | {"error": expected.mean - true, "covered": covered}]


def measure_conversions(case: str, seed: int) -> list[dict[str, Any]]:
    """A curve where only conversions are told, and how many are still to come."""
    count, mean, first, last = RATES[case]
    rng = np.random.default_rng([251, list(RATES).index(case), seed])
    now = START + DAYS * DAY
    decided = START + np.sort(rng.integers(DAYS * DAY, size=count))
    rate = first + (last - first) * (decided - START) / (DAYS * DAY)
    converts = rng.random(count) < rate
    cut = -math.expm1(-WINDOW / mean)
    delay = -mean * np.log1p(-rng.random(count) * cut)
    arrived = decided + (delay * DAY).astype(np.int64)
    is_reported = converts & (arrived <= now)
    table = DecisionTable.of(
        made=decided,
        rewarded=np.where(is_reported, arrived, NEVER),
        value=np.where(is_reported, 1.0, np.nan),
        rewards=DefaultAfter(f"{WINDOW}d"),
        mean=0.8 * rate,  # predictions are off by a fifth
        as_of=now,
    )
    curve, lines = delay_curve(table), []
    for share in (0.25, 0.5, 0.75, 0.9):
        age = -mean * math.log1p(-share * cut)
        value, low, high = curve.at_us(age * DAY)
        line = {"case": case, "seed": seed, "target": f"F = {share}"}
        lines.append(line | {"error": value - share, "covered": low <= share <= high})
    for ahead, name in ((None, "all to come"), (AHEAD, f"conversions of the next {AHEAD} days")):
        until = np.inf if ahead is None else now + ahead * DAY
        true = int((converts & (arrived > now) & (arrived <= until)).sum())
        try:
            expected = forecast(table, None if ahead is None else f"{ahead}d").expected[0]
        except NotEvaluable:
            continue
        line = {"case": case, "seed": seed, "target": name}
        covered = expected.low <= true <= expected.high
        lines.append(line | {"error": expected.mean - true, "covered": covered})
    return lines


def measure_dependence(case: str, seed: int) -> list[dict[str, Any]]:
    """A test, while rewards and actions drift."""
    on, count, mean, slower, trend = TESTS[case]
    rng = np.random.default_rng([252, list(TESTS).index(case), seed])
    now = START + DAYS * DAY
    decided = START + np.sort(rng.integers(DAYS * DAY, size=count))
    passed = (decided - START) / (DAYS * DAY)
    reward = rng.random(count) < 0.1 + 0.4 * passed
    action = rng.random(count) < 0.4 + 0.5 * passed
    is_slow = reward if on == "reward" else action
    scale = mean * (1.0 + trend * passed) * np.where(is_slow, slower, 1.0)
    arrived = decided + (rng.exponential(scale) * DAY).astype(np.int64)
    is_reported = arrived <= now
    table = DecisionTable.of(
        made=decided,
        rewarded=np.where(is_reported, arrived, NEVER),
        value=np.where(is_reported, reward.astype(np.float64), np.nan),
        action=np.where(action, "b", "a"),
        rewards=Explicit(),
        as_of=now,
    )
    test = delay_depends(table, on)  # type: ignore[arg-type]
    return [{"case": case, "seed": seed, "rejected": test.p < 0.05}]
