"""A decider whose model or policy fails, and its modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB
from belated.decider import Decider, ParsedRequest
from belated.exceptions import BanditOff, CorruptJournal
from belated.fold.learner import Learner
from belated.policies.policy import Choice
from tests.unit.small_deciders import DIM, ROWS, Served, choose, decider, published

# --- without a model -----------------------------------------------------------------------------


class Broken(DelayedUCB):
    """A policy that fails for rows that begin with a 1."""

    def choose(self, model: Any, rows: Any, rng: np.random.Generator) -> Choice:
        """Fail for one request."""
        if rows[0, 0] == 1.0:
            raise ZeroDivisionError("of a policy")
        return super().choose(model, rows, rng)

    def choose_all(self, model: Any, rows: Any, ends: Any, *more: Any) -> list[Choice]:
        """Fail for several requests."""
        if any(rows[start, 0] == 1.0 for start in [0, *ends[:-1]]):
            raise ZeroDivisionError("of a policy")
        return super().choose_all(model, rows, ends, *more)


def spoilt(one: Decider) -> None:
    """Replace the numbers of a decider's model by NaN."""
    one.model.theta = np.full(DIM, np.nan)
    one.model.decided = np.full((DIM, DIM), np.nan)


@pytest.mark.parametrize(
    "policy", [DelayedUCB(DIM, Bernoulli()), DelayedThompson(DIM, Bernoulli())], ids=["ucb", "ts"]
)
def test_a_model_that_is_not_finite_chooses_nothing(policy: Any) -> None:
    """The baseline decides, with its true propensity; the model is rebuilt."""
    one = decider(policy)
    choose(one)
    spoilt(one)
    decision = choose(one)
    assert (decision.propensity, decision.mean) == (1 / DIM, 0.5)
    assert sum(one.fallbacks.values()) == 1
    assert np.isfinite(one.model.decided).all()  # as it came, with what is unapplied
    assert choose(one).propensity > 0
    assert sum(one.fallbacks.values()) == 1
    assert one.ahead == 3


def test_a_policy_that_fails_for_one_request_chooses_for_the_others() -> None:
    """The baseline decides the failed requests, and they count."""
    one = Served(Broken(DIM, Bernoulli()), baseline="b")
    others = ROWS[[1, 2, 0]]
    tables = [others, ROWS, others, ROWS]
    made = one.many(tables, [ParsedRequest(DIM, ["a", "b", "c"]) for _ in tables])
    assert [made[1].action, made[3].action] == ["b", "b"]
    assert made[1].propensity == made[3].propensity == 1.0
    assert made[0].index != made[2].index  # the first was pending when the third was chosen
    assert one.fallbacks == {"error": 2}
    assert str(one.failure) == "ZeroDivisionError: of a policy"
    assert (one.ahead, one.model.pending) == (4, 4)


def test_a_bandit_that_is_off_decides_nothing() -> None:
    """It raises an error until the mode changes."""
    one = decider()
    one.change_mode("off")
    with pytest.raises(BanditOff, match="switched off"):
        choose(one)
    one.change_mode("learn")
    choose(one)


def test_a_model_with_numbers_that_are_not_finite_is_not_taken() -> None:
    """The decider keeps its current model."""
    policy = DelayedUCB(DIM, Bernoulli())
    one, learner = decider(policy), Learner(policy)
    learner.model.theta = np.full(DIM, np.nan)
    before = one.model
    with pytest.raises(CorruptJournal, match="not finite"):
        one.take(published(policy, [1], learner))
    assert (one.model, one.version) == (before, 0)


def test_a_frozen_model_does_not_change() -> None:
    """Its decisions are counted when the freeze ends."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    first = choose(one)
    one.change_mode("freeze")
    before = one.model.decided.copy()
    made = [choose(one) for _ in range(5)]
    one.release(made[0].id)
    np.testing.assert_array_equal(one.model.decided, before)
    assert (one.model.pending, one.ahead) == (0, 5)
    one.release(first.id)  # it was counted in the model of before
    assert one.model.pending == 0
    one.change_mode("learn")
    assert (one.model.pending, one.ahead) == (4, 4)
    one.release(made[1].id)
    assert one.model.pending == 3


def test_the_baseline_has_its_true_propensity() -> None:
    """For a named action or index, for the first if it is absent, and for any."""
    frequencies: dict[object, int] = {}
    for baseline, actions, expected in (
        ("b", ["a", "b", "c"], ("b", 1.0)),
        ("z", ["a", "b", "c"], ("a", 1.0)),
        ("first", ["a", "b", "c"], ("a", 1.0)),
        (2, None, (2, 1.0)),
    ):
        one = Served(baseline=baseline)
        one.change_mode("baseline")
        decision = choose(one, actions=actions)
        assert (decision.action, decision.propensity) == expected
    one = decider()
    one.change_mode("baseline")
    for _ in range(3000):
        decision = choose(one)
        assert decision.propensity == 1 / 3
        frequencies[decision.action] = frequencies.get(decision.action, 0) + 1
    assert all(abs(count - 1000) < 150 for count in frequencies.values())
