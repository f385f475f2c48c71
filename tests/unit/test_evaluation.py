"""Delay curves, forecasts, tests of dependence and lift, compared with results by hand."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from belated import DefaultAfter, Explicit
from belated.evaluation.columns import NEVER
from belated.evaluation.delays import delay_curve, delay_depends
from belated.evaluation.forecasts import forecast
from belated.evaluation.lifts import lift
from belated.evaluation.silences import silence, slowing
from belated.evaluation.table import DecisionTable
from belated.exceptions import InvalidInput, NotEvaluable

DAY = 86_400_000_000
START = 1_700_000_000_000_000


def _table(made: Any, delay: Any, **columns: Any) -> DecisionTable:
    """Return a table with times in days; a delay of None is a missing reward."""
    starts = START + (np.array(made) * DAY).astype(np.int64)
    arrivals = [
        NEVER if d is None else s + int(d * DAY) for s, d in zip(starts, delay, strict=True)
    ]
    value = [np.nan if d is None else 1.0 for d in delay]
    defaults: dict[str, Any] = {"value": value, "as_of": START + 10 * DAY}
    return DecisionTable.of(made=starts, rewarded=arrivals, **(defaults | columns))


def test_kaplan_and_meier_by_hand() -> None:
    """The curve equals the Kaplan–Meier estimate computed by hand."""
    # At risk at 1 day are three, at 2 days two; one comes each time.
    curve = delay_curve(_table([0, 6, 7, 9.5], [2, 1, None, None]))
    assert curve.share.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert curve.median == timedelta(days=2)
    assert curve.at(timedelta(hours=1))[0] == 0.0
    assert curve.at(timedelta(days=9))[0] == pytest.approx(2 / 3)


def test_conversions_are_compared_with_conversions() -> None:
    """The curve equals the right-truncated estimate by hand."""
    # Delays 1, 2 and 3 of ages 10, 10 and 4: at 3 days all three could have been seen; at 2 days
    # two have come. F(2) = 2/3, F(1) = 2/3 · 1/2.
    week = DefaultAfter("7d")
    curve = delay_curve(_table([0, 0, 6, 1, 9], [1, 2, 3, None, None], rewards=week))
    assert curve.share.tolist() == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert curve.conversions
    # More decisions without a conversion change nothing.
    repeated = delay_curve(_table([0, 0, 6] + [2] * 9, [1, 2, 3] + [None] * 9, rewards=week))
    assert repeated.share.tolist() == curve.share.tolist()


def test_a_band_narrows_with_the_level_and_holds_the_curve() -> None:
    """Bands contain the curve, and are narrower at lower levels."""
    rng = np.random.default_rng(0)
    table = _table(rng.random(300) * 9, np.minimum(rng.exponential(0.2, 300), 1.0))
    wide, narrow = delay_curve(table), delay_curve(table, level=0.5)
    inside = slice(5, 250)
    assert (wide.low <= wide.share).all()
    assert (wide.share <= wide.high).all()
    assert (wide.low[inside] < narrow.low[inside]).all()
    assert (narrow.high[inside] < wide.high[inside]).all()


def test_voided_and_dormant_decisions_are_left_out() -> None:
    """They affect neither curves nor counts."""
    table = _table([0, 1, 2], [1, None, None])
    table.state[1], table.state[2] = 5, 0
    assert delay_curve(table).missing == 0


def test_no_reward_no_curve() -> None:
    """Curves and forecasts are refused without enough rewards."""
    with pytest.raises(InvalidInput, match="none of the 1 decisions has a reward"):
        delay_curve(_table([0], [None]))
    with pytest.raises(InvalidInput, match="a forecast needs at least 20 rewards"):
        forecast(_table([0, 1], [1, None]))


def test_curves_are_plain_data() -> None:
    """``to_dict`` returns JSON-compatible values."""
    rng = np.random.default_rng(0)
    table = _table(rng.random(1_000) * 5, rng.random(1_000))
    document = delay_curve(table).to_dict()
    assert len(document["curve"]) == 200
    json.dumps([document, forecast(table, ["1d", "2d"]).to_dict()])


def test_a_forecast_counts_what_is_to_come() -> None:
    """Forecasts agree with the rewards that arrive later."""
    rng = np.random.default_rng(2)
    decided, delay = rng.random(3_000) * 10, rng.exponential(3, 3_000)
    observed = [d if m + d <= 10 else None for m, d in zip(decided, delay, strict=True)]
    prediction = forecast(_table(decided, observed), ["2d", "3d"])
    for interval, days in zip(prediction.expected, (2, 3), strict=True):
        true = ((decided + delay > 10) & (decided + delay <= 10 + days)).sum()
        assert interval.low <= true <= interval.high
        assert interval.high - interval.low < 0.5 * true
    assert prediction.missing == (decided + delay > 10).sum()


def test_horizons_that_the_log_cannot_know_are_refused() -> None:
    """Conversions may come until the window, and what is beyond the oldest decision is unseen."""
    rng = np.random.default_rng(3)
    decided, delay = rng.random(2_000) * 10, rng.random(2_000) * 4
    observed = [d if d < 1 and m + d <= 10 else None for m, d in zip(decided, delay, strict=True)]
    short = _table(decided, observed, rewards=DefaultAfter("30d"))
    assert forecast(short, "12h").expected[0].high > 0
    for horizon in ("5d", None):
        with pytest.raises(NotEvaluable, match=r"% of the pending decisions will be older than"):
            forecast(short, horizon)
    whole = _table(decided, observed, rewards=DefaultAfter("5d"))
    within, total = forecast(whole, ["5d", "20d"]).expected
    assert within.mean == pytest.approx(total.mean, rel=0.1)
    true = ((delay < 1) & (decided + delay > 10)).sum()
    assert forecast(whole).expected[0].low <= true <= forecast(whole).expected[0].high


def test_decisions_that_are_never_rewarded_do_not_hide_the_future() -> None:
    """Old decisions without a reward show that none arrives late; only young ones may get one."""
    rng = np.random.default_rng(4)
    decided, delay = rng.random(3_000) * 10, rng.exponential(0.1, 3_000)
    rated = rng.random(3_000) < 2 / 3
    observed = [
        d if r and m + d <= 10 else None for m, d, r in zip(decided, delay, rated, strict=True)
    ]
    table = _table(decided, observed, rewards=Explicit("1d"))
    prediction = forecast(table, "1d")
    true = (rated & (decided + delay > 10)).sum()
    assert prediction.expected[0].low <= true <= prediction.expected[0].high < 3 * true
    assert prediction.missing == sum(
        t is None and 10 - m < 1 for m, t in zip(decided, observed, strict=True)
    )


def test_nothing_more_is_expected_after_the_retention() -> None:
    """Decisions beyond the retention are not forecast."""
    table = _table([0.0] * 30 + [9.0] * 10, [1.0] * 30 + [None] * 10)
    limited = replace(table, retention=int(0.5 * DAY))
    assert forecast(limited, "5d").missing == 0
    assert forecast(table).missing == 10


def _two_actions(ratio: float, seed: int, on: str) -> DecisionTable:
    rng = np.random.default_rng(seed)
    decided = np.sort(rng.random(1_500) * 10)
    reward = rng.random(1_500) < 0.4
    action = rng.random(1_500) < 0.5
    cause = reward if on == "reward" else action
    delay = rng.exponential(np.where(cause, 1.5 * ratio, 1.5))
    observed = [d if m + d <= 10 else None for m, d in zip(decided, delay, strict=True)]
    value = np.where([d is not None for d in observed], reward.astype(float), np.nan)
    return _table(decided, observed, value=value, action=np.where(action, "slow", "fast"))


@pytest.mark.parametrize("on", ["action", "reward"])
def test_dependence_is_found_where_it_is(on: Any) -> None:
    """The test detects actions with different delays, and no others."""
    result = delay_depends(_two_actions(2.0, 1, on), on)
    assert result.p < 1e-3
    slow, fast = ("slow", "fast") if on == "action" else ("high", "low")
    assert result.sooner[slow] < 0 < result.sooner[fast]
    assert delay_depends(_two_actions(1.0, 1, on), on).p > 0.01


def test_dependence_on_a_reward_that_is_silent_cannot_be_tested() -> None:
    """If a missing reward has a value, it is refused."""
    table = _table([0, 1], [1, None], rewards=DefaultAfter("7d"))
    with pytest.raises(InvalidInput, match="cannot test whether"):
        delay_depends(table, "reward")
    with pytest.raises(InvalidInput, match="least two groups"):
        delay_depends(table)


def _groups(count: int, slow: float, rewards: Any, seed: int) -> DecisionTable:
    rng = np.random.default_rng(seed)
    holdout = rng.random(count) < 0.3
    decided = np.sort(rng.random(count) * 10)
    converts = rng.random(count) < 0.2
    delay = np.where(holdout, 0.1, slow) * rng.random(count)
    observed = [
        d if c and m + d <= 10 else None for m, d, c in zip(decided, delay, converts, strict=True)
    ]
    return _table(decided, observed, group=np.where(holdout, "holdout", "bandit"), rewards=rewards)


def test_a_slower_group_is_not_a_worse_one() -> None:
    """Pending rewards of a slower group do not bias the lift."""
    table = _groups(6_000, 8.0, DefaultAfter("8d"), 5)
    estimate = lift(table)
    assert estimate.low < 0 < estimate.high
    holdout = table.group == table.groups.index("holdout")
    plain = table.arrived[~holdout].mean() - table.arrived[holdout].mean()
    assert plain < estimate.low  # what has arrived says it is much worse
    assert estimate.relative is not None
    assert estimate.relative[1] < 0 < estimate.relative[2]
    assert json.loads(json.dumps(estimate.to_dict()))["bandit"]["name"] == "bandit"


def test_lift_at_all_times_uses_final_outcomes_only() -> None:
    """Decisions younger than the window are left out."""
    table = _groups(6_000, 4.0, DefaultAfter("5d"), 6)
    sequence = lift(table).confidence_sequence
    assert sequence is not None
    difference, low, high = sequence
    assert low < 0 < high
    assert high - low > lift(table).high - lift(table).low
    assert difference == pytest.approx((low + high) / 2)
    assert lift(_groups(6_000, 4.0, DefaultAfter("11d"), 6)).confidence_sequence is None
    assert lift(table, limit="1d").estimand.endswith("within 1 days")


def test_no_holdout_no_lift() -> None:
    """Without a holdout, or with few rewards, the lift is refused."""
    with pytest.raises(NotEvaluable, match="there is no group 'bandit'"):
        lift(_table([0, 1], [1, 1]))
    with pytest.raises(NotEvaluable, match="'holdout' have a reward"):
        lift(_table([0] * 20, [1] * 20, group=["bandit"] * 15 + ["holdout"] * 5))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [1.0]}, "`value` has 1 entries"),
        ({"value": [np.nan, 1.0]}, "but no value"),
        ({"as_of": START}, "later than `as_of`"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: Any, message: str) -> None:
    """Lengths, times and values are validated."""
    with pytest.raises(InvalidInput, match=message):
        _table([0, 1], [1, 1], **columns)


def test_times_are_taken_as_callers_have_them() -> None:
    """Datetimes, text and microseconds are accepted."""
    frame = pd.DataFrame(
        {
            "made": pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True),
            "came": pd.to_datetime(pd.Series(["2026-01-03", None]), utc=True),
        }
    )
    table = DecisionTable.of(
        made=frame["made"], rewarded=frame["came"], value=[1.0, None], rewards=Explicit()
    )
    assert table.delay[0] == 2 * DAY
    assert math.isinf(table.delay[1])


def test_rewards_that_stop_are_noticed() -> None:
    """A silence longer than chance explains is an alarm; a running feed is not."""
    decided = START + 3_600_000_000 * np.arange(1_000)
    arrived = decided + 7_200_000_000
    for hours, stopped in ((1, False), (12, True)):
        now = int(arrived[900]) + hours * 3_600_000_000
        rewarded = np.where(arrived <= arrived[900], arrived, NEVER)[decided <= now]
        table = DecisionTable.of(
            made=decided[decided <= now],
            rewarded=rewarded,
            value=np.where(rewarded == NEVER, np.nan, 1.0),
            as_of=now,
        )
        result = silence(table)
        assert result.stopped is stopped
        assert result.expected == pytest.approx(hours, abs=1.01)
        assert result.to_dict()["stopped"] is stopped
    with pytest.raises(InvalidInput, match="an alarm needs at least 20"):
        silence(_table([0, 1], [1, None]))


def test_batches_are_not_silences() -> None:
    """A daily feed may be silent for a day, but not for two."""
    rng = np.random.default_rng(5)
    decided = START + np.sort(rng.integers(40 * DAY, size=8_000))
    happened = decided + rng.exponential(DAY, size=8_000).astype(np.int64)
    arrived = START + -(-(happened - START) // DAY) * DAY  # at the next midnight
    for days, stopped in ((0.9, False), (2.5, True)):
        now = START + 30 * DAY + int(days * DAY)
        rewarded = np.where(arrived <= START + 30 * DAY, arrived, NEVER)[decided <= now]
        table = DecisionTable.of(
            made=decided[decided <= now],
            rewarded=rewarded,
            value=np.where(rewarded == NEVER, np.nan, 1.0),
            as_of=now,
        )
        assert silence(table).stopped is stopped
        assert not slowing(table).slowed


@pytest.mark.parametrize("kept", [1.0, 0.25])
def test_rewards_that_become_fewer_are_noticed(kept: float) -> None:
    """A quarter of the expected rewards is an alarm; all of them are not."""
    rng = np.random.default_rng(6)
    decided = START + np.sort(rng.integers(40 * DAY, size=8_000))
    arrived = decided + rng.exponential(DAY, size=8_000).astype(np.int64)
    missing = (arrived > START + 38 * DAY) & (rng.random(8_000) > kept)
    table = DecisionTable.of(
        made=decided,
        rewarded=np.where(missing | (arrived > START + 40 * DAY), NEVER, arrived),
        value=np.where(missing | (arrived > START + 40 * DAY), np.nan, 1.0),
        as_of=START + 40 * DAY,
    )
    result = slowing(table)
    assert result.slowed is (kept < 0.5)
    assert result.received == pytest.approx(kept * result.expected, rel=0.15)
    assert result.to_dict()["received"] == result.received
