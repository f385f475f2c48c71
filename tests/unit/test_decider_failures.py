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
    served = decider(policy)
    choose(served)
    spoilt(served)
    decision = choose(served)
    assert (decision.propensity, decision.mean) == (1 / DIM, 0.5)
    assert sum(served.fallbacks.values()) == 1
    assert np.isfinite(served.model.decided).all()  # as it came, with what is unapplied
    assert choose(served).propensity > 0
    assert sum(served.fallbacks.values()) == 1
    assert served.ahead == 3


def test_a_policy_that_fails_for_one_request_chooses_for_the_others() -> None:
    """The baseline decides the failed requests, and they count."""
    served = Served(Broken(DIM, Bernoulli()), baseline="b")
    permuted = ROWS[[1, 2, 0]]
    tables = [permuted, ROWS, permuted, ROWS]
    batch = served.many(tables, [ParsedRequest(DIM, ["a", "b", "c"]) for _ in tables])
    assert [batch[1].action, batch[3].action] == ["b", "b"]
    assert batch[1].propensity == batch[3].propensity == 1.0
    assert batch[0].index != batch[2].index  # the first was pending when the third was chosen
    assert served.fallbacks == {"error": 2}
    assert str(served.failure) == "ZeroDivisionError: of a policy"
    assert (served.ahead, served.model.pending) == (4, 4)


def test_a_bandit_that_is_off_decides_nothing() -> None:
    """It raises an error until the mode changes."""
    served = decider()
    served.change_mode("off")
    with pytest.raises(BanditOff, match="switched off"):
        choose(served)
    served.change_mode("learn")
    choose(served)


def test_a_model_with_numbers_that_are_not_finite_is_not_taken() -> None:
    """The decider keeps its current model."""
    policy = DelayedUCB(DIM, Bernoulli())
    served, learner = decider(policy), Learner(policy)
    learner.model.theta = np.full(DIM, np.nan)
    before = served.model
    with pytest.raises(CorruptJournal, match="not finite"):
        served.take(published(policy, [1], learner))
    assert (served.model, served.version) == (before, 0)


def test_a_frozen_model_does_not_change() -> None:
    """Its decisions are counted when the freeze ends."""
    policy = DelayedUCB(DIM, Bernoulli())
    served = decider(policy)
    first = choose(served)
    served.change_mode("freeze")
    before = served.model.decided.copy()
    decisions = [choose(served) for _ in range(5)]
    served.release(decisions[0].id)
    np.testing.assert_array_equal(served.model.decided, before)
    assert (served.model.pending, served.ahead) == (0, 5)
    served.release(first.id)  # it was counted in the model of before
    assert served.model.pending == 0
    served.change_mode("learn")
    assert (served.model.pending, served.ahead) == (4, 4)
    served.release(decisions[1].id)
    assert served.model.pending == 3


def test_the_baseline_has_its_true_propensity() -> None:
    """For a named action or index, for the first if it is absent, and for any."""
    frequencies: dict[object, int] = {}
    for baseline, actions, expected in (
        ("b", ["a", "b", "c"], ("b", 1.0)),
        ("z", ["a", "b", "c"], ("a", 1.0)),
        ("first", ["a", "b", "c"], ("a", 1.0)),
        (2, None, (2, 1.0)),
    ):
        served = Served(baseline=baseline)
        served.change_mode("baseline")
        decision = choose(served, actions=actions)
        assert (decision.action, decision.propensity) == expected
    served = decider()
    served.change_mode("baseline")
    for _ in range(3000):
        decision = choose(served)
        assert decision.propensity == 1 / 3
        frequencies[decision.action] = frequencies.get(decision.action, 0) + 1
    assert all(abs(count - 1000) < 150 for count in frequencies.values())
