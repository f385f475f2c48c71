"""Do the intervals hold? A small part of ``experiments/evaluation``, on seeds of its own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from experiments.evaluation import curves, lifts, values
from experiments.evaluation.logs import WITHOUT_FLOOR

#: Seeds that no sweep uses.
FIRST = 500_000


def at_least(found: list[bool], share: float) -> bool:
    """Whether so few successes are not too unlikely, were their probability this share."""
    return bool(binom.cdf(sum(found), len(found), share) > 1e-4)


@pytest.mark.parametrize("delay", ["20 %, dependent", "50 %"])
def test_off_policy_intervals_hold(delay: str) -> None:
    """Off policy intervals hold."""
    lines = [
        line
        for seed in range(FIRST, FIRST + 20)
        for line in values.measure("Thompson, floor .02", delay, seed)
        if not line["refused"]
    ]
    assert len(lines) > 50
    errors = np.array([line["error"] for line in lines])
    assert abs(errors.mean()) < 0.01 + 4 * errors.std() / np.sqrt(len(errors) / 4)
    assert at_least([line["covered"] for line in lines], 0.93)
    assert at_least([line["always"] for line in lines], 0.95)


@pytest.mark.parametrize("policy", list(WITHOUT_FLOOR))
def test_logs_without_a_floor_are_refused(policy: str) -> None:
    """Logs without a floor are refused."""
    for seed in range(FIRST, FIRST + 3):
        assert all(line["refused"] for line in values.measure(policy, "20 %", seed))


@pytest.mark.parametrize("case", ["null, bandit slower", "null, bandit slower, explicit"])
def test_lift_holds_where_one_group_is_slower(case: str) -> None:
    """Lift holds where one group is slower."""
    lines = [lifts.measure(case, seed)[0] for seed in range(FIRST, FIRST + 60)]
    assert at_least([line["covered"] for line in lines], 0.93)
    if "explicit" not in case:
        assert np.mean([line["plain_rejected"] for line in lines]) > 0.2


def test_looking_every_day_gives_no_false_alarms() -> None:
    """Looking every day gives no false alarms."""
    lines = [lifts.look("null, bandit slower", seed)[0] for seed in range(FIRST, FIRST + 40)]
    assert at_least([not line["alarm"] for line in lines], 0.95)


def test_curves_and_forecasts_hold() -> None:
    """Curves and forecasts hold."""
    for case in ("400 decisions, 50 % pending", "2,000 decisions, 90 % pending"):
        runs = [curves.measure(case, seed) for seed in range(FIRST, FIRST + 60)]
        for lines in zip(*runs, strict=True):
            assert at_least([line["covered"] for line in lines], 0.91), lines[0]["target"]


def test_conversions_to_come_are_forecast() -> None:
    """Conversions to come are forecast."""
    case = "2,000 decisions, fast, rate .05 to .30"
    runs = [curves.measure_conversions(case, seed) for seed in range(FIRST, FIRST + 40)]
    for lines in zip(*runs, strict=True):
        assert at_least([line["covered"] for line in lines], 0.91), lines[0]["target"]


def test_dependence_has_its_size_and_power() -> None:
    """Dependence has its size and power."""
    for dependence in ("action", "reward"):
        null = f"{dependence}, none, 20 % pending"
        rejected = [
            curves.measure_dependence(null, seed)[0]["rejected"]
            for seed in range(FIRST, FIRST + 100)
        ]
        assert at_least([not is_rejected for is_rejected in rejected], 0.94)
        slow = f"{dependence}, twice as slow, 20 % pending"
        rejected = [
            curves.measure_dependence(slow, seed)[0]["rejected"]
            for seed in range(FIRST, FIRST + 20)
        ]
        assert at_least(rejected, 0.95)
