"""Lift over a holdout, where groups differ in delay, and where one looks every day.

A day has 1,000 decisions, a tenth of them held out; rewards come within 20 days. The holdout earns
.10 a decision, the bandit as much or, once it has learned, .03 more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from belated import DefaultAfter, Explicit
from belated.evaluation.columns import NEVER
from belated.evaluation.lifts import final_difference, lift
from belated.evaluation.table import DecisionTable

DAY = 86_400_000_000
#: When every log begins.
START = 1_700_000_000_000_000
WINDOW, SHARE, BASE, GAIN = 20, 0.1, 0.10, 0.03
#: Whether the bandit gains, how fast rewards come to bandit and holdout (mean in days, before the
#: cut at the window), whether every outcome is told, and the days of a log.
CASES: dict[str, tuple[bool, tuple[float, float], bool, int]] = {
    "null, equal delays": (False, (6.0, 6.0), False, 40),
    "null, bandit slower": (False, (10.0, 3.0), False, 40),
    "null, bandit slower, explicit": (False, (10.0, 3.0), True, 40),
    "gain, equal delays": (True, (6.0, 6.0), False, 60),
    "gain, bandit slower": (True, (10.0, 3.0), False, 60),
}
#: Cases that are looked at every day, with the decisions of a day.
LOOKS = {"null, bandit slower": 200, "null, equal delays": 200}
DAYS = 90


def _log(case: str, days: int, a_day: int, rng: np.random.Generator) -> tuple[Any, ...]:
    gains, (slow, fast), _, _ = CASES[case]
    count = days * a_day
    decided = START + np.sort(rng.integers(days * DAY, size=count))
    in_holdout = rng.random(count) < SHARE
    chance = np.full(count, BASE)
    if gains:
        chance = np.where(
            in_holdout, BASE, BASE + GAIN * (1.0 - np.exp(-(decided - START) / (10.0 * DAY)))
        )
    reward = (rng.random(count) < chance).astype(np.float64)
    scale = np.where(in_holdout, fast, slow)
    cut = 1.0 - np.exp(-WINDOW / scale)
    delay = (-scale * np.log1p(-rng.random(count) * cut) * DAY).astype(np.int64)
    return decided, in_holdout, chance, reward, delay


def _table(case: str, log: tuple[Any, ...], now: int) -> DecisionTable:
    decided, in_holdout, _, reward, delay = log
    here = decided <= now
    decided, in_holdout, reward, arrived = (
        decided[here],
        in_holdout[here],
        reward[here],
        (decided + delay)[here],
    )
    explicit = CASES[case][2]
    is_reported = (arrived <= now) & (explicit | (reward > 0.0))
    group = np.where(in_holdout, "holdout", "bandit")
    return DecisionTable.of(
        made=decided,
        rewarded=np.where(is_reported, arrived, NEVER),
        value=np.where(is_reported, reward, np.nan),
        group=group,
        rewards=Explicit(f"{WINDOW}d") if explicit else DefaultAfter(f"{WINDOW}d"),
        as_of=now,
    )


def _known_by(table: DecisionTable, now: int) -> DecisionTable:
    """What was known at an earlier time."""
    table = table.select(table.made <= now)
    is_reported = table.rewarded <= now
    return replace(
        table,
        rewarded=np.where(is_reported, table.rewarded, NEVER),
        value=np.where(is_reported, table.value, np.nan),
        as_of=now,
    )


def measure(case: str, seed: int) -> list[dict[str, Any]]:
    """One log, evaluated once."""
    rng = np.random.default_rng([240, list(CASES).index(case), seed])
    days = CASES[case][3]
    log = _log(case, days, 1_000, rng)
    decided, in_holdout, chance, reward, delay = log
    truth = float((chance - BASE).mean()) / (1.0 - SHARE) if CASES[case][0] else 0.0
    table = _table(case, log, START + days * DAY)
    result = lift(table)
    arrived = decided + delay <= START + days * DAY
    explicit = CASES[case][2]
    means, errors = [], []
    for group in (~in_holdout, in_holdout):
        here = group & arrived if explicit else group
        so_far = (reward * arrived)[here]
        means.append(so_far.mean())
        errors.append(so_far.var() / len(so_far))
    plain, error = means[0] - means[1], float(np.sqrt(sum(errors)))
    line = {
        "case": case,
        "seed": seed,
        "error": result.difference - truth,
        "covered": result.low <= truth <= result.high,
        "rejected": result.p < 0.05,
        "width": result.high - result.low,
        "plain_rejected": bool(abs(plain) > 1.96 * error),
    }
    return [line]


def look(case: str, seed: int) -> list[dict[str, Any]]:
    """One log, looked at every day: whether there is ever an alarm."""
    rng = np.random.default_rng([241, list(CASES).index(case), seed])
    log = _log(case, DAYS, LOOKS[case], rng)
    alarm = peeked = False
    whole = _table(case, log, START + (DAYS + WINDOW) * DAY)
    for day in range(WINDOW + 2, DAYS + 1):
        result = final_difference(_known_by(whole, START + day * DAY))
        if result is not None:
            alarm |= not result[1] <= 0.0 <= result[2]
            peeked |= abs(result[0]) > 1.96 * _error(log, START + (day - WINDOW) * DAY)
    return [{"case": case, "seed": seed, "alarm": alarm, "peeking_alarm": peeked}]


def _error(log: tuple[Any, ...], until: int) -> float:
    """The standard error of a difference of means, by the decisions made until then."""
    decided, in_holdout, _, reward, _ = log
    parts = [reward[(decided <= until) & group] for group in (in_holdout, ~in_holdout)]
    return float(np.sqrt(sum(part.var() / len(part) for part in parts)))
