"""What needs attention: found in the numbers of a report, and said in words."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, MemoryJournal
from belated.advice import CHECKS, WARNINGS, Evidence, Overview, advise
from belated.advice.checks import CARE
from belated.exceptions import MissingRewardWarning
from belated.fold.evidence import evidence_of
from belated.report.facts import Facts
from belated.report.html import element
from belated.report.panels.attention import collect as attention
from belated.testing import ManualClock

HOUR = 3_600_000_000


@pytest.fixture(scope="module")
def facts() -> Facts:
    """Of a bandit that shows one action alone, and whose good outcomes come much sooner."""
    clock = ManualClock(1_780_000_000_000_000)
    policy, journal = DelayedUCB(2, Bernoulli()), MemoryJournal(clock=clock)
    bandit = Bandit(policy=policy, rewards=Explicit("3d"), journal=journal, clock=clock, seed=1)
    waiting: list[tuple[int, str, float]] = []
    for n in range(2_000):
        clock.now += HOUR // 8
        bandit.decide(rows=[[1.0, 0.5]], actions=["seldom" if n < 3 else "shown"], id=f"d{n}")
        reward = float(n % 3 == 0)
        waiting.append((clock.now + (HOUR if reward else 40 * HOUR), f"d{n}", reward))
        for entry in [entry for entry in waiting if entry[0] <= clock.now]:
            bandit.observe(entry[1], entry[2])
            waiting.remove(entry)
    bandit.sync()
    return Facts.read(bandit._log(), None, evidence_of(bandit._fold))


@pytest.fixture
def calm() -> dict[str, Any]:
    """Numbers of a report that need none."""
    return {
        "calibration": {"bias": 0.3, "bias_se": 0.2},
        "feed": {"outages": []},
        "quality": {"reward_messages": 1000, "rows": []},
        "health": {"mode": "learn", "converged": True},
    }


def kinds(facts: Facts, data: dict[str, Any]) -> list[str]:
    """What was found."""
    return [notice["kind"] for notice in attention(facts, data)]


def test_what_the_journal_shows(facts: Facts, calm: dict[str, Any]) -> None:
    """One action alone, and delays that depend on rewards."""
    notices = attention(facts, calm)
    assert [notice["kind"] for notice in notices] == ["dependence", "exploration"]
    assert "low rewards arrive late" in notices[0]["said"]
    assert notices[1]["said"] == "100% of recent decisions chose shown"


def test_a_policy_that_the_journal_cannot_name_is_checked_all_the_same(
    facts: Facts, calm: dict[str, Any]
) -> None:
    """By what the table of decisions tells."""
    assert kinds(replace(facts, evidence=None), calm) == ["exploration"]


def test_a_report_lists_what_the_bandit_warns_of() -> None:
    """In the same words."""
    clock = ManualClock(1_780_000_000_000_000)
    journal = MemoryJournal(clock=clock)
    bandit = Bandit(["blue", "red"], rewards=Explicit(), journal=journal, clock=clock, seed=1)

    def click() -> None:
        for n in range(300):
            clock.now += HOUR // 60
            decision = bandit.decide()
            if n % 10 == 0:
                bandit.observe(decision.id, 1.0)

    with pytest.warns(MissingRewardWarning) as caught_warnings:
        click()
    (message,) = [str(warning.message) for warning in caught_warnings]
    (notice_alike,) = [
        notice for notice in bandit.report().data["attention"] if notice["kind"] == "alike"
    ]
    assert notice_alike["remedy"][1:] in message
    assert notice_alike["said"].startswith("All rewards so far are 1, and ")
    assert element("b", notice_alike["said"]) in bandit.report().html()


@pytest.mark.parametrize(
    ("part", "change", "kind"),
    [
        ("calibration", {"bias": 0.7}, "calibration"),
        ("calibration", {"bias": -0.12, "bias_se": 0.01}, "calibration"),
        ("feed", {"outages": [{"from": 0, "hours": 20.0}]}, "outage"),
        ("health", {"mode": "freeze"}, "mode"),
        ("health", {"converged": False}, "fit"),
        *(
            ("quality", {"rows": [{"kind": kind, "n": int(1000 * limit) + 1}]}, kind)
            for kind, (limit, _, _) in CARE.items()
        ),
    ],
)
def test_each_by_itself(
    facts: Facts, calm: dict[str, Any], part: str, change: dict[str, Any], kind: str
) -> None:
    """A change of one number adds one kind."""
    data = deepcopy(calm)
    data[part] |= change
    assert sorted(kinds(facts, data)) == sorted([*kinds(facts, calm), kind])


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("calibration", {"bias": 0.59}),
        ("calibration", {"bias": 0.09, "bias_se": 0.001}),
        ("quality", {"reward_messages": 10, "rows": [{"kind": "conflict", "n": 9}]}),
        ("quality", {"rows": [{"kind": "late", "n": 900}]}),
        *(
            ("quality", {"rows": [{"kind": kind, "n": int(1000 * limit)}]})
            for kind, (limit, _, _) in CARE.items()
        ),
    ],
)
def test_what_may_be_chance_needs_none(
    facts: Facts, calm: dict[str, Any], part: str, change: dict[str, Any]
) -> None:
    """Up to three standard errors, a tenth, ten messages, and the usual share of them."""
    data = deepcopy(calm)
    data[part] |= change
    assert kinds(facts, data) == kinds(facts, calm)


DAY_US = 1_780_000_000_000_000
SAID: dict[str, tuple[Overview, str, str]] = {
    "silence": (
        Overview(quiet=(30 * HOUR, 12.0, True)), "no reward has arrived for 1.2 days", "about 12",
    ),
    "slowed": (Overview(slowing=(DAY_US, 1, 9.0)), "1 reward since 28 May", "about 9"),
    "outage": (
        Overview(outages=[(0, HOUR), (DAY_US, 22 * HOUR)]),
        "no reward arrived for 22 hours from 28 May", "2 gaps in all",
    ),
    "calibration": (
        Overview(bias=(0.5, 0.1)), "predictions are 1.5 times the observed rewards", "after 7 days",
    ),
    "exploration": (Overview(favorite=("red", 0.995)), "of recent decisions chose red", "floor"),
    "mode": (Overview(mode="off"), "the mode is off", "new rewards do not affect decisions"),
    "fit": (Overview(converged=False), "did not converge", "badly scaled"),
    **{
        kind: (Overview(reward_messages=100, problems={kind: 25}), "25% of reward messages", "")
        for kind in CARE
    },
}  # fmt: skip


def test_every_check_of_a_report_has_its_words() -> None:
    """What was found, with its numbers, and what to do; nothing for a running bandit."""
    assert {*SAID} - {"silence"} == {*CHECKS} - {*WARNINGS}
    evidence = Evidence(Bernoulli(), ridge=1.0, window=7 * 24 * HOUR, defaults=True, now=DAY_US)
    assert advise(evidence) == []
    for name, (overview, message, remedy) in SAID.items():
        (advice,) = advise(replace(evidence, overview=overview))
        assert advice.name == name
        assert message in advice.said
        assert advice.remedy
        assert remedy in advice.remedy


def test_the_forecast_decides_whether_rewards_have_stopped() -> None:
    """A report has one, and a running bandit does not."""
    evidence = Evidence(
        Bernoulli(), ridge=1.0, window=None, defaults=False, now=DAY_US, decisions=1_000
    )
    assert [advice.name for advice in advise(evidence)] == ["silence"]
    assert advise(replace(evidence, overview=Overview(quiet=(HOUR, 3.0, False)))) == []
