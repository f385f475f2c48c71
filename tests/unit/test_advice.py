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
    decided = MINUTE * np.arange(n)
    arrived = decided + rng.exponential(10 * MINUTE, size=n).astype(np.int64)
    arrived = np.where(arrived <= decided[-1], arrived, -1)
    rows = np.column_stack([np.ones(n), rng.normal(size=(n, 3))]) / 2
    evidence = Evidence(
        family=Bernoulli(),
        ridge=1.0,
        window=None,
        defaults=False,
        now=int(decided[-1]),
        latest=int(arrived.max()),
        decisions=n,
        pending=int((arrived < 0).sum()),
        rewards=int((arrived >= 0).sum()),
        duplicates=0,
        unmatched=0,
        made=decided,
        arrived=arrived,
        value=(rng.random(n) < 0.05).astype(np.float64),
        learned=arrived >= 0,
        rows=rows.astype(np.float32),
        at=np.arange(n),
    )
    return dataclasses.replace(evidence, **changes)


def clicks(n: int = 1_000, seed: int = 0, rate: float = 0.05, **changes: Any) -> Evidence:
    """The same decisions, with only good outcomes reported."""
    evidence = honest(n, seed)
    converted = np.random.default_rng(seed + 1).random(n) < rate
    arrived = np.where(converted, evidence.arrived, -1)
    evidence = dataclasses.replace(
        evidence,
        arrived=arrived,
        value=converted.astype(np.float64),
        learned=arrived >= 0,
        latest=int(arrived.max()),
        rewards=int((arrived >= 0).sum()),
        pending=int((arrived < 0).sum()),
    )
    return dataclasses.replace(evidence, **changes)


def names(seen: Evidence) -> list[str]:
    """Return the names of the findings."""
    return [warning.name for warning in advise(seen)]


@pytest.mark.parametrize("n", [0, 1, 5, 100, 1_000, ROWS])
@pytest.mark.parametrize("seed", range(5))
def test_honest_evidence_is_not_warned_of(n: int, seed: int) -> None:
    """There are no findings, for any number of decisions and either semantics."""
    full = honest(max(n, 1), seed)
    columns = ("made", "arrived", "value", "learned", "rows", "at")
    evidence = dataclasses.replace(full, **{name: getattr(full, name)[:n] for name in columns})
    assert names(evidence) == []
    assert names(dataclasses.replace(evidence, window=HOUR)) == []
    if n:
        assert names(clicks(n, seed, defaults=True, window=HOUR)) == []


def test_every_message_says_what_was_seen_and_where_to_read_more() -> None:
    """Every finding has a message with a link."""
    advice = advise(clicks(duplicates=600, rows=honest().rows * 1e4))
    assert [warning.name for warning in advice] == ["alike", "scale", "duplicates"]
    for warning in advice:
        assert warning.message.endswith(f". See docs/howto/warnings.md#{warning.name}")
        assert any(character.isdigit() for character in warning.message)


def test_every_check_is_described() -> None:
    """The documentation has a section and a line in the table for each check."""
    page = Path("docs/howto/warnings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[`(\w+)`\]\(#\1\)", page, flags=re.MULTILINE) == list(CHECKS)
    headings = re.findall(r"^## (\w+)$", page, flags=re.MULTILINE)
    assert headings == list(CHECKS)


# --- which rewards are reported ------------------------------------------------------------------


def test_clicks_alone_are_warned_of_unless_a_missing_reward_means_something() -> None:
    """The remedy is named."""
    (warning,) = advise(clicks())
    assert warning.name == "alike"
    assert "ConversionsOnly(window)" in warning.message
    assert names(clicks(window=HOUR)) == ["alike"]
    assert names(clicks(defaults=True, window=HOUR)) == []


def test_rare_clicks_of_which_both_outcomes_are_reported_are_all_alike() -> None:
    """At the start there are only zeros, and most are still pending."""
    assert names(honest(value=np.zeros(1_000))) == []
    zeros = honest(60, value=np.zeros(60))
    slow = dataclasses.replace(zeros, arrived=np.where(np.arange(60) < 15, zeros.now, -1))
    assert names(slow) == []


def test_most_rewards_missing_is_warned_of_unless_a_window_ends_the_wait() -> None:
    """Of both kinds, so that it is not only one that is reported."""
    missing = np.random.default_rng(3).random(1_000) < 0.7
    evidence = honest()
    evidence = dataclasses.replace(evidence, arrived=np.where(missing, -1, evidence.arrived))
    assert names(evidence) == ["missing"]
    assert names(dataclasses.replace(evidence, window=HOUR)) == []


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
    evidence = honest(
        decisions,
        arrived=np.full(decisions, -1),
        learned=np.zeros(decisions, dtype=np.bool_),
        latest=-1,
        window=window,
        defaults=defaults,
    )
    assert names(evidence) == warned * ["silence"]


@pytest.mark.parametrize("window", [None, HOUR])
def test_no_reward_at_all_after_all_decisions_were_forgotten(window: int | None) -> None:
    """Decisions older than the retention still count, although the sample is empty."""
    evidence = Evidence(Gaussian(), 1.0, window, False, HOUR, decisions=2_000)
    assert names(evidence) == ["silence"]


def test_rewards_of_unknown_ids_are_named_where_none_comes() -> None:
    """They are the most likely cause."""
    none = np.full(1_000, -1)
    evidence = honest(arrived=none, learned=none == 0, latest=-1, unmatched=950)
    (warning,) = advise(evidence)
    assert "950 events are for unknown decision ids" in warning.message


@pytest.mark.parametrize(("made", "warned"), [(60, False), (200, True)])
def test_rewards_that_have_stopped(made: int, warned: bool) -> None:
    """More decisions without a reward than chance explains, all old enough to have one."""
    evidence = honest(500 + made)
    arrived = np.where(
        (evidence.arrived < evidence.made[500]) & (np.arange(500 + made) < 500),
        evidence.arrived,
        -1,
    )
    evidence = dataclasses.replace(
        evidence, arrived=arrived, latest=int(arrived.max()), learned=arrived >= 0
    )
    assert names(evidence) == warned * ["silence"]


def test_rare_clicks_that_stay_away_for_a_while_have_not_stopped() -> None:
    """At a rate of 1 in 50, 200 decisions without a reward are chance."""
    evidence = clicks(1_000, rate=0.02, defaults=True, window=HOUR)
    arrived = np.where(evidence.made < evidence.made[800], evidence.arrived, -1)
    assert names(dataclasses.replace(evidence, arrived=arrived, latest=int(arrived.max()))) == []


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
    evidence = honest(value=np.random.default_rng(5).normal(size=1_000), family=Gaussian())
    delay = np.exp(sign * 0.5 * evidence.value) * 10 * MINUTE
    evidence = dataclasses.replace(evidence, arrived=evidence.made + delay.astype(np.int64))
    (warning,) = advise(evidence)
    assert warning.name == "dependence"
    assert f"{'high' if sign > 0 else 'low'} rewards arrive late" in warning.message


def test_rows_that_explain_both_are_no_dependence() -> None:
    """If an action is better and slower, delays do not matter given the row."""
    arm = np.arange(1_000) % 2
    rng = np.random.default_rng(6)
    delay = (1 + 9 * arm) * rng.exponential(5 * MINUTE, size=1_000)
    evidence = honest(family=Gaussian(), value=3.0 * arm + rng.normal(size=1_000))
    rows = np.eye(2, dtype=np.float32)[arm]
    evidence = dataclasses.replace(
        evidence, arrived=evidence.made + delay.astype(np.int64), rows=rows
    )
    assert names(evidence) == []
    assert names(dataclasses.replace(evidence, rows=np.ones_like(rows))) == ["dependence"]


def test_rewards_that_grow_are_no_dependence() -> None:
    """The last decisions are the best, and only their short delays are observed."""
    evidence = honest(2_000, family=Gaussian())
    value = np.arange(2_000) / 200 + np.random.default_rng(7).normal(size=2_000)
    delay = np.random.default_rng(8).exponential(700 * MINUTE, size=2_000).astype(np.int64)
    arrived = np.where(evidence.made + delay <= evidence.now, evidence.made + delay, -1)
    evidence = dataclasses.replace(evidence, value=value, arrived=arrived, learned=arrived >= 0)
    assert "dependence" not in names(evidence)


@pytest.mark.parametrize(
    ("window", "warned"), [(HOUR, False), (10 * HOUR, True), (1_000 * HOUR, False)]
)
def test_a_window_much_longer_than_rewards_take(window: int, warned: bool) -> None:
    """There is no finding if few are pending, or none is old enough."""
    evidence = clicks(2_000, rate=0.3, defaults=True, window=window)
    pending = (evidence.arrived < 0) & (evidence.now - evidence.made < window)
    evidence = dataclasses.replace(evidence, pending=int(pending.sum()), learned=~pending)
    assert names(evidence) == warned * ["window"]


def test_a_shorter_window_is_advised_only_if_rewards_keep_it() -> None:
    """A shorter window would lose rewards that arrive even later."""
    evidence = clicks(2_000, rate=0.3, defaults=True, window=10 * HOUR)
    pending = (evidence.arrived < 0) & (evidence.age < 10 * HOUR)
    evidence = dataclasses.replace(evidence, pending=int(pending.sum()), learned=~pending)
    (advice,) = advise(evidence)
    assert "or a shorter window (99% of the rewards arrived within" in advice.message
    delayed = evidence.rewarded & (np.arange(2_000) % 40 < 2) & (evidence.age > 12 * HOUR)
    evidence = dataclasses.replace(
        evidence, arrived=np.where(delayed, evidence.made + 11 * HOUR, evidence.arrived)
    )
    (advice,) = advise(evidence)
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
    (warning,) = advise(honest(rows=rows))
    assert f"{np.abs(rows).max():.3g}" in warning.message


def without(seen: Evidence) -> Evidence:
    """Return the rows without their intercept."""
    return dataclasses.replace(seen, rows=seen.rows[:, 1:])


def test_clicks_as_gaussian_need_an_intercept() -> None:
    """The message names the alternatives."""
    (warning,) = advise(without(honest(family=Gaussian())))
    assert warning.name == "intercept"
    assert "Bernoulli()" in warning.message
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
    evidence = honest(family=family)
    eta = evidence.rows[:, 1:].astype(np.float64) @ [1.0, -1.0, 0.5] + level
    evidence = dataclasses.replace(evidence, value=family.sample(eta, np.random.default_rng(9)))
    assert names(without(evidence)) == warned * ["intercept"]
    assert names(evidence) == []


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
    assert [warning.name for warning in adviser.look(clicks())] == ["alike"]
    assert list(adviser.look(clicks())) == []
    assert adviser.current == {"alike"}
    assert list(adviser.look(honest())) == []
    assert adviser.current == frozenset()
    assert [warning.name for warning in adviser.look(clicks(duplicates=600))] == ["duplicates"]


def test_what_could_not_be_said_is_said_next_time() -> None:
    """If warnings are errors, the first one ends the call."""
    adviser = Adviser()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="all rewards so far"):
            deque(map(warn, adviser.look(clicks(duplicates=600))))
    assert [warning.name for warning in adviser.look(clicks(duplicates=600))] == ["duplicates"]


def test_looks_become_rarer_and_never_cease() -> None:
    """Checks run when records have doubled, and finally every 8,192 records."""
    adviser = Adviser()
    looks = [version for version in range(40_000) if adviser.is_due(version)]
    assert looks[:3] == [100, 200, 400]
    assert max(np.diff(looks)) == 8_192
    assert len(looks) < 14
