"""What a frozen policy would have earned: doubly robust, with weights by delay.

π is the policy that is evaluated, p the propensity, w = π/p of the chosen action, ω the weight of
what has arrived, q̂ a cross-fitted model of the reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from belated.core.inputs import Vector
from belated.core.results import Result
from belated.core.times import Duration
from belated.evaluation.arrivals import arrival_weights, estimand, final_age, reach_of, within
from belated.evaluation.requests import Offers
from belated.evaluation.sequences import betting_interval
from belated.evaluation.table import DecisionTable, Mask
from belated.exceptions import NotEvaluable
from belated.model.estimators.laplace import fit_rows
from belated.model.families import Family

#: The greatest share of the policy's choices that the log could not have made.
UNSUPPORTED = 0.01
#: Standard errors beyond which the mean of weights that should average 1 is not chance.
SURE = 3.0
#: Effective decisions by the design below which nothing is said, and a warning is given.
REFUSED, WEAK = 20.0, 60.0
#: Where a missing reward counts, it counts here by so many rewards at least.
FEW_REWARDS = 20


@dataclass(frozen=True)
class Value(Result):
    """What a policy would have earned, per decision.

    Attributes:
        value: mean reward of a decision.
        low: lower end of the interval, at the time of the evaluation.
        high: upper end.
        always: the interval that holds at all times, by decisions older than the limit or the
            window; None if there is neither, no decision is so old, or rewards have no bounds.
        level: of the intervals.
        estimand: what this is the value of, in words.
        decisions: that were evaluated.
        arrived: of which the outcome is known.
        effective: decisions that would tell as much if the policy had made them, as drawn.
        design: the same as the propensities let expect: this decides what is refused. As drawn, if
            the log says only the propensity of the chosen action.
        unsupported: share of the policy's choices that the log could not have made; 0 if only
            the propensity of the chosen action is known, and its weights average 1.
        model_only: what the reward model alone says.
        ips: inverse propensity weighting, for comparison with other tools.
        snips: the same, self-normalised.
        dr: doubly robust, not self-normalised.
        notes: what weakens it.
    """

    value: float
    low: float
    high: float
    always: tuple[float, float] | None
    level: float
    estimand: str
    decisions: int
    arrived: int
    effective: float
    design: float
    unsupported: float
    model_only: float
    ips: float
    snips: float
    dr: float
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Value({self.value:.4g}, low={self.low:.4g}, high={self.high:.4g})"


def off_policy_value(
    table: DecisionTable,
    offers: Offers,
    target: Vector,
    family: Family,
    *,
    limit: Duration | None = None,
    level: float = 0.95,
    predicted: Vector | None = None,
) -> Value:
    """Return what a frozen policy would have earned, by decisions that others made.

    Args:
        table: of the decisions; all of them took effect.
        offers: what they were chosen from.
        target: probability that the policy gives each row; fixed before these decisions.
        family: of the rewards, for the model of them.
        limit: count rewards that come within this time only; None: all that could be seen.
        level: of the intervals.
        predicted: mean reward of each row by a model of your own, instead of the fitted one.

    Raises:
        NotEvaluable: the log has not tried what the policy would do, or too little.
    """
    reach = reach_of(table, limit)
    delay, age = within(table.delay, reach), table.age
    among = 1.0 / offers.kept
    omega = arrival_weights(delay, age, among)
    chosen = offers.propensity[offers.chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(chosen > 0.0, target[offers.chosen] / chosen, 0.0)
    conversions = table.conversions
    # With conversions, rewards are counted from that of silence.
    shift = table.rewards.default if conversions else 0.0
    reward = np.where(omega > 0.0, table.value - shift, 0.0)
    window = table.rewards.window_us
    known = omega > 0.0
    if conversions and window is not None:
        known = known | (age >= window)
    unsupported, design = support(offers, target, known, among, ratio)
    _check(unsupported, design, int(known.sum()), int((omega > 0.0).sum()), conversions)
    if conversions:  # silence is an outcome: all decisions count, and what arrived stands for more
        outcome, model_weight = omega * reward, among
    else:
        outcome, model_weight = reward, among * omega
    if predicted is None:
        predicted = cross_fitted(offers, outcome + shift, model_weight, family)
    means, weight = predicted - shift, model_weight * ratio
    direct = offers.sums(target * means)
    residual = outcome - means[offers.chosen]
    used = weight > 0.0
    effective = float(weight.sum() ** 2 / np.square(weight).sum()) if used.any() else 0.0
    point, low, high = interval(
        direct, among, weight[used], residual[used], min(effective, design), level
    )
    total = model_weight.sum()
    direct_mean = float((among * direct).sum() / among.sum())
    return Value(
        value=shift + point,
        low=shift + low,
        high=shift + high,
        always=_always(table, ratio, among, limit, family, level),
        level=level,
        estimand=estimand("mean reward of a decision", table, limit),
        decisions=len(table),
        arrived=int(known.sum()),
        effective=effective,
        design=design,
        unsupported=unsupported,
        model_only=shift + direct_mean,
        ips=shift + float((weight * outcome).sum() / total),
        snips=shift + float((weight * outcome).sum() / weight.sum()),
        dr=shift + direct_mean + float((weight * residual).sum() / total),
        notes=_notes(design, table, reach, offers),
    )


def support(
    offers: Offers, target: Vector, known: Mask, among: Vector, ratio: Vector
) -> tuple[float, float]:
    """How much of a policy the log could not have shown, and how many decisions it is worth.

    Both are of the design, so that luck does not hide what was never tried. If only the propensity
    of the chosen action is known, the weights of the choices estimate both.

    Args:
        offers: what was on offer.
        target: probability that the policy gives each row.
        known: decisions whose outcome is known.
        among: how much each decision counts.
        ratio: probability of the chosen action under the policy, over its propensity.

    Raises:
        NotEvaluable: the weights do not average 1.
    """
    if np.isnan(offers.propensity).any():
        _check_weights(ratio, among)
        unsupported, squares = 0.0, np.square(ratio)
    else:
        tried = offers.propensity > 0.0
        blind = offers.sums(np.where(tried, 0.0, target))
        unsupported = float((among * blind).sum() / among.sum())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            squares = offers.sums(np.where(tried, np.square(target) / offers.propensity, 0.0))
    per_decision = squares[known]
    if not len(per_decision) or not per_decision.any():
        return unsupported, 0.0
    counts = among[known]
    size = counts.sum() ** 2 / np.square(counts).sum()
    return unsupported, float(size * counts.sum() / (counts * per_decision).sum())


def _check_weights(ratio: Vector, among: Vector) -> None:
    """Refuse weights whose mean is not 1: the log has not tried what the policy does."""
    total = among.sum()
    mean = float((among * ratio).sum() / total)
    error = math.sqrt(float(np.square(among * (ratio - mean)).sum())) / total
    if abs(mean - 1.0) <= UNSUPPORTED + SURE * error:
        return
    message = f"the weights of what was chosen average {mean:.2f}, and 1 was expected"
    why = "the propensities are not those with which these actions were chosen"
    if mean < 1.0:
        why = f"either the log hardly tried what this policy would choose, or {why}"
    raise NotEvaluable(
        f"{message}: {why}; check the column, or evaluate a policy nearer to the one that chose"
    )


def interval(
    direct: Vector, among: Vector, weight: Vector, residual: Vector, effective: float, level: float
) -> tuple[float, float, float]:
    """The estimate and its score interval.

    Args:
        direct: what the model says of each decision.
        among: how much each decision counts.
        weight: of the residuals.
        residual: outcome minus prediction, of the same.
        effective: number of decisions it is worth: its quantiles are those of Student's law.
        level: of the interval.
    """
    total = among.sum()
    mean = float((among * direct).sum() / total)
    error = math.sqrt(float(np.square(among * (direct - mean)).sum())) / total
    c = float(stdtrit(max(effective - 1.0, 1.0), 0.5 + level / 2))
    a, b = float((weight * residual).sum()), float(weight.sum())
    squares = np.square(weight)
    cc = float((squares * np.square(residual)).sum())
    d, e = float((squares * residual).sum()), float(squares.sum())
    lead = b * b - c * c * e
    if lead <= 0.0:
        greatest = float(weight.max() / weight.sum())
        message = f"a few decisions carry all the weight (the greatest has {greatest:.0%})"
        raise NotEvaluable(f"{message}: evaluate a policy nearer to the one that chose")
    half = a * b - c * c * d
    root = math.sqrt(max(half * half - lead * (a * a - c * c * cc), 0.0))
    delta, low, high = a / b, (half - root) / lead, (half + root) / lead
    point = mean + delta
    return (
        point,
        point - math.hypot(delta - low, c * error),
        point + math.hypot(high - delta, c * error),
    )


def _check(unsupported: float, design: float, known: int, rewards: int, conversions: bool) -> None:
    if unsupported > UNSUPPORTED:
        message = f"{unsupported:.0%} of what this policy would choose was never tried, for its"
        raise NotEvaluable(
            f"{message} propensity was 0: give the policy that decides a floor, such as 0.02, and"
            " evaluate what it decides from then on"
        )
    if design < REFUSED:
        message = f"{known:,} outcomes tell as much of this policy as {design:.1f} of its own"
        raise NotEvaluable(
            f"{message}, and at least {REFUSED:.0f} are needed: wait for more, give the policy that"
            " decides a greater floor, or evaluate one that is nearer to it"
        )
    if conversions and rewards < FEW_REWARDS:
        message = f"{rewards} rewards have come, and at least {FEW_REWARDS} are needed"
        raise NotEvaluable(f"{message}: wait for more")


def _always(
    table: DecisionTable,
    ratio: Vector,
    among: Vector,
    limit: Duration | None,
    family: Family,
    level: float,
) -> tuple[float, float] | None:
    """The interval by decisions whose outcome is final, in the order they were made.

    Final is what is older than a time that was fixed before: the limit, or the window. If every
    outcome is reported, one that has not come by then may be anything, and counts as the worst.
    """
    least, most = table.rewards.range(family.support)
    horizon = final_age(table, limit)
    if horizon is None:
        return None
    final = table.age >= horizon
    if not math.isfinite(most - least) or not final.any() or (among != among[0]).any():
        return None
    places = np.flatnonzero(final)
    places = places[np.argsort(table.made[places], kind="stable")]
    came = table.delay[places] <= horizon
    silent = (table.rewards.default,) * 2 if table.conversions else (least, most)
    worst, best = (np.where(came, table.value[places], one) for one in silent)
    low, high = betting_interval(
        ratio[places] * (worst - least) / (most - least),
        ratio[places] * (most - best) / (most - least),
        level,
    )
    return least + low * (most - least), least + high * (most - least)


def _notes(design: float, table: DecisionTable, reach: float, offers: Offers) -> tuple[str, ...]:
    notes = []
    if np.isnan(offers.propensity).any():
        notes.append("only propensities of chosen actions are known: support is judged as drawn")
    if design < WEAK:
        notes.append(f"the outcomes tell as much as {design:.0f} of the policy's own: wide")
    window = table.rewards.window_us
    if window is not None and reach < window:
        notes.append("no decision is as old as the window: later rewards are not in the value")
    return tuple(notes)


# --- a model of rewards ---------------------------------------------------------------------------

#: Folds: what a decision is predicted with was not fitted to it.
FOLDS = 5


def cross_fitted(offers: Offers, outcome: Vector, weight: Vector, family: Family) -> Vector:
    """Return the predicted mean of every row, each by a model that did not see its decision.

    Args:
        offers: of the decisions.
        outcome: what the chosen row of each came to; may be anything where its weight is 0.
        weight: how much each counts.
        family: of the rewards.
    """
    fold = np.random.default_rng(0).integers(FOLDS, size=len(offers))
    outcome = np.where(weight > 0.0, outcome, 0.0)
    row_fold = np.repeat(fold, offers.counts)
    means = np.empty(len(offers.rows))
    for block, numbers in offers.by_block():
        chosen = np.flatnonzero(np.isin(offers.chosen, block))  # decisions
        rows = numbers[np.searchsorted(block, offers.chosen[chosen])]
        for one in range(FOLDS):
            others = (fold[chosen] != one) & (weight[chosen] > 0.0)
            used = chosen[others]
            theta = fit_rows(rows[others], outcome[used], weight[used], family)
            here = row_fold[block] == one
            means[block[here]] = family.mean(numbers[here] @ theta)
    return means
