"""A bandit in three lines, without contexts and with records of all kinds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    Category,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Flag,
    Gaussian,
    Number,
    PerArm,
)
from belated.exceptions import InvalidInput
from belated.expressions import as_features
from belated.fold.fold import Fold, same_sums
from belated.journals import MemoryJournal
from belated.policies import Policy, Warmup
from belated.testing import ManualClock

WEEK = DefaultAfter(timedelta(days=7))
COLORS = ["blue", "red"]


def test_three_lines() -> None:
    """Decide without arguments, report, and the better action wins."""
    bandit = Bandit(COLORS, rewards=Explicit(), seed=1)
    rng = np.random.default_rng(1)
    actions = []
    for _ in range(300):
        decision = bandit.decide()
        actions.append(decision.action)
        bandit.observe(
            decision.id, float(rng.random() < (0.2 if decision.action == "blue" else 0.7))
        )
    assert set(actions[:10]) == set(COLORS)
    assert actions[-100:].count("red") > 80


def test_what_it_is_made_of() -> None:
    """The usual policy, a column for each action; families and settings may be given."""
    bandit = Bandit(COLORS, rewards=WEEK)
    assert bandit.policy == DelayedUCB(2, Bernoulli(), blocks=2, floor=0.02)
    assert bandit.features == PerArm(COLORS)
    features = PerArm(COLORS, context={"age": Number(18, 90)})
    linear = Bandit(features, rewards=Explicit(), family=Gaussian(), floor=0, baseline="red")
    assert linear.policy == DelayedUCB(4, Gaussian(), blocks=2)
    assert linear.decide({"age": 41}).action in COLORS
    with pytest.raises(InvalidInput, match="`rewards` is missing"):
        Bandit(COLORS)


@pytest.mark.parametrize(
    "policy",
    [
        DelayedThompson(family=Gaussian()),
        Warmup(DelayedUCB(family=Gaussian()), rounds=5),
        DelayedUCB(4, Gaussian()),
    ],
)
def test_a_policy_takes_its_width_from_the_features(policy: Policy) -> None:
    """It need not be counted; a width that is given must be right."""
    bandit = Bandit(PerArm(COLORS, context=["age"]), rewards=Explicit(), policy=policy)
    assert (bandit.policy.dim, bandit.policy.blocks) == (4, 2)
    assert bandit.decide({"age": 0.3}).action in COLORS
    with pytest.raises(InvalidInput, match=r"policy.dim is 3, but rows have 4 numbers: omit"):
        Bandit(PerArm(COLORS, context=["age"]), rewards=Explicit(), policy=DelayedUCB(3))


def test_a_policy_without_a_width_says_so() -> None:
    """Where there are no features, and when it is to choose."""
    with pytest.raises(InvalidInput, match=r"or pass features to the bandit"):
        Bandit(policy=DelayedUCB(), rewards=Explicit())
    with pytest.raises(InvalidInput, match=r"the number of features in a row is not set"):
        _ = DelayedUCB().start


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, r"`features` is missing: pass the names of the actions"),
        ({"features": DelayedUCB(2)}, r"a policy \(DelayedUCB\): pass the actions or"),
        ({"features": DelayedUCB}, r"a policy \(DelayedUCB\): pass the actions or"),
        ({"features": PerArm}, "`features` is the class PerArm: pass an instance"),
        ({"features": "blue"}, "`actions` must be .*got 'blue'"),
        (
            {"features": COLORS, "policy": DelayedUCB(), "family": Gaussian()},
            r"DelayedUCB\(family=",
        ),
        ({"features": COLORS, "policy": DelayedUCB(), "floor": 0.1}, r"DelayedUCB\(floor=0.1, "),
        ({"features": COLORS, "floor": 5}, "`floor` must be .*got 5"),
        ({"features": COLORS, "family": "gaussian"}, "`family` is 'gaussian'"),
    ],
)
def test_what_contradicts_itself(settings: dict[str, Any], match: str) -> None:
    """It is refused, with what to write instead."""
    with pytest.raises(InvalidInput, match=match):
        Bandit(**settings, rewards=Explicit())


def test_actions_may_be_named_or_not() -> None:
    """All, some of them, or none; alone and in batches."""
    bandit = Bandit(COLORS, rewards=WEEK)
    assert bandit.decide(None, COLORS).action in COLORS
    assert bandit.decide(None, ["red"]).action == "red"
    decisions = bandit.decide_many([None] * 4)
    assert {decision.action for decision in decisions} == set(COLORS)
    assert bandit.entry(decisions[0].id).request.actions == COLORS  # type: ignore[union-attr]


def test_it_survives_reopening(tmp_path: Path) -> None:
    """With its journal's address; with other actions, and in another order."""
    address = f"sqlite:///{tmp_path}/colors.db?bandit=colors"
    with Bandit(COLORS, rewards=WEEK, journal=address) as bandit:
        first = bandit.decide(id="a")
        bandit.observe("a", 1.0)
        digest = bandit.digest
    with Bandit(COLORS, rewards=WEEK, journal=address) as reopened:
        assert reopened.digest == digest
        assert reopened.decide(id="a") == first
    with Bandit([*COLORS, "green"], rewards=WEEK, journal=address) as extended:
        assert extended.decide(None, ["green"]).action == "green"
        assert extended.digest != digest
    with Bandit(["red", "blue"], rewards=WEEK, journal=address) as reordered:
        assert reordered.estimate.n == 1


def test_the_past_can_be_seen() -> None:
    """As of a moment before the reward."""
    clock = ManualClock()
    bandit = Bandit(COLORS, rewards=WEEK, clock=clock, journal=MemoryJournal(clock=clock))
    decision = bandit.decide()
    instant = clock.now
    clock.now += 60_000_000
    bandit.observe(decision.id, 1.0)
    past = bandit.as_of(instant)
    assert past.pending.count == 1
    assert bandit.pending.count == 0


CONTEXT = {"age": Number(18, 90), "country": Category(["AT", "DE"]), "member": Flag()}


def record(n: int) -> dict[str, Any]:
    """A context of all kinds, with gaps and unknown values."""
    return {
        "age": None if n % 11 == 0 else 18 + n % 80,
        "country": [None, "AT", "DE", "FR"][n % 4],
        "member": n % 3 == 0,
    }


def test_a_replay_of_encoded_contexts_is_exact(tmp_path: Path) -> None:
    """Digest and sums; with features read from what the journal says of itself, too."""
    address = f"sqlite:///{tmp_path}/people.db?bandit=people"
    features = PerArm(COLORS, context=CONTEXT)
    with Bandit(features, rewards=WEEK, journal=address, seed=3) as bandit:
        decisions = bandit.decide_many([record(n) for n in range(200)])
        bandit.observe_many((decision.id, n % 2) for n, decision in enumerate(decisions))
        configured = bandit.journal.configured()
        assert configured is not None
        encoder = as_features(configured.settings["features"])
        fold = Fold(bandit.policy, WEEK)
        fold.catch_up(bandit.journal)
        assert fold.digest == bandit.digest
        assert same_sums(fold, bandit._fold, 0.0)
        digest = bandit.digest
        for decision in decisions[:20]:  # the request that was kept gives the same row again
            request = bandit.entry(decision.id).request
            assert request is not None
            assert request.actions is not None
            assert (
                encoder.rows(request.context, request.actions)[decision.index] == decision.x
            ).all()
    with Bandit(encoder, rewards=WEEK, journal=address) as reopened:
        assert reopened.digest == digest
    changed = PerArm(COLORS, context={**CONTEXT, "age": Number(18, 91)})
    with Bandit(changed, rewards=WEEK, journal=address) as reopened:
        assert reopened.digest == digest
