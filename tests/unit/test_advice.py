"""Each check: when it has a finding, and when it does not."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.advice import CHECKS, ROWS, Adviser, Evidence, advise, warn
from belated.advice.checks import has_intercept

MINUTE = 60_000_000
HOUR = 60 * MINUTE


def honest(n: int = 1_000, seed: int = 0, **changes: Any) -> Evidence:
    """A decision per minute, rewards after ten minutes on average, rows of length about 1."""
    rng = np.random.default_rng(seed)
    made = MINUTE * np.arange(n)
    came = made + rng.exponential(10 * MINUTE, size=n).astype(np.int64)
    came = np.where(came <= made[-1], came, -1)
    rows = np.column_stack([np.ones(n), rng.normal(size=(n, 3))]) / 2
    seen = Evidence(
        family=Bernoulli(),
        ridge=1.0,
        window=None,
        defaults=False,
        now=int(made[-1]),
        latest=int(came.max()),
        decisions=n,
        pending=int((came < 0).sum()),
        rewards=int((came >= 0).sum()),
        duplicates=0,
        unmatched=0,
        made=made,
        arrived=came,
        value=(rng.random(n) < 0.05).astype(np.float64),
        learned=came >= 0,
        rows=rows.astype(np.float32),
        at=np.arange(n),
    )
    return dataclasses.replace(seen, **changes)


def clicks(n: int = 1_000, seed: int = 0, rate: float = 0.05, **changes: Any) -> Evidence:
    """The same decisions, with only good outcomes reported."""
    seen = honest(n, seed)
    good = np.random.default_rng(seed + 1).random(n) < rate
    came = np.where(good, seen.arrived, -1)
    seen = dataclasses.replace(
        seen,
        arrived=came,
        value=good.astype(np.float64),
        learned=came >= 0,
        latest=int(came.max()),
        rewards=int((came >= 0).sum()),
        pending=int((came < 0).sum()),
    )
    return dataclasses.replace(seen, **changes)


def names(seen: Evidence) -> list[str]:
    """Return the names of the findings."""
    return [one.name for one in advise(seen)]


@pytest.mark.parametrize("n", [0, 1, 5, 100, 1_000, ROWS])
@pytest.mark.parametrize("seed", range(5))
def test_honest_evidence_is_not_warned_of(n: int, seed: int) -> None:
    """There are no findings, for any number of decisions and either semantics."""
    some = honest(max(n, 1), seed)
    columns = ("made", "arrived", "value", "learned", "rows", "at")
    seen = dataclasses.replace(some, **{name: getattr(some, name)[:n] for name in columns})
    assert names(seen) == []
    assert names(dataclasses.replace(seen, window=HOUR)) == []
    if n:
        assert names(clicks(n, seed, defaults=True, window=HOUR)) == []


def test_every_message_says_what_was_seen_and_where_to_read_more() -> None:
    """Every finding has a message with a link."""
    found = advise(clicks(duplicates=600, rows=honest().rows * 1e4))
    assert [one.name for one in found] == ["alike", "scale", "duplicates"]
    for one in found:
        assert one.message.endswith(f". See docs/howto/warnings.md#{one.name}")
        assert any(character.isdigit() for character in one.message)


def test_every_check_is_described() -> None:
    """The documentation has a section and a line in the table for each check."""
    page = Path("docs/howto/warnings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[`(\w+)`\]\(#\1\)", page, flags=re.MULTILINE) == list(CHECKS)
    headings = re.findall(r"^## (\w+)$", page, flags=re.MULTILINE)
    assert headings == list(CHECKS)


# --- which rewards are reported ------------------------------------------------------------------


def test_clicks_alone_are_warned_of_unless_a_missing_reward_means_something() -> None:
    """The remedy is named."""
    (one,) = advise(clicks())
    assert one.name == "alike"
    assert "ConversionsOnly(window)" in one.message
    assert names(clicks(window=HOUR)) == ["alike"]
    assert names(clicks(defaults=True, window=HOUR)) == []


def test_rare_clicks_of_which_both_outcomes_are_reported_are_all_alike() -> None:
    """At the start there are only zeros, and most are still pending."""
    assert names(honest(value=np.zeros(1_000))) == []
    early = honest(60, value=np.zeros(60))
    slow = dataclasses.replace(early, arrived=np.where(np.arange(60) < 15, early.now, -1))
    assert names(slow) == []


def test_most_rewards_missing_is_warned_of_unless_a_window_ends_the_wait() -> None:
    """Of both kinds, so that it is not only one that is reported."""
    lost = np.random.default_rng(3).random(1_000) < 0.7
    seen = honest()
    seen = dataclasses.replace(seen, arrived=np.where(lost, -1, seen.arrived))
    assert names(seen) == ["missing"]
    assert names(dataclasses.replace(seen, window=HOUR)) == []


@pytest.mark.parametrize(
    ("decisions", "window", "defaults", "warned"),
    [
        (999, None, False, False),
        (1_000, None, False, True),
        (1_500, HOUR, False, True),
        (1_050, HOUR, False, False),  # some windows are open
        (3_000, 1_000 * HOUR, False, False),
        (4_000, HOUR, True, False),  # one in a thousand may convert
        (6_000, HOUR, True, True),
    ],
)
def test_no_reward_at_all(decisions: int, window: int | None, defaults: bool, warned: bool) -> None:
    """After 1,000 decisions with ended windows, or 5,000 if most have no reward."""
    seen = honest(
        decisions,
        arrived=np.full(decisions, -1),
        learned=np.zeros(decisions, dtype=np.bool_),
        latest=-1,
        window=window,
        defaults=defaults,
    )
    assert names(seen) == warned * ["silence"]


@pytest.mark.parametrize("window", [None, HOUR])
def test_no_reward_at_all_after_all_decisions_were_forgotten(window: int | None) -> None:
    """Decisions older than the retention still count, although the sample is empty."""
    seen = Evidence(Gaussian(), 1.0, window, False, HOUR, decisions=2_000)
    assert names(seen) == ["silence"]


def test_rewards_of_unknown_ids_are_named_where_none_comes() -> None:
    """They are the most likely cause."""
    none = np.full(1_000, -1)
    seen = honest(arrived=none, learned=none == 0, latest=-1, unmatched=950)
    (one,) = advise(seen)
    assert "950 events are for unknown decision ids" in one.message


@pytest.mark.parametrize(("made", "warned"), [(60, False), (200, True)])
def test_rewards_that_have_stopped(made: int, warned: bool) -> None:
    """More decisions without a reward than chance explains, all old enough to have one."""
    seen = honest(500 + made)
    came = np.where(
        (seen.arrived < seen.made[500]) & (np.arange(500 + made) < 500), seen.arrived, -1
    )
    seen = dataclasses.replace(seen, arrived=came, latest=int(came.max()), learned=came >= 0)
    assert names(seen) == warned * ["silence"]


def test_rare_clicks_that_stay_away_for_a_while_have_not_stopped() -> None:
    """At a rate of 1 in 50, 200 decisions without a reward are chance."""
    seen = clicks(1_000, rate=0.02, defaults=True, window=HOUR)
    came = np.where(seen.made < seen.made[800], seen.arrived, -1)
    assert names(dataclasses.replace(seen, arrived=came, latest=int(came.max()))) == []


@pytest.mark.parametrize(
    ("rewards", "again", "warned"), [(60, 30, False), (100, 50, False), (100, 51, True)]
)
def test_duplicates_above_a_third(rewards: int, again: int, warned: bool) -> None:
    """There must be at least a hundred events."""
    assert names(honest(rewards=rewards, duplicates=again)) == warned * ["duplicates"]


# --- delays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_rewards_that_depend_on_their_delay(sign: int) -> None:
    """Bad or good rewards arrive late."""
    seen = honest(value=np.random.default_rng(5).normal(size=1_000), family=Gaussian())
    wait = np.exp(sign * 0.5 * seen.value) * 10 * MINUTE
    seen = dataclasses.replace(seen, arrived=seen.made + wait.astype(np.int64))
    (one,) = advise(seen)
    assert one.name == "dependence"
    assert f"{'high' if sign > 0 else 'low'} rewards arrive late" in one.message


def test_rows_that_explain_both_are_no_dependence() -> None:
    """If an action is better and slower, delays do not matter given the row."""
    arm = np.arange(1_000) % 2
    rng = np.random.default_rng(6)
    wait = (1 + 9 * arm) * rng.exponential(5 * MINUTE, size=1_000)
    seen = honest(family=Gaussian(), value=3.0 * arm + rng.normal(size=1_000))
    rows = np.eye(2, dtype=np.float32)[arm]
    seen = dataclasses.replace(seen, arrived=seen.made + wait.astype(np.int64), rows=rows)
    assert names(seen) == []
    assert names(dataclasses.replace(seen, rows=np.ones_like(rows))) == ["dependence"]


def test_rewards_that_grow_are_no_dependence() -> None:
    """The last decisions are the best, and only their short delays are observed."""
    seen = honest(2_000, family=Gaussian())
    value = np.arange(2_000) / 200 + np.random.default_rng(7).normal(size=2_000)
    wait = np.random.default_rng(8).exponential(700 * MINUTE, size=2_000).astype(np.int64)
    came = np.where(seen.made + wait <= seen.now, seen.made + wait, -1)
    seen = dataclasses.replace(seen, value=value, arrived=came, learned=came >= 0)
    assert "dependence" not in names(seen)


@pytest.mark.parametrize(
    ("window", "warned"), [(HOUR, False), (10 * HOUR, True), (1_000 * HOUR, False)]
)
def test_a_window_much_longer_than_rewards_take(window: int, warned: bool) -> None:
    """There is no finding if few are pending, or none is old enough."""
    seen = clicks(2_000, rate=0.3, defaults=True, window=window)
    waits = (seen.arrived < 0) & (seen.now - seen.made < window)
    seen = dataclasses.replace(seen, pending=int(waits.sum()), learned=~waits)
    assert names(seen) == warned * ["window"]


def test_a_shorter_window_is_advised_only_if_rewards_keep_it() -> None:
    """A shorter window would lose rewards that arrive even later."""
    seen = clicks(2_000, rate=0.3, defaults=True, window=10 * HOUR)
    waits = (seen.arrived < 0) & (seen.age < 10 * HOUR)
    seen = dataclasses.replace(seen, pending=int(waits.sum()), learned=~waits)
    (advice,) = advise(seen)
    assert "or a shorter window (99% of the rewards arrived within" in advice.message
    late = seen.rewarded & (np.arange(2_000) % 40 < 2) & (seen.age > 12 * HOUR)
    seen = dataclasses.replace(seen, arrived=np.where(late, seen.made + 11 * HOUR, seen.arrived))
    (advice,) = advise(seen)
    assert advice.name == "window"
    assert "shorter window" not in advice.message


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("size", "warned"), [(1e-3, 1), (0.1, 0), (1.0, 0), (10.0, 0), (1e3, 1)])
def test_rows_out_of_scale(size: float, warned: int, intercept: bool) -> None:
    """An intercept of 1 does not hide that all other features are tiny."""
    rows = honest().rows.astype(np.float64) * size
    if intercept:
        rows[:, 0] = 1.0
    assert names(honest(rows=rows.astype(np.float32))) == warned * ["scale"]


@pytest.mark.parametrize(("size", "ridge"), [(1.0, 1e-8), (1.0, 1e8), (1e5, 1e10), (1e-5, 1e-10)])
def test_a_prior_that_was_meant_is_not_warned_of(size: float, ridge: float) -> None:
    """Rows of typical length, or a prior that fits unusual ones, are intended."""
    rows = (size * honest().rows.astype(np.float64)).astype(np.float32)
    assert names(honest(rows=rows, ridge=ridge)) == []


def test_one_feature_out_of_scale_is_enough() -> None:
    """The message names the largest number."""
    rows = honest().rows.copy()
    rows[:, 2] *= 1e5
    (one,) = advise(honest(rows=rows))
    assert f"{np.abs(rows).max():.3g}" in one.message


def without(seen: Evidence) -> Evidence:
    """Return the rows without their intercept."""
    return dataclasses.replace(seen, rows=seen.rows[:, 1:])


def test_clicks_as_gaussian_need_an_intercept() -> None:
    """The message names the alternatives."""
    (one,) = advise(without(honest(family=Gaussian())))
    assert one.name == "intercept"
    assert "Bernoulli()" in one.message
    assert names(honest(family=Gaussian())) == []


@pytest.mark.parametrize(
    ("family", "level", "warned"),
    [
        (Gaussian(), 0.1, False),
        (Gaussian(), 2.0, True),
        (Gaussian(), -50.0, True),
        (Bernoulli(), 0.0, False),
        (Bernoulli(), -3.0, True),
        (Poisson(), 0.0, False),
        (Poisson(), 2.0, True),
    ],
)
def test_rewards_with_a_level_need_an_intercept(family: Any, level: float, warned: bool) -> None:
    """For any family; not with an intercept, or if rewards average 0."""
    seen = honest(family=family)
    eta = seen.rows[:, 1:].astype(np.float64) @ [1.0, -1.0, 0.5] + level
    seen = dataclasses.replace(seen, value=family.sample(eta, np.random.default_rng(9)))
    assert names(without(seen)) == warned * ["intercept"]
    assert names(seen) == []


def test_indicators_are_an_intercept_and_zeros_are_none() -> None:
    """The constant can have any value and be spread over several columns."""
    rows = np.random.default_rng(0).normal(size=(50, 3))
    assert not has_intercept(rows)
    assert has_intercept(np.insert(rows, 1, 0.25, axis=1))
    assert not has_intercept(np.insert(rows, 1, 0.0, axis=1))
    assert has_intercept(np.eye(5)[np.arange(50) % 5])


# --- once ----------------------------------------------------------------------------------------


def test_each_is_said_once_and_the_current_ones_are_known() -> None:
    """A finding that ends is not current, and is not reported again."""
    adviser = Adviser()
    assert [one.name for one in adviser.look(clicks())] == ["alike"]
    assert list(adviser.look(clicks())) == []
    assert adviser.current == {"alike"}
    assert list(adviser.look(honest())) == []
    assert adviser.current == frozenset()
    assert [one.name for one in adviser.look(clicks(duplicates=600))] == ["duplicates"]


def test_what_could_not_be_said_is_said_next_time() -> None:
    """If warnings are errors, the first one ends the call."""
    adviser = Adviser()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="all rewards so far"):
            deque(map(warn, adviser.look(clicks(duplicates=600))))
    assert [one.name for one in adviser.look(clicks(duplicates=600))] == ["duplicates"]


def test_looks_become_rarer_and_never_cease() -> None:
    """Checks run when records have doubled, and finally every 8,192 records."""
    adviser = Adviser()
    looks = [version for version in range(40_000) if adviser.is_due(version)]
    assert looks[:3] == [100, 200, 400]
    assert max(np.diff(looks)) == 8_192
    assert len(looks) < 14
