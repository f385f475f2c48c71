"""Off-policy values against the truth: errors, and which intervals cover it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.evaluation.arrivals import arrival_weights
from belated.evaluation.requests import Offers
from belated.evaluation.sequences import betting_interval, is_rejected
from belated.evaluation.table import DecisionTable
from belated.evaluation.values import cross_fitted, off_policy_value
from belated.exceptions import NotEvaluable
from experiments.evaluation.logs import (
    FAMILY,
    POLICIES,
    ROUND,
    WITHOUT_FLOOR,
    Log,
    World,
    log_of,
    true_values,
)

#: How often the confidence sequence is looked at.
LOOKS = 20


def measure(policy: str, delay: str, seed: int) -> list[dict[str, Any]]:
    """One log, a line for each policy that is evaluated; as conversions too if delays depend."""
    log = log_of((POLICIES | WITHOUT_FLOOR)[policy], delay, seed)
    truths, targets = true_values(seed), World.of(seed).targets(log.rows, seed)
    lines = []
    for conversions in (False, True) if "dependent" in delay else (False,):
        lines += _evaluated(policy, delay, seed, log, truths, targets, conversions)
    return lines


def _evaluated(
    policy: str,
    delay: str,
    seed: int,
    log: Log,
    truths: dict[str, float],
    targets: dict[str, Any],
    conversions: bool,
) -> list[dict[str, Any]]:
    table, offers = log.table(conversions), log.offers
    predicted = _model(table, offers)
    lines = []
    for name, share in targets.items():
        target, truth = share.reshape(-1), truths[name]
        line: dict[str, Any] = {
            "policy": policy,
            "delay": delay,
            "rewards": "conversions" if conversions else "explicit",
            "target": name,
            "seed": seed,
            "refused": True,
        }
        try:
            value = off_policy_value(table, offers, target, FAMILY, predicted=predicted)
        except NotEvaluable:
            lines.append(line)
            continue
        normal = _normal_width(table, offers, target, predicted, conversions)
        line |= {
            "refused": False,
            "design": value.effective_sample_size,
            "error": value.value - truth,
            "covered": value.low <= truth <= value.high,
            "width": min(value.high, 1.0) - max(value.low, 0.0),
            "normal_covered": abs(value.dr - truth) <= normal,
            "normal_width": min(value.dr + normal, 1.0) - max(value.dr - normal, 0.0),
            **_always(table, offers, target, log.longest, truth, seed % 10 == 0),
        }
        lines.append(line)
    return lines


def _model(table: DecisionTable, offers: Offers) -> Any:
    """The same model that is fitted if none is given; all targets share it."""
    omega = arrival_weights(table.delay, table.age)
    reward = np.where(omega > 0.0, table.value, 0.0)
    if table.conversions:
        return cross_fitted(offers, omega * reward, np.ones(len(table)), FAMILY)
    return cross_fitted(offers, reward, omega, FAMILY)


def _normal_width(
    table: DecisionTable, offers: Offers, target: Any, predicted: Any, conversions: bool
) -> float:
    """Half the width of the usual interval of a doubly robust estimate."""
    omega = arrival_weights(table.delay, table.age)
    reward = np.where(omega > 0.0, table.value, 0.0)
    ratio = target[offers.chosen] / offers.propensity[offers.chosen]
    means = predicted[offers.chosen]
    direct = offers.sums(target * predicted)
    if conversions:
        terms = direct + ratio * (omega * reward - means)
    else:
        residual = ratio * (reward - means)
        middle = (omega * residual).sum() / omega.sum()
        terms = direct + omega / omega.mean() * (residual - middle)
    return float(1.959964 * terms.std() / math.sqrt(len(terms)))


def _always(
    table: DecisionTable, offers: Offers, target: Any, longest: int, truth: float, wide: bool
) -> dict[str, Any]:
    """Whether the truth is never rejected at any time; and how wide the interval ends."""
    final = table.age >= longest * ROUND
    has_arrived = table.delay <= longest * ROUND
    if not table.conversions and not has_arrived[final].all():
        raise AssertionError("an outcome came later than it can")
    value = np.where(has_arrived, table.value, 0.0)[final]
    ratio = (target[offers.chosen] / offers.propensity[offers.chosen])[final]
    terms, mirrored = ratio * value, ratio * (1.0 - value)
    looks = np.linspace(0, len(terms), LOOKS + 1).astype(int)[1:]
    rejected = any(
        is_rejected(terms[:look], truth, 0.025) or is_rejected(mirrored[:look], 1.0 - truth, 0.025)
        for look in looks
    )
    row: dict[str, Any] = {"always": not rejected}
    if wide:  # a search: for some logs only
        low, high = betting_interval(terms, mirrored, 0.95, 1e-3)
        row["always_width"] = high - low
    return row
