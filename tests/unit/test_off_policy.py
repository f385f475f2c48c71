"""Off-policy values: equal to those of other libraries, or refused."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from belated import Bernoulli, DefaultAfter, Explicit
from belated.evaluation.arrivals import arrival_weights
from belated.evaluation.columns import NEVER
from belated.evaluation.requests import Offers
from belated.evaluation.sequences import betting_interval, is_rejected
from belated.evaluation.table import DecisionTable
from belated.evaluation.values import interval, off_policy_value
from belated.exceptions import InvalidInput, NotEvaluable
from experiments.evaluation.logs import offers_of

DAY = 86_400_000_000
START = 1_700_000_000_000_000
FIXTURE = json.loads(Path(__file__).with_name("off_policy_parity.json").read_text())


def _log(
    count: int = 400, floor: float = 0.4, rewards: Any = None, pending: float = 0.0, seed: int = 0
) -> tuple[DecisionTable, Offers]:
    """Return a log of two actions worth .2 and .6, whose good rewards arrive sooner."""
    rng = np.random.default_rng(seed)
    best = rng.integers(2, size=count)
    shares = np.full((count, 2), floor / 2)
    shares[np.arange(count), best] += 1.0 - floor
    chosen = (rng.random(count) < shares[:, 1]).astype(np.int64)
    reward = (rng.random(count) < np.array([0.2, 0.6])[chosen]).astype(np.float64)
    decided_at = START + np.arange(count, dtype=np.int64) * DAY // 10
    delay = rng.random(count) * pending * count / 10 * np.where(reward > 0, 0.5, 1.0)
    rewarded_at = decided_at + (delay * DAY).astype(np.int64)
    is_rewarded = rewarded_at <= decided_at[-1]
    if rewards is not None:
        is_rewarded &= reward > 0
    table = DecisionTable.of(
        made=decided_at,
        rewarded=np.where(is_rewarded, rewarded_at, NEVER),
        value=np.where(is_rewarded, reward, np.nan),
        rewards=rewards,
    )
    rows = np.tile(np.eye(2, dtype=np.float32), (count, 1, 1))
    return table, offers_of(rows, chosen, shares)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("ips", "vw ips"),
        ("ips", "obp ips"),
        ("snips", "vw snips"),
        ("snips", "obp snips"),
        ("dr", "obp dr"),
        ("value", "obp sndr"),
    ],
)
def test_equals_other_libraries_on_matured_data(ours: str, theirs: str) -> None:
    """Once all rewards have arrived, estimates equal other libraries'."""
    action, reward = np.array(FIXTURE["action"]), np.array(FIXTURE["reward"])
    decided_at = START + np.arange(len(action), dtype=np.int64)
    table = DecisionTable.of(made=decided_at, rewarded=decided_at, value=reward)
    rows = np.ones((len(action), 4, 1), dtype=np.float32)
    offers = offers_of(rows, action, np.array(FIXTURE["logged"]))
    target, model = (np.array(FIXTURE[name]).reshape(-1) for name in ("target", "model"))
    estimate = off_policy_value(table, offers, target, Bernoulli(), predicted=model)
    assert getattr(estimate, ours) == pytest.approx(FIXTURE["values"][theirs], abs=1e-12)


def test_weights_by_delay_make_what_arrived_whole() -> None:
    """Arrival weights correct for pending rewards."""
    age = np.array([4.0, 3.0, 2.0, 1.0])
    weights = arrival_weights(np.array([1.0, 2.0, 2.0, np.inf]), age)
    assert weights.tolist() == [1.0, 4 / 3, 4 / 3, 0.0]


def test_the_interval_solves_its_equation() -> None:
    """Without bounds it is Fieller's interval."""
    rng = np.random.default_rng(1)
    weight, residual = rng.random(50) + 0.1, rng.normal(size=50)
    direct = np.zeros(50)
    point, low, high = interval(direct, np.ones(50), weight, residual, np.zeros(50), math.inf, 0.95)
    assert point == pytest.approx((weight * residual).sum() / weight.sum())
    for end in (low, high):
        score = (weight * (residual - end)).sum()
        spread = np.sqrt(np.square(weight * (residual - end)).sum())
        assert abs(score / spread) == pytest.approx(1.959964, abs=1e-5)


def test_no_interval_if_a_few_decisions_carry_all_the_weight() -> None:
    """The evaluation is refused."""
    weight = np.array([1.0, 1e-3, 1e-3])
    with pytest.raises(NotEvaluable, match="carry all the weight"):
        interval(
            np.zeros(3), np.ones(3), weight, np.array([1.0, 0.0, 0.0]), np.zeros(3), 50.0, 0.95
        )


@pytest.mark.parametrize("successes", [0, 1, 7, 20])
def test_with_equal_weights_the_interval_is_wilsons(successes: int) -> None:
    """For outcomes of 0 and 1 and a model that knows only their mean."""
    outcome = (np.arange(20) < successes).astype(np.float64)
    ones = np.ones(20)
    point, low, high = interval(
        0.3 * ones, ones, ones, outcome, 0.3 * ones, math.inf, 0.95, 0.0, 1.0, 1.0
    )
    assert point == pytest.approx(successes / 20)
    wilson = binomtest(successes, 20).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((wilson.low, wilson.high), abs=1e-5)


def test_counts_have_a_score_interval_too() -> None:
    """With a lower bound only, the variance is proportional to the mean."""
    ones = np.ones(50)
    for outcome in (np.zeros(50), np.tile([0.0, 1.0], 25)):
        point, low, high = interval(
            ones, ones, ones, outcome, ones, math.inf, 0.95, 0.0, math.inf, 1.0
        )
        total, z = outcome.sum(), 1.959964
        centre, half = total + z * z / 2, z * math.sqrt(total + z * z / 4)
        ends = max(centre - half, 0.0) / 50, (centre + half) / 50
        assert (low, high) == pytest.approx(ends, abs=1e-5)
        assert low <= point <= high


def test_delays_that_depend_on_rewards_do_not_bias_the_value() -> None:
    """The value is near the truth if good rewards arrive sooner."""
    errors = []
    for seed in range(30):
        table, offers = _log(pending=0.6, seed=seed)
        errors.append(off_policy_value(table, offers, np.full(800, 0.5), Bernoulli()).value - 0.4)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / math.sqrt(30) + 1e-3
    table, _ = _log(pending=0.6)
    assert np.nanmean(table.value) > 0.45  # what has arrived alone is too good


def test_conversions_count_silence_as_the_default() -> None:
    """A missing conversion counts as the default reward."""
    table, offers = _log(pending=0.3, rewards=DefaultAfter("30d"), count=2_000)
    estimate = off_policy_value(table, offers, np.tile([0.0, 1.0], 2_000), Bernoulli())
    assert estimate.low < 0.6 < estimate.high
    assert estimate.confidence_sequence is not None
    assert estimate.confidence_sequence[0] < 0.6 < estimate.confidence_sequence[1]
    assert (
        estimate.confidence_sequence[1] - estimate.confidence_sequence[0]
        > estimate.high - estimate.low
    )


def test_a_log_that_never_tried_it_is_refused() -> None:
    """Propensities of 0 for the policy's choices are an error."""
    table, offers = _log(floor=0.0)
    with pytest.raises(NotEvaluable, match="50% of this policy's choices were never tried"):
        off_policy_value(table, offers, np.full(800, 0.5), Bernoulli())


def test_a_log_that_hardly_tried_it_is_refused_whatever_was_drawn() -> None:
    """The expected effective sample size decides, not the draws."""
    table, offers = _log(floor=1e-6)
    with pytest.raises(NotEvaluable, match=r"an effective sample size of 0\.0 for"):
        off_policy_value(table, offers, np.full(800, 0.5), Bernoulli())


def test_few_rewards_give_a_wide_interval_and_none_at_all_no_value() -> None:
    """The variance is that of the mean that is tested, so few rewards do not look certain."""
    table, offers = _log(rewards=DefaultAfter("1d"), count=400)
    for count in (3, 0):
        is_kept = np.cumsum(table.arrived) <= count
        sparse = replace(
            table,
            rewarded=np.where(is_kept, table.rewarded, NEVER),
            value=np.where(is_kept, table.value, np.nan),
        )
        if count:
            estimate = off_policy_value(sparse, offers, np.full(800, 0.5), Bernoulli())
            assert 0.0 <= estimate.low < 3 / 400 < estimate.high
            assert 0.015 < estimate.high < 0.05
    with pytest.raises(NotEvaluable, match="no reward has arrived yet"):
        off_policy_value(sparse, offers, np.full(800, 0.5), Bernoulli())


@pytest.mark.parametrize("limit", ["0s", timedelta(0)])
def test_a_limit_is_above_zero(limit: str | timedelta) -> None:
    """With a limit of 0, no reward would count."""
    table, offers = _log()
    with pytest.raises(InvalidInput, match="`limit` must be a duration above 0"):
        off_policy_value(table, offers, np.full(800, 0.5), Bernoulli(), limit=limit)


def test_a_value_is_shown_with_its_interval() -> None:
    """The repr has four digits."""
    table, offers = _log()
    estimate = off_policy_value(table, offers, np.full(800, 0.5), Bernoulli())
    expected = f"Value({estimate.value:.4g}, low={estimate.low:.4g}, high={estimate.high:.4g})"
    assert repr(estimate) == expected


def test_a_weak_log_is_noted() -> None:
    """A small effective sample size adds a note."""
    table, offers = _log(floor=0.3, count=80)
    notes = off_policy_value(table, offers, np.full(160, 0.5), Bernoulli()).notes
    assert any("effective sample size is" in note for note in notes)


def test_a_window_longer_than_the_log_is_named_in_the_estimand() -> None:
    """The estimand names the longest observable delay."""
    table, offers = _log(rewards=DefaultAfter("300d"))
    estimate = off_policy_value(table, offers, np.full(800, 0.5), Bernoulli())
    assert "within 39.9 days" in estimate.estimand
    assert any("window" in note for note in estimate.notes)


def test_requests_that_were_kept_less_often_count_more() -> None:
    """Decisions are weighted by the inverse of their sampling rate."""
    table, offers = _log(count=1_000)
    all_offers = offers.select(np.ones(1_000, dtype=np.bool_))
    rates = np.where(offers.chosen % 2 == 1, 0.5, 1.0)
    drawn = np.random.default_rng(3).random(1_000) < rates
    thinned = Offers(**{**vars(all_offers), "kept": rates}).select(drawn)
    estimate = off_policy_value(
        table.select(drawn), thinned, np.full(2 * drawn.sum(), 0.5), Bernoulli()
    )
    assert estimate.low < 0.4 < estimate.high


def test_explicit_outcomes_that_never_came_count_as_the_worst() -> None:
    """This applies to the confidence sequence."""
    table, offers = _log(rewards=None, count=300)
    missing = np.arange(300) % 10 == 0
    table = DecisionTable.of(
        made=table.made,
        rewarded=np.where(missing, NEVER, table.rewarded),
        value=np.where(missing, np.nan, table.value),
        rewards=Explicit("1d"),
    )
    estimate = off_policy_value(table, offers, np.full(600, 0.5), Bernoulli())
    complete = off_policy_value(
        DecisionTable.of(
            made=table.made[~missing],
            rewarded=table.rewarded[~missing],
            value=table.value[~missing],
            rewards=Explicit("1d"),
        ),
        offers.select(~missing),
        np.full(540, 0.5),
        Bernoulli(),
    )
    assert estimate.confidence_sequence is not None
    assert complete.confidence_sequence is not None
    assert estimate.confidence_sequence[0] < complete.confidence_sequence[0]
    assert estimate.confidence_sequence[1] > complete.confidence_sequence[1]


def test_a_gambler_finds_the_mean_and_no_more() -> None:
    """The confidence sequence contains the mean and becomes narrow."""
    terms = (np.random.default_rng(4).random(2_000) < 0.3).astype(np.float64)
    low, high = betting_interval(terms, 1.0 - terms, 0.95, 1e-3)
    assert 0.24 < low < 0.3 < high < 0.37
    assert is_rejected(terms, 0.1, 0.05)
    assert not is_rejected(terms, 0.3, 0.05)
