"""What needs attention: found in the numbers of a report, and said in words."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, MemoryJournal
from belated.report.data.attention import CARE, KINDS, attention
from belated.report.data.facts import Facts
from belated.report.page.attention import needs
from belated.testing import ManualClock

HOUR = 3_600_000_000


@pytest.fixture(scope="module")
def facts() -> Facts:
    """Of a bandit that shows one action alone, and whose good outcomes come much sooner."""
    clock = ManualClock(1_780_000_000_000_000)
    policy, journal = DelayedUCB(2, Bernoulli()), MemoryJournal(clock=clock)
    bandit = Bandit(policy, rewards=Explicit("3d"), journal=journal, clock=clock, seed=1)
    waiting: list[tuple[int, str, float]] = []
    for n in range(2_000):
        clock.now += HOUR // 8
        bandit.decide([[1.0, 0.5]], ["seldom" if n < 3 else "shown"], id=f"d{n}")
        reward = float(n % 3 == 0)
        waiting.append((clock.now + (HOUR if reward else 40 * HOUR), f"d{n}", reward))
        for one in [one for one in waiting if one[0] <= clock.now]:
            bandit.observe(one[1], one[2])
            waiting.remove(one)
    bandit.sync()
    return Facts.read(bandit._evaluation(), None)


@pytest.fixture
def calm() -> dict[str, Any]:
    """Numbers of a report that need none."""
    return {
        "calibration": {"bias": 0.3, "bias_se": 0.2},
        "feed": {"outages": []},
        "quality": {"rewards_told": 1000, "rows": []},
        "health": {"mode": "learn", "converged": True},
    }


def kinds(facts: Facts, data: dict[str, Any]) -> list[str]:
    """What was found."""
    return [one["kind"] for one in attention(facts, data)]


def test_what_the_journal_shows(facts: Facts, calm: dict[str, Any]) -> None:
    """One action alone, and delays that depend on rewards."""
    found = attention(facts, calm)
    assert [one["kind"] for one in found] == ["exploration", "dependence"]
    assert (found[0]["action"], found[0]["share"]) == ("shown", 1.0)
    assert found[1]["chance"] < 1e-6


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
            for kind, limit in CARE.items()
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
        ("quality", {"rewards_told": 10, "rows": [{"kind": "conflict", "n": 9}]}),
        ("quality", {"rows": [{"kind": "late", "n": 900}]}),
        *(
            ("quality", {"rows": [{"kind": kind, "n": int(1000 * limit)}]})
            for kind, limit in CARE.items()
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


DAY_MS = 1_780_000_000_000
Words = tuple[dict[str, Any], str, str]
SAID: dict[str, Words] = {
    "silence": ({"hours": 30.0, "expected": 12.0}, "No reward has come for 1.2 days", "12 rewards"),
    "slowed": ({"since": DAY_MS, "came": 1, "expected": 9.0}, "1 reward since", "9 rewards"),
    "calibration": ({"ratio": 1.5}, "Predictions are 1.5 times what is observed", "7 days"),
    "outage": (
        {"hours": 22.0, "from": DAY_MS},
        "No rewards came for 22 hours from 28 May",
        "since",
    ),
    "exploration": ({"share": 0.995, "action": "red"}, "of recent decisions chose red", "floor"),
    "mode": ({"mode": "off"}, "The mode is off", "not learning as usual"),
    "fit": ({}, "has not converged", "out of scale"),
    "dependence": ({"chance": 1e-5}, "Delays depend on rewards", "1e-05"),
    **{kind: ({"share": 0.25}, "25 % of reward messages", "") for kind in CARE},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_words(kind: str) -> None:
    """What it is, with its numbers, and what it may come from."""
    numbers, said, why = SAID[kind]
    off = {"bias": 0.5, "bias_se": 0.1, "weeks": [{"bias": 0.5}]}
    data = {
        "calibration": off,
        "rewards": {"kind": "DefaultAfter", "window_days": 7},
        "period": "day",
        "period_ms": 86_400_000,
    }
    what, cause = needs(data, {"kind": kind, **numbers})
    assert said in what
    assert why in cause
    assert cause
