"""A decider counts its decisions until a model has read them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB
from belated.core.tuning import Tuning
from belated.decider import ParsedRequest
from belated.fold.learner import Learner
from belated.model.model import Model
from tests.unit.small_deciders import DIM, ROWS, Served, choose, decider, published


class Widening(DelayedUCB):
    """A policy whose width grows with pending decisions, so choices depend on earlier ones."""

    def width(self, model: Model) -> float:
        """Return a width that grows with the number of pending decisions."""
        return super().width(model) + 0.3 * math.sqrt(model.pending)


def test_a_burst_does_not_ask_the_same_question_again() -> None:
    """Before the first model, three decisions choose three rows."""
    one = decider()
    assert sorted(choose(one).index for _ in range(DIM)) == [0, 1, 2]
    assert one.model.pending == one.ahead == DIM


def test_what_a_model_does_not_know_is_added_to_it() -> None:
    """The position decides; decisions that are not durable are unknown."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    made = [choose(one) for _ in range(4)]
    for position, decision in enumerate(made[:3], start=1):
        one.unapplied.mark_durable(decision.id, position)
    learner = Learner(policy)
    for decision in made[:2]:  # it has read up to position 2
        x = decision.x.astype(np.float64)
        learner.add_pending(x, learner.model.weight_at(decision.mean))
    one.take(published(policy, [2], learner))
    assert one.ahead == 2
    assert one.model.pending == 4
    assert one.version == 2
    for decision in made[2:]:
        x = decision.x.astype(np.float64)
        learner.add_pending(x, learner.model.weight_at(decision.mean))
    covariance = one.model.decided @ one.model.decided.T
    np.testing.assert_allclose(covariance, learner.model.decided @ learner.model.decided.T)
    one.take(published(policy, [3], learner))
    one.unapplied.mark_durable(made[3].id, 4)
    assert one.ahead == 1
    one.take(published(policy, [4], learner))
    assert (one.ahead, one.model.pending) == (0, 4)


def test_positions_are_those_of_partitions() -> None:
    """Progress in one partition does not affect others."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy, partitions=2)
    made = [choose(one) for _ in range(40)]
    for decision in made:
        one.unapplied.mark_durable(decision.id, 5)
    homes = [own.partition for own in one.unapplied]
    assert set(homes) == {0, 1}
    one.take(published(policy, [5, 4], Learner(policy)))
    assert one.ahead == homes.count(1)


@pytest.mark.parametrize(
    "policy",
    [
        DelayedUCB(DIM, Bernoulli()),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.0),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.5),
        DelayedUCB(DIM, Bernoulli(), metric="gram"),
    ],
    ids=["whole", "blind", "half", "gram"],
)
def test_what_was_refused_never_counted(policy: DelayedUCB) -> None:
    """If the journal rejects a decision, the model is restored."""
    one = decider(policy)
    first = choose(one)
    before = one.model.decided.copy()
    second = choose(one)
    one.release(second.id)
    one.release(second.id)  # again does nothing
    assert (one.model.pending, one.model.decisions, one.ahead) == (1, 1, 1)
    np.testing.assert_allclose(
        one.model.decided @ one.model.decided.T, before @ before.T, rtol=1e-9, atol=1e-12
    )
    one.release(first.id)
    assert (one.model.pending, one.model.decisions, one.ahead) == (0, 0, 0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_it_counts_as_the_learner_does(share: float, metric: str) -> None:
    """The root is the same for any share and metric of the policy."""
    policy = DelayedUCB(DIM, Bernoulli(), pending_weight=share, metric=metric)  # type: ignore[arg-type]
    one, learner = decider(policy), Learner(policy)
    for _ in range(7):
        decision = choose(one)
        learner.add_pending(decision.x.astype(np.float64), learner.model.weight_at(decision.mean))
    np.testing.assert_allclose(one.model.decided, learner.model.decided, rtol=1e-12)
    assert one.model.pending == learner.model.pending == 7


def test_an_id_that_is_asked_for_twice_at_once_counts_once() -> None:
    """Before either is durable, only the first one counts."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    first, second = choose(one, id="mine"), choose(one, id="mine")
    assert (one.model.pending, one.model.decisions, one.ahead) == (1, 1, 1)
    one.unapplied.mark_durable("mine", 3)
    one.unapplied.mark_durable("mine", 4)
    assert one.unapplied.find("mine") is first
    one.discard(second)
    assert one.ahead == 1
    one.take(published(policy, [3], Learner(policy)))
    assert (one.model.pending, one.ahead) == (0, 0)


def test_a_dormant_decision_is_not_pending() -> None:
    """Its window has not started; it is also removed only once."""
    one = decider()
    decision = choose(one, activated=False)
    assert (one.model.pending, one.ahead) == (0, 1)
    one.release(decision.id)
    assert (one.model.pending, one.ahead) == (0, 0)


def test_actions_have_their_names() -> None:
    """Actions have their index if they have no names; callers' ids are kept."""
    one = decider()
    decision = choose(one, actions=["red", "green", "blue"], id="mine")
    assert decision.action == ["red", "green", "blue"][decision.index]
    assert decision.id == "mine"
    assert choose(one).action in (0, 1, 2)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_without_a_learner_nothing_is_dropped(share: float, metric: Any) -> None:
    """The oldest of many are summed, and still count in every model."""
    policy = DelayedUCB(DIM, Bernoulli(), pending_weight=share, metric=metric)
    few = Served(policy, tuning=Tuning(max_unapplied=5, unapplied_block=2))
    all_of_them = Served(policy)
    for position in range(1, 41):
        for one in (few, all_of_them):
            one.unapplied.mark_durable(choose(one, id=f"d{position}").id, position)
    assert few.ahead == few.model.pending == 40
    assert len(list(few.unapplied)) <= 7  # the others are sums
    for read in (0, 0, 33, 40):
        for one in (few, all_of_them):
            one.take(published(policy, [read], Learner(policy)))
        assert few.model.pending == few.model.decisions
        if read in (0, 40):
            assert few.ahead == all_of_them.ahead == few.model.pending == 40 - read
            np.testing.assert_allclose(
                few.model.decided @ few.model.decided.T,
                all_of_them.model.decided @ all_of_them.model.decided.T,
                rtol=1e-9,
            )
        else:  # a sum leaves when its last decision was read: rather too many than too few
            assert all_of_them.ahead <= few.ahead <= all_of_them.ahead + 7


def test_what_waits_in_a_spool_is_never_summed() -> None:
    """Its position is unknown, and its id must be found."""
    one = Served(tuning=Tuning(max_unapplied=2, unapplied_block=1))
    made = [choose(one, id=f"d{n}") for n in range(9)]
    for decision in made:
        one.unapplied.mark_durable(decision.id, 0)
    choose(one)
    assert [one.unapplied.find(decision.id) for decision in made] == made
    assert one.ahead == one.model.pending == 10


def test_a_choice_that_is_not_held_leaves_the_model_alone() -> None:
    """It is about to be folded, but counts for later choices of the batch."""
    one = decider()
    before = one.model.decided.copy()
    requests = [ParsedRequest(DIM)] * DIM
    made = one.choose(requests, np.tile(ROWS, (DIM, 1)), now=5, rng=one.rng, hold=False)
    assert sorted(decision.index for decision in made.decisions) == [0, 1, 2]
    np.testing.assert_array_equal(one.model.decided, before)
    assert (one.model.pending, one.model.decisions, one.ahead) == (0, 0, 0)


@pytest.mark.parametrize(
    "policy",
    [
        DelayedUCB(DIM, Bernoulli()),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.5, metric="gram"),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.0),
        Widening(DIM, Bernoulli()),
        DelayedUCB(DIM, Bernoulli(), randomized=True),
        DelayedThompson(DIM, Bernoulli()),
    ],
    ids=["kernel", "gram", "blind", "widening", "randomized", "thompson"],
)
def test_many_at_once_are_chosen_one_after_the_other(policy: Any) -> None:
    """Choices and model equal those of consecutive requests."""
    rng = np.random.default_rng(5)
    tables = [rng.normal(size=(rng.integers(1, 6), DIM)).astype(np.float32) for _ in range(30)]
    requests = [ParsedRequest(len(rows), activated=n % 4 != 3) for n, rows in enumerate(tables)]
    together, one_by_one = decider(policy), decider(policy)
    all_at_once = together.many(tables, requests)
    in_turn = [
        one_by_one.many([rows], [request])[0]
        for rows, request in zip(tables, requests, strict=True)
    ]
    assert [one.index for one in all_at_once] == [one.index for one in in_turn]
    for rows, one, other in zip(tables, all_at_once, in_turn, strict=True):
        np.testing.assert_array_equal(one.x, rows[one.index])
        assert (one.mean, one.propensity) == pytest.approx((other.mean, other.propensity))
    np.testing.assert_allclose(together.model.decided, one_by_one.model.decided, rtol=1e-12)
    assert together.model.pending == one_by_one.model.pending == 23
    assert together.ahead == one_by_one.ahead == 30


def test_what_waits_in_a_spool_counts_until_its_position_is_known() -> None:
    """In either order of marks; a model that has read it counts it."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    first, second = choose(one, id="first"), choose(one, id="second")
    assert one.unapplied.find("first") is None  # it is not safe yet
    one.unapplied.mark_durable("first", 0)
    assert one.unapplied.find("first", spooled=True) == one.unapplied.find("first") == first
    one.unapplied.mark_durable(
        "second", 7
    )  # it was handed over before anyone was told that it waits
    one.unapplied.mark_durable("second", 0)
    assert (one.unapplied.find("second", spooled=True), one.unapplied.find("second")) == (
        None,
        second,
    )
    one.take(published(policy, [7], Learner(policy)))
    assert (one.ahead, one.model.pending) == (1, 1)
    one.unapplied.mark_durable("first", 8)
    one.take(published(policy, [8], Learner(policy)))
    assert (one.ahead, one.unapplied.find("first")) == (0, None)
