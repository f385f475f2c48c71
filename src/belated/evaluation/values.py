"""Off-policy values: what another policy would have earned if it had decided.

The estimate is self-normalized and doubly robust. Notation: π is the evaluated policy, p the
propensity, w = π/p of the chosen action (the importance weight), ω the inverse probability of
censoring weight of a reward, and q̂ a cross-fitted model of the reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from belated.core.inputs import MAX_REWARD, Vector
from belated.core.results import Result
from belated.core.times import Duration
from belated.evaluation.arrivals import arrival_weights, estimand, final_age, reach_of, within
from belated.evaluation.requests import Offers
from belated.evaluation.sequences import betting_interval
from belated.evaluation.table import DecisionTable
from belated.exceptions import NotEvaluable
from belated.model.estimators.laplace import fit_rows
from belated.model.families import Family

#: Maximum share of the policy's choices that may have propensity 0.
UNSUPPORTED = 0.01
#: Maximum distance of the mean importance weight from 1, in standard errors.
SURE = 3.0
#: Expected effective sample sizes below which an evaluation is refused, or carries a note.
REFUSED, WEAK = 30.0, 60.0
#: Number of bisection steps to find the end of an interval.
STEPS = 40


@dataclass(frozen=True)
class Value(Result):
    """Estimate of what a policy would have earned per decision.

    Attributes:
        value: mean reward per decision; the self-normalized doubly robust (SNDR) estimate.
        low: lower bound of the interval, for a single evaluation.
        high: upper bound of the interval.
        confidence_sequence: anytime-valid interval, from decisions older than the limit or the
            window. None if neither is set, if no decision is that old, or if neither the family nor
            the declared ``bounds`` limit the rewards.
        level: confidence level of the intervals.
        estimand: description of the estimated quantity.
        decisions: number of evaluated decisions.
        arrived: number of decisions whose outcome is known.
        kish_sample_size: effective sample size (Kish) of the importance weights as drawn.
        effective_sample_size: expected effective sample size, from the propensities and the
            arrived rewards. If it is too small, no value is returned. If only the propensity of the
            chosen action is known, this attribute is computed from the weights as drawn.
        unsupported: share of the policy's choices whose propensity was 0; 0 if only the propensity
            of the chosen action is known and the weights average 1.
        dm: estimate of the direct method, from the reward model alone.
        ips: estimate of inverse propensity scoring.
        snips: estimate of self-normalized inverse propensity scoring.
        dr: doubly robust estimate without self-normalization.
        notes: limitations of the estimate.
    """

    value: float
    low: float
    high: float
    confidence_sequence: tuple[float, float] | None
    level: float
    estimand: str
    decisions: int
    arrived: int
    kish_sample_size: float
    effective_sample_size: float
    unsupported: float
    dm: float
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
    """Estimate the value of a fixed policy from the decisions of other policies.

    Args:
        table: the decisions, all of which took effect.
        offers: the actions offered in the decisions.
        target: the policy's probability of each row. The policy must not have learned from these
            decisions.
        family: family of the rewards, for the reward model.
        limit: count only rewards that arrive within this time; None means all observable rewards.
        level: confidence level of the intervals.
        predicted: mean reward of each row, from your own model; by default, a model is fitted.

    Raises:
        NotEvaluable: the log contains too few of the policy's choices.
    """
    reach = reach_of(table, limit)
    delay, age = within(table.delay, reach), table.age
    among = 1.0 / offers.kept
    omega = arrival_weights(delay, age, among)
    chosen = offers.propensity[offers.chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(chosen > 0.0, target[offers.chosen] / chosen, 0.0)
    conversions = table.conversions
    # Conversions are measured relative to the default, the value of a missing reward.
    shift = table.rewards.default if conversions else 0.0
    reward = np.where(omega > 0.0, table.value - shift, 0.0)
    window = table.rewards.window_us
    is_known = omega > 0.0
    if conversions and window is not None:
        is_known = is_known | (age >= window)
    unsupported, design = support(offers, target, omega, among, ratio)
    _check(unsupported, design, int(is_known.sum()), int((omega > 0.0).sum()))
    if conversions:  # a decision without a reward is an outcome; ω scales the rewards
        outcome, model_weight = omega * reward, among
    else:
        outcome, model_weight = reward, among * omega
    if predicted is None:
        predicted = cross_fitted(offers, outcome + shift, model_weight, family)
    means, weight = predicted - shift, model_weight * ratio
    direct = offers.sums(target * means)
    prediction = means[offers.chosen]
    residual = outcome - prediction
    effective = float(weight.sum() ** 2 / max(np.square(weight).sum(), 1e-300))
    bounds = declared_range(table, family)
    least, most = bounds[0] - shift, bounds[1] - shift
    point, low, high = interval(
        direct, among, weight, outcome, prediction, min(effective, design), level, least, most,
        dispersion(outcome, prediction, model_weight, least, most),
    )  # fmt: skip
    value, low, high = np.clip(np.array([point, low, high]) + shift, *bounds).tolist()
    total = model_weight.sum()
    direct_mean = float((among * direct).sum() / among.sum())
    return Value(
        value=value,
        low=low,
        high=high,
        confidence_sequence=_confidence_sequence(
            table, ratio, among, limit, bounds, level, (high - low) / 10
        ),
        level=level,
        estimand=estimand("mean reward of a decision", table, limit),
        decisions=len(table),
        arrived=int(is_known.sum()),
        kish_sample_size=effective,
        effective_sample_size=design,
        unsupported=unsupported,
        dm=shift + direct_mean,
        ips=shift + float((weight * outcome).sum() / total),
        snips=shift + float((weight * outcome).sum() / weight.sum()),
        dr=shift + direct_mean + float((weight * residual).sum() / total),
        notes=_notes(design, table, reach, offers),
    )


def support(
    offers: Offers, target: Vector, omega: Vector, among: Vector, ratio: Vector
) -> tuple[float, float]:
    """Return the unsupported share of a policy's choices, and the effective sample size.

    Both are expectations over the policy's choices, so that chance cannot hide actions that were
    never tried. If only the propensities of chosen actions are known, both are estimated from the
    importance weights as drawn.

    Args:
        offers: the offered actions.
        target: the policy's probability of each row.
        omega: inverse probability of censoring weights; 0 if no reward has arrived.
        among: sampling weight of each decision.
        ratio: importance weights.

    Raises:
        NotEvaluable: the importance weights do not average 1.
    """
    here = ~np.isnan(offers.sums(offers.propensity))
    if here.any():
        tried = offers.propensity > 0.0
        blind = offers.sums(np.where(tried, 0.0, target))[here]
        unsupported = float((among[here] * blind).sum() / among[here].sum())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            squares = offers.sums(np.where(tried, np.square(target) / offers.propensity, 0.0))[here]
    else:
        _check_weights(ratio, among)
        here, unsupported, squares = here | True, 0.0, np.square(ratio)
    arrived = float((among * omega).sum())
    if not arrived or not squares.any():
        return unsupported, 0.0
    size = among.sum() ** 2 / np.square(among).sum()
    size *= arrived / (among * np.square(omega)).sum()
    return unsupported, float(size * among[here].sum() / (among[here] * squares).sum())


def _check_weights(ratio: Vector, among: Vector) -> None:
    """Raise NotEvaluable if the importance weights do not average 1."""
    total = among.sum()
    mean = float((among * ratio).sum() / total)
    error = math.sqrt(float(np.square(among * (ratio - mean)).sum())) / total
    if abs(mean - 1.0) <= UNSUPPORTED + SURE * error:
        return
    message = f"the importance weights average {mean:.2f} instead of 1"
    why = "the propensities are not those with which these actions were chosen"
    if mean < 1.0:
        why = f"either the log rarely tried what this policy would choose, or {why}"
    raise NotEvaluable(
        f"{message}: {why}. Check the propensities, or evaluate a policy closer to the logging"
        " policy, which made the decisions"
    )


def declared_range(table: DecisionTable, family: Family) -> tuple[float, float]:
    """Return the limits of a reward, from its family and the declared ``bounds``, or infinity."""
    least, most = table.rewards.range(family.support)
    return (
        least if least > -MAX_REWARD else -math.inf,
        most if most < MAX_REWARD else math.inf,
    )


def interval(
    direct: Vector,
    among: Vector,
    weight: Vector,
    outcome: Vector,
    prediction: Vector,
    effective: float,
    level: float,
    least: float = -math.inf,
    most: float = math.inf,
    dispersion: float = 0.0,
) -> tuple[float, float, float]:
    """Return the estimate and its score interval.

    The interval contains each mean that a score test does not reject: the error of the weighted
    outcomes is compared with its variance under that mean, not under the estimate. With equal
    weights and outcomes of 0 and 1, this is Wilson's interval. Unlike an interval from the
    estimated variance, it is valid even if the choices with large weights have few or no rewards.

    Args:
        direct: predicted mean of each decision under the policy.
        among: sampling weight of each decision.
        weight: weight of each outcome.
        outcome: outcome of each decision.
        prediction: predicted outcome of each decision.
        effective: effective sample size, which determines the quantile of Student's t.
        level: confidence level of the interval.
        least: smallest possible outcome.
        most: largest possible outcome.
        dispersion: dispersion of outcomes with a lower bound; see :func:`dispersion`.
    """
    total, b = among.sum(), float(weight.sum())
    mean = float((among * direct).sum() / total)
    error = math.sqrt(float(np.square(among * (direct - mean)).sum())) / total
    c = float(stdtrit(max(effective - 1.0, 1.0), 0.5 + level / 2))
    estimate = float((weight * outcome).sum()) / b
    delta = float((weight * (outcome - prediction)).sum()) / b
    deviation = outcome - prediction - delta
    squares = np.square(weight)
    observed = float((squares * np.square(deviation)).sum())
    if math.isfinite(least):
        estimate = min(max(estimate, least), most)
        by_mean = variance_by_mean(weight, prediction, least, most)
        expected = by_mean(estimate)
        factor = max(dispersion, observed / expected if expected > 0.0 else 0.0)

        def variance(at: float) -> float:
            return factor * by_mean(at)
    else:
        slope, curve = float((squares * deviation).sum()), float(squares.sum())

        def variance(at: float) -> float:
            return observed + (at - estimate) * (curve * (at - estimate) - 2.0 * slope)

    def is_rejected(at: float) -> bool:
        return (b * (at - estimate)) ** 2 > c * c * variance(at)

    low, high = (
        _farthest(estimate, end, is_rejected, side * (c * math.sqrt(observed) / b or 1.0))
        for end, side in ((least, -1.0), (most, 1.0))
    )
    point = mean + delta
    return (
        point,
        point - math.hypot(estimate - low, c * error),
        point + math.hypot(high - estimate, c * error),
    )


def dispersion(
    outcome: Vector, prediction: Vector, weight: Vector, least: float, most: float
) -> float:
    """Return Pearson's dispersion of outcomes over the whole log; 1 if they have no lower bound."""
    if not math.isfinite(least):
        return 1.0
    mean = float((weight * prediction).sum() / weight.sum())
    observed = float(np.square(weight * (outcome - prediction)).sum())
    return observed / variance_by_mean(weight, prediction, least, most)(mean)


def variance_by_mean(
    weight: Vector, prediction: Vector, least: float, most: float
) -> Callable[[float], float]:
    """Return the variance of the weighted sum of outcomes as a function of their weighted mean.

    Outcomes with two bounds are given the variance of a Bernoulli variable, outcomes with only a
    lower bound that of a Poisson variable. If the mean is below that of the predictions, the
    distances of the predictions from the lower bound are scaled; if it is above, their distances
    from the upper bound.
    """
    squares, total = np.square(weight), float(weight.sum())

    def distances(gap: Vector) -> tuple[float, float, float]:
        gap = np.maximum(gap, 1e-12)
        mean = float((weight * gap).sum()) / total
        return mean, float((squares * gap).sum()), float((squares * np.square(gap)).sum())

    below = distances(prediction - least)
    if not math.isfinite(most):
        return lambda mean: (mean - least) / below[0] * below[1]
    above, width = distances(most - prediction), most - least

    def variance(mean: float) -> float:
        scale, (_, first, second) = (mean - least) / below[0], below
        if scale > 1.0:
            scale, (_, first, second) = (most - mean) / above[0], above
        return max(scale * (width * first - scale * second), 0.0)

    return variance


def _farthest(
    inside: float, end: float, is_rejected: Callable[[float], bool], step: float
) -> float:
    """Return the end of an interval, which is between ``inside`` and the end of the range."""
    outside = end
    if not math.isfinite(end):
        outside = inside + step
        for _ in range(STEPS):
            if is_rejected(outside):
                break
            inside, outside, step = outside, outside + 2.0 * step, 2.0 * step
        else:
            message = "a few decisions carry all the weight"
            raise NotEvaluable(f"{message}: evaluate a policy closer to the logging policy")
    elif not is_rejected(end):
        return end
    for _ in range(STEPS):
        middle = (inside + outside) / 2.0
        if is_rejected(middle):
            outside = middle
        else:
            inside = middle
    return outside


def _check(unsupported: float, design: float, known: int, rewards: int) -> None:
    if unsupported > UNSUPPORTED:
        message = f"{unsupported:.0%} of this policy's choices were never tried: their propensity"
        raise NotEvaluable(
            f"{message} was 0. Give the logging policy a floor, such as 0.02, or a holdout with"
            " baseline 'uniform', and evaluate later decisions"
        )
    if not rewards:
        raise NotEvaluable("no reward has arrived yet: wait for some")
    if design < REFUSED:
        message = f"{known:,} known outcomes have an effective sample size of {design:.1f} for this"
        raise NotEvaluable(
            f"{message} policy, and at least {REFUSED:.0f} is needed: wait for more, give the"
            " logging policy a larger floor, or evaluate a policy closer to it"
        )


def _confidence_sequence(
    table: DecisionTable,
    ratio: Vector,
    among: Vector,
    limit: Duration | None,
    bounds: tuple[float, float],
    level: float,
    step: float,
) -> tuple[float, float] | None:
    """Return the confidence sequence from decisions with a final outcome.

    An outcome is final at an age fixed in advance: the limit, or the window. If every outcome is
    reported, an outcome that has not arrived by that age is unknown and counts as the worst case.
    """
    least, most = bounds
    horizon = final_age(table, limit)
    if horizon is None:
        return None
    final = table.age >= horizon
    width = most - least
    if not math.isfinite(width) or not final.any() or (among != among[0]).any():
        return None
    arrived = table.delay[final] <= horizon
    missing = (table.rewards.default,) * 2 if table.conversions else bounds
    worst, best = (np.where(arrived, table.value[final], value) for value in missing)
    low, high = betting_interval(
        ratio[final] * (worst - least) / width,
        ratio[final] * (most - best) / width,
        level,
        step / width,
    )
    return least + low * width, least + high * width


def _notes(design: float, table: DecisionTable, reach: float, offers: Offers) -> tuple[str, ...]:
    notes = []
    if np.isnan(offers.sums(offers.propensity)).all():
        notes.append(
            "only propensities of chosen actions are known: support is estimated from the choices"
        )
    if design < WEAK:
        notes.append(f"the effective sample size is {design:.0f}: the interval is wide")
    window = table.rewards.window_us
    if window is not None and reach < window:
        notes.append("no decision is as old as the window: later rewards are not in the value")
    return tuple(notes)


# --- a model of rewards ---------------------------------------------------------------------------

#: Number of cross-fitting folds.
FOLDS = 5


def cross_fitted(offers: Offers, outcome: Vector, weight: Vector, family: Family) -> Vector:
    """Return the predicted mean of every row, from a model fitted without the row's decision.

    Coefficients are shrunk towards those of the overall mean, not towards a mean of ½.

    Args:
        offers: the actions offered in the decisions.
        outcome: outcome of each decision; ignored where its weight is 0.
        weight: weight of each decision.
        family: family of the rewards.
    """
    fold = np.random.default_rng(0).integers(FOLDS, size=len(offers))
    outcome = np.where(weight > 0.0, outcome, 0.0)
    row_fold = np.repeat(fold, offers.counts)
    offset = fit_rows(np.ones((len(offers), 1)), outcome, weight, family, ridge=1e-2)[0]
    means = np.empty(len(offers.rows))
    for block, numbers in offers.by_block():
        chosen = np.flatnonzero(np.isin(offers.chosen, block))  # indices of the block's decisions
        rows = numbers[np.searchsorted(block, offers.chosen[chosen])]
        for number in range(FOLDS):
            training = (fold[chosen] != number) & (weight[chosen] > 0.0)
            used = chosen[training]
            theta = fit_rows(rows[training], outcome[used], weight[used], family, offset=offset)
            held_out = row_fold[block] == number
            means[block[held_out]] = family.mean(offset + numbers[held_out] @ theta)
    return means
