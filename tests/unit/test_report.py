"""The data of a report: its numbers are those of the functions, and odd journals have one too."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    Gaussian,
    Holdout,
    MemoryJournal,
    Number,
    PerArm,
    Text,
)
from belated.evaluation.lifts import GroupValue, Lift
from belated.evaluation.sources import read_journal
from belated.exceptions import InvalidInput
from belated.fold.rules import State
from belated.report import Report
from belated.report.facts import Calendar
from belated.report.panels import PANELS, share, specifications
from belated.report.panels.headline import relative_lift
from belated.report.report import learned
from belated.report.vega import LIGHT

HOUR = 3_600_000_000
START = 1_780_000_000_000_000
ACTIONS = ["red", "blue", "green"]


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """Now."""
        return self.now


def played(rounds: int = 1_500, hours: float = 0.4, **settings: Any) -> Bandit:
    """A bandit with a holdout that has played: red earns the most, for members above all."""
    clock = Clock()
    features = PerArm(ACTIONS, context=["member", "age"])
    defaults: dict[str, Any] = {
        "policy": DelayedUCB(features.dim, Bernoulli(), floor=0.1),
        "rewards": DefaultAfter("4d"),
        "holdout": Holdout(0.2, "uniform"),
        "features": features,
        "retention": "10d",
    }
    defaults |= settings
    bandit = Bandit(**defaults, journal=MemoryJournal("offers", clock=clock), clock=clock, seed=2)
    rng = np.random.default_rng(5)
    waiting: list[tuple[int, str]] = []
    for n in range(rounds):
        clock.now += int(hours * HOUR)
        for due, id in [entry for entry in waiting if entry[0] <= clock.now]:
            bandit.observe(id, 1.0)
            waiting.remove((due, id))
        member = float(rng.random() < 0.5)
        decision = bandit.decide({"member": member, "age": rng.random()}, id=f"d{n}")
        chance = {"red": 0.3 + 0.3 * member, "blue": 0.2, "green": 0.1}[str(decision.action)]
        if rng.random() < chance:
            waiting.append((clock.now + int(rng.exponential(30 * HOUR)), f"d{n}"))
    if rounds > 1:
        bandit.void(f"d{rounds - 1}")
    bandit.change_mode("freeze", "a test")
    bandit.sync()
    return bandit


@pytest.fixture(scope="module")
def bandit() -> Bandit:
    """One that has played for 25 days."""
    return played()


@pytest.fixture(scope="module")
def data(bandit: Bandit) -> dict[str, Any]:
    """Of its report."""
    return bandit.report().data


def test_the_headline_is_that_of_lift(bandit: Bandit, data: dict[str, Any]) -> None:
    """The same numbers, to six digits."""
    lift, head = bandit.lift(), data["headline"]
    count = lift.bandit.decisions
    assert head["bandit"] == count
    assert head["holdout"] == lift.holdout.decisions
    expected = {
        "lift": relative_lift(lift),
        "extra": (count * lift.difference, count * lift.low, count * lift.high),
        "difference": (lift.difference, lift.low, lift.high),
    }
    for name, numbers in expected.items():
        assert tuple(head[name].values()) == pytest.approx(numbers, rel=1e-5), name
    assert head["per_decision"]["p"] == pytest.approx(lift.bandit.value, rel=1e-5)
    assert head["per_decision_holdout"]["p"] == pytest.approx(lift.holdout.value, rel=1e-5)


@pytest.mark.parametrize("own", [0.05, 0.14, 0.2, 0.4])
def test_the_lift_has_the_interval_of_the_difference(own: float) -> None:
    """Its ends are the ratios at which the difference is as unlikely; so both contain 0 or none."""
    bandit, holdout = GroupValue("", 900, 90, own, 0.03), GroupValue("", 100, 10, 0.1, 0.02)
    difference, error = own - 0.1, math.hypot(0.03, 0.02)
    low, high = difference - 1.96 * error, difference + 1.96 * error
    estimate = Lift(bandit, holdout, difference, low, high, 0.5, None, None, 0.95, "")
    interval = relative_lift(estimate)
    assert interval is not None
    assert interval[0] == pytest.approx(own / 0.1 - 1.0)
    for end in interval[1:]:
        if end > -1.0:  # else a reward below zero would be needed
            ratio = 1.0 + end
            distance = abs(own - ratio * 0.1) / math.hypot(0.03, ratio * 0.02)
            assert distance == pytest.approx(1.96)
    assert (interval[1] > 0.0, interval[2] < 0.0) == (low > 0.0, high < 0.0)
    error = math.hypot(0.03, 0.06)
    low, high = difference - 1.96 * error, difference + 1.96 * error
    uncertain = replace(estimate, holdout=holdout._replace(error=0.06), low=low, high=high)
    assert relative_lift(uncertain) is None


def test_delays_are_those_of_the_functions(bandit: Bandit, data: dict[str, Any]) -> None:
    """Curve and forecast."""
    curve = bandit.delay_curve()
    assert curve.median is not None
    assert data["delay"]["median"] == pytest.approx(curve.median / timedelta(days=1), rel=1e-5)
    for row in data["delay"]["curve"][1:]:
        assert (row["F"], row["lo"], row["hi"]) == pytest.approx(
            curve.at(timedelta(days=row["d"])), abs=2e-3
        )
    total = bandit.forecast().expected[0]
    total_row = data["forecast"]["total"]
    assert (total_row["n"], total_row["lo"], total_row["hi"]) == pytest.approx(
        (total.mean, total.low, total.high), rel=1e-5
    )
    expected = bandit.forecast([timedelta(days=n) for n in range(1, 11)]).expected
    bound = min(expected[4].mean, total.mean)
    assert data["forecast"]["next"][4]["by_then"] == pytest.approx(bound, rel=1e-5)


def test_counts_are_those_of_the_journal(bandit: Bandit, data: dict[str, Any]) -> None:
    """Decisions, rewards, pending ones, and what needed care."""
    table = read_journal(bandit.journal)
    assert data["headline"]["decisions"] == int((table.state != State.VOIDED).sum())
    assert data["headline"]["voided"] == 1
    assert data["headline"]["rewards"] == int(table.live().arrived.sum())
    assert data["headline"]["pending"]["n"] == bandit.decision_counts["pending"]
    assert data["pending"][-1]["n"] == bandit.decision_counts["pending"]
    assert sum(row["n"] for row in data["forecast"]["past"]) == data["headline"]["rewards"]
    counts = {row["kind"]: row["n"] for row in data["quality"]["rows"]}
    assert counts["late"] == bandit.event_counts["late"]
    assert counts["voided"] == 1
    assert data["health"]["mode"] == "freeze"
    frozen = {"t": int(table.as_of) // 1000, "mode": "freeze", "reason": "a test", "actor": ""}
    assert data["modes"] == [frozen]
    assert [notice["kind"] for notice in data["attention"]].count("mode") == 1


def test_shares_and_segments_add_up(data: dict[str, Any]) -> None:
    """To one, in every period and segment."""
    for rows, key in ((data["share"], "t"), (data["segments"], "segment")):
        for group in {row[key] for row in rows}:
            assert sum(row["share"] for row in rows if row[key] == group) == pytest.approx(
                1, abs=1e-3
            )
    segments = {(row["by"], row["segment"]) for row in data["segments"]}
    hours = {(dimension, segment) for dimension, segment in segments if dimension == "hour (UTC)"}
    assert segments - hours == {("member", "member"), ("member", "not member")}
    assert {segment for _, segment in hours} == {
        "00:00–06:00", "06:00–12:00", "12:00–18:00", "18:00–24:00",
    }  # fmt: skip


def test_segments_are_by_category_too() -> None:
    """Common values each, the others together; text that is different everywhere is left out."""
    bandit = Bandit(
        PerArm(ACTIONS, context={"country": Text(hash=8), "page": Text(hash=8)}),
        rewards=Explicit(),
        seed=1,
    )
    for n in range(80):
        country = "DE" if n % 2 else "other land" if n > 70 else f"{n % 5}"
        bandit.decide({"country": country, "page": f"page {n}"})
    rows = bandit.report().data["segments"]
    countries = {row["segment"] for row in rows if row["by"] == "country"}
    assert {"country = DE", "country = other"} <= countries
    assert len(countries) == 6
    assert not [row for row in rows if row["by"] == "page"]
    assert sum(row["n"] for row in rows if row["by"] == "country") == 80


def test_rewards_have_a_unit_or_a_currency() -> None:
    """In titles, tiles and axes; a share is no money."""
    report = played(300).report().with_units("purchase")
    assert '<div class="lab">Purchases</div>' in report.html()
    with pytest.raises(InvalidInput, match="rewards are between 0 and 1"):
        report.with_units(currency="EUR")
    with pytest.raises(InvalidInput, match="`unit` is empty"):
        report.with_units(" ")
    policy = DelayedUCB(9, Gaussian(), floor=0.1)
    money = played(300, policy=policy).report().with_units("order", "EUR")
    page = money.html().partition("<script")[0]
    assert re.search(r"Reward per decision</div><div class=\"val\">€0\.\d\d", page)
    axis = specifications(money.data)["earn"]
    assert axis["config"]["locale"]["number"]["currency"] == ["€", ""]


def test_the_auditor_finds_the_best_action(data: dict[str, Any]) -> None:
    """Little is left on the table by a bandit that has learned; less than at first."""
    foregone = data["foregone"]
    assert 0.0 <= foregone["lo"] <= foregone["p"] <= foregone["hi"] < 0.12
    assert foregone["p"] < foregone["first"]
    best = data["coefficients"][0]
    assert abs(best["audit"] - best["theta"]) < 1.5


def test_what_was_learned_is_read_from_the_journal(bandit: Bandit) -> None:
    """By the policy that the journal names."""
    estimate, evidence = learned(bandit._log())
    assert estimate is not None
    assert evidence is not None
    assert evidence.decisions == len(read_journal(bandit.journal).live())
    assert estimate.theta == pytest.approx(bandit.estimate.theta, abs=1e-6)


def test_data_is_plain(data: dict[str, Any]) -> None:
    """JSON without NaN, as large as days and actions."""
    text = json.dumps(data, allow_nan=False)
    assert data["schema"] == "belated-report/1"
    assert len(text) < 100_000
    rewards = data["headline"]["rewards"]
    assert repr(Report(data)) == f"<Report of 'offers': 1,499 decisions, {rewards} rewards>"


def test_every_chart_has_a_specification(data: dict[str, Any]) -> None:
    """Of Vega-Lite 5, without an address of data; tokens became colours."""
    charts = specifications(data, LIGHT)
    assert list(charts) == [panel.name for panel in PANELS]
    text = json.dumps(charts)
    assert '"$accent"' not in text
    assert '"url"' not in text
    assert "var(--accent)" in json.dumps(specifications(data))


@pytest.mark.parametrize("rounds", [1, 30])
@pytest.mark.parametrize(
    "settings",
    [
        {"holdout": None},
        {"rewards": Explicit(), "retention": None},
        {"rewards": Explicit("2d"), "policy": DelayedUCB(9, Gaussian(), floor=0.1)},
        {"keep_requests": 0.0},
    ],
)
def test_small_journals_have_a_report(rounds: int, settings: dict[str, Any]) -> None:
    """Panels without data say what is missing."""
    page = played(rounds, **settings).report().html()
    assert "<h2>Does it earn?</h2>" in page
    assert 'class="none"' in page
    assert "nan" not in page.partition("<script")[0].lower().replace("finance", "")


@pytest.mark.parametrize(
    ("holdout", "reason"),
    [
        (None, "is not known without a holdout"),
        (Holdout(0.03, "uniform"), "is not known yet: the holdout has too few"),
    ],
)
def test_the_headline_says_why_the_lift_is_not_known(holdout: Holdout | None, reason: str) -> None:
    """A holdout with too few rewards is not the same as none."""
    report = played(200, holdout=holdout).report()
    assert bool(report.data["headline"]["holdout"]) == (holdout is not None)
    assert reason in report.html()


def test_the_field_with_most_unusual_values_is_named() -> None:
    """Once enough contexts were encoded."""
    fields = {"member": Number(0, 1), "age": Number(0, 0.75)}
    features = PerArm(ACTIONS, context=fields)
    report = played(300, features=features).report()
    field = report.data["health"]["field"]
    assert (field["name"], field["status"]) == ("age", "clipped")
    assert field["share"] == pytest.approx(0.25, abs=0.08)
    assert "age, the highest share of all fields" in report.html()
    shop = played(20, features=PerArm(ACTIONS, context=fields))
    assert "field" not in shop.report().data["health"]


def test_nothing_decided_is_said() -> None:
    """Instead of an empty page."""
    bandit = Bandit(policy=DelayedUCB(2, Bernoulli()), rewards=Explicit())
    with pytest.raises(InvalidInput, match="has no decisions"):
        bandit.report()


def test_a_report_of_an_hour_has_minutes() -> None:
    """Periods are as short as can be shown."""
    data = played(240, hours=1 / 300).report().data
    assert data["period"] == "minute"
    assert Report(data).html().count("per minute") >= 2


def test_a_partial_period_is_not_in_titles() -> None:
    """One decision is not a hundred percent of a day."""
    times = START + np.append(np.arange(300) * HOUR // 10, 31 * HOUR)
    calendar = Calendar(START, 6 * HOUR, 6, "6 hours", START + 31 * HOUR)
    facts = SimpleNamespace(
        own=np.ones(301, dtype=bool),
        calendar=calendar,
        table=SimpleNamespace(made=times, action=np.arange(301) % 2, actions=("red", "blue")),
        actions=["red", "blue"],
    )
    rows = share.collect(facts)  # type: ignore[arg-type]
    assert calendar.partial == max(row["t"] for row in rows) == (START + 30 * HOUR) // 1000
    data = {"share": rows, "partial": calendar.partial}
    assert [last for _, _, last in share.shown_actions(data)] == [0.5, 0.5]
    assert replace(calendar, end=START + 36 * HOUR - 1).partial is None
