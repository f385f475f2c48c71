"""A holdout: the baseline makes a share of decisions, with propensities over both groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Holdout,
    MemoryJournal,
    PerArm,
    Uniform,
)
from belated.exceptions import InvalidConfig, InvalidInput
from belated.service.operating.config import read_config

ROWS = np.eye(3)


def _bandit(holdout: Holdout | None, **settings: Any) -> Bandit:
    defaults: dict[str, Any] = {
        "policy": DelayedUCB(3, Bernoulli(), floor=0.1),
        "rewards": DefaultAfter("7d"),
        "journal": MemoryJournal(),
    }
    return Bandit(**(defaults | settings), holdout=holdout, seed=1)


def test_a_share_is_held_out_and_marked() -> None:
    """Decisions are marked with their group."""
    bandit = _bandit(Holdout(0.3, "blue"))
    names = ["red", "green", "blue"]
    decisions = bandit.decide_many(rows=[ROWS] * 600, actions=names)
    holdout = [decision for decision in decisions if decision.group == "holdout"]
    assert 130 < len(holdout) < 230
    assert {decision.source for decision in holdout} == {"holdout"}
    assert {decision.action for decision in holdout} == {"blue"}
    assert {(decision.group, decision.source) for decision in decisions} == {
        ("holdout", "holdout"),
        ("bandit", "policy"),
    }
    assert bandit.pending.count == 600
    assert bandit.entry(holdout[0].id).decision == holdout[0]


@pytest.mark.parametrize(
    "policy",
    [
        DelayedUCB(3, Bernoulli(), floor=0.1),
        DelayedUCB(3, Bernoulli()),
        DelayedThompson(3, Bernoulli()),
        Uniform(3, Bernoulli()),
    ],
)
def test_the_overall_propensity_is_that_of_both_groups(policy: Any) -> None:
    """It mixes the propensities of policy and baseline."""
    bandit = _bandit(Holdout(0.5, "uniform"), policy=policy)
    rng = np.random.default_rng(0)
    for _ in range(40):
        decision = bandit.decide(rows=ROWS)
        assert decision.overall is not None
        if decision.group == "bandit":
            assert decision.overall == pytest.approx(0.5 / 3 + 0.5 * decision.propensity)
        else:
            assert decision.propensity == pytest.approx(1 / 3)
            assert 0.5 / 3 <= decision.overall <= 0.5 / 3 + 0.5
        bandit.observe(decision, float(rng.random() < 0.3 + 0.6 * (decision.index == 0)))


def test_overall_propensities_are_how_often_actions_are_taken() -> None:
    """Inverse weights of an action add up to the number of decisions."""
    bandit = _bandit(Holdout(0.4, "first"))
    decisions = bandit.decide_many(rows=[ROWS] * 2_000)
    inverse = [
        1.0 / decision.overall
        for decision in decisions
        if decision.index == 0 and decision.overall is not None
    ]
    # Each action stands for all decisions, whichever group took it.
    assert sum(inverse) == pytest.approx(2_000, rel=0.1)


def test_all_decisions_of_a_unit_are_in_one_group() -> None:
    """With ``by``, the unit determines the group."""
    features = PerArm(["red", "blue"], context=["age"])
    settings = {"policy": DelayedUCB(features.dim, Bernoulli()), "features": features}
    bandit = _bandit(Holdout(0.5, "uniform", by="customer"), **settings)
    groups: dict[int, set[str]] = {}
    for n in range(60):
        decision = bandit.decide({"age": 0.5, "customer": n % 12})
        groups.setdefault(n % 12, set()).add(decision.group)
    assert all(len(names) == 1 for names in groups.values())
    assert {name for names in groups.values() for name in names} == {"bandit", "holdout"}
    with pytest.raises(InvalidInput, match="has no field 'customer'"):
        bandit.decide({"age": 0.5})


def test_a_retry_is_in_the_same_group() -> None:
    """The id determines the group."""
    first, second = _bandit(Holdout(0.5, "uniform")), _bandit(Holdout(0.5, "uniform"))
    for n in range(30):
        assert (
            first.decide(rows=ROWS, id=f"d{n}").group == second.decide(rows=ROWS, id=f"d{n}").group
        )


def test_no_groups_without_a_policy() -> None:
    """In the modes baseline and off there are no groups."""
    bandit = _bandit(Holdout(0.5, "uniform"))
    bandit.change_mode("baseline")
    bandit.decide(rows=ROWS)
    assert {bandit.decide(rows=ROWS).group for _ in range(20)} == {""}
    assert {_bandit(None).decide(rows=ROWS).overall for _ in range(3)} == {None}


def test_lift_is_what_the_policy_earns_beyond() -> None:
    """Lift compares the policy with the baseline."""
    now = [1_700_000_000_000_000]
    journal = MemoryJournal(clock=lambda: now[0])
    bandit = Bandit(
        policy=DelayedUCB(3, Bernoulli(), floor=0.1),
        rewards=DefaultAfter("2d"),
        journal=journal,
        clock=lambda: now[0],
        holdout=Holdout(0.3, "uniform"),
        seed=2,
    )
    rng = np.random.default_rng(3)
    for _ in range(60):
        now[0] += 3 * 3_600_000_000
        for decision in bandit.decide_many(rows=[ROWS] * 30):
            if rng.random() < (0.1, 0.2, 0.7)[decision.index]:
                bandit.observe(decision, 1.0)
    estimate = bandit.lift()
    assert estimate.low > 0
    assert estimate.holdout.value == pytest.approx(1 / 3, abs=0.1)
    assert estimate.confidence_sequence is not None
    assert estimate.baseline == "uniform"
    assert "baseline='uniform'" in repr(estimate)
    assert bandit.evaluate("uniform").low < 1 / 3 < bandit.evaluate("uniform").high


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (
            {"share": 0, "baseline": "first"},
            "`share` must be a number between 0 and 1, such as 0.05, got 0",
        ),
        (
            {"share": True, "baseline": "first"},
            "`share` must be a number between 0 and 1, such as 0.05, got True",
        ),
        ({"share": 0.1, "baseline": 1.5}, "`baseline` is 1.5"),
        ({"share": 0.1}, "`baseline` is missing: pass 'first', 'uniform' or the name of"),
    ],
)
def test_what_is_no_holdout_is_refused(wrong: Any, match: str) -> None:
    """Invalid shares, baselines and fields are refused."""
    with pytest.raises(InvalidInput, match=re.escape(match)):
        Holdout(**wrong)
    with pytest.raises(InvalidInput, match="pass Holdout"):
        _bandit(0.1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="add features to the bandit"):
        _bandit(Holdout(0.1, "uniform", by="customer"))


FILE = """
[store]
address = "sqlite:///shop.db"
[bandits.offers]
policy = "DelayedUCB(dim=3, family=Bernoulli())"
rewards = "DefaultAfter('7d')"
[bandits.offers.holdout]
"""


def test_a_service_reads_it_from_its_file(tmp_path: Path) -> None:
    """The configuration has a section for the holdout."""
    path = tmp_path / "belated.toml"
    path.write_text(FILE + 'share = 0.05\nbaseline = "first"\n')
    assert read_config(path).bandits[0].holdout == Holdout(0.05, "first")
    path.write_text(FILE + 'share = 5\nbaseline = "first"\n')
    with pytest.raises(InvalidConfig, match=r"holdout.share: expected a share between 0 and 1"):
        read_config(path)
