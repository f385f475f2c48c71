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
    served = decider()
    assert sorted(choose(served).index for _ in range(DIM)) == [0, 1, 2]
    assert served.model.pending == served.ahead == DIM


def test_what_a_model_does_not_know_is_added_to_it() -> None:
    """The position decides; decisions that are not durable are unknown."""
    policy = DelayedUCB(DIM, Bernoulli())
    served = decider(policy)
    decisions = [choose(served) for _ in range(4)]
    for position, decision in enumerate(decisions[:3], start=1):
        served.unapplied.mark_durable(decision.id, position)
    learner = Learner(policy)
    for decision in decisions[:2]:  # it has read up to position 2
        x = decision.x.astype(np.float64)
        learner.add_pending(x, learner.model.weight_at(decision.mean))
    served.take(published(policy, [2], learner))
    assert served.ahead == 2
    assert served.model.pending == 4
    assert served.version == 2
    for decision in decisions[2:]:
        x = decision.x.astype(np.float64)
        learner.add_pending(x, learner.model.weight_at(decision.mean))
    covariance = served.model.decided @ served.model.decided.T
    np.testing.assert_allclose(covariance, learner.model.decided @ learner.model.decided.T)
    served.take(published(policy, [3], learner))
    served.unapplied.mark_durable(decisions[3].id, 4)
    assert served.ahead == 1
    served.take(published(policy, [4], learner))
    assert (served.ahead, served.model.pending) == (0, 4)


def test_positions_are_those_of_partitions() -> None:
    """Progress in one partition does not affect others."""
    policy = DelayedUCB(DIM, Bernoulli())
    served = decider(policy, partitions=2)
    decisions = [choose(served) for _ in range(40)]
    for decision in decisions:
        served.unapplied.mark_durable(decision.id, 5)
    homes = [entry.partition for entry in served.unapplied]
    assert set(homes) == {0, 1}
    served.take(published(policy, [5, 4], Learner(policy)))
    assert served.ahead == homes.count(1)


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
    served = decider(policy)
    first = choose(served)
    before = served.model.decided.copy()
    second = choose(served)
    served.release(second.id)
    served.release(second.id)  # again does nothing
    assert (served.model.pending, served.model.decisions, served.ahead) == (1, 1, 1)
    np.testing.assert_allclose(
        served.model.decided @ served.model.decided.T, before @ before.T, rtol=1e-9, atol=1e-12
    )
    served.release(first.id)
    assert (served.model.pending, served.model.decisions, served.ahead) == (0, 0, 0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_it_counts_as_the_learner_does(share: float, metric: str) -> None:
    """The root is the same for any share and metric of the policy."""
    policy = DelayedUCB(DIM, Bernoulli(), pending_weight=share, metric=metric)  # type: ignore[arg-type]
    served, learner = decider(policy), Learner(policy)
    for _ in range(7):
        decision = choose(served)
        learner.add_pending(decision.x.astype(np.float64), learner.model.weight_at(decision.mean))
    np.testing.assert_allclose(served.model.decided, learner.model.decided, rtol=1e-12)
    assert served.model.pending == learner.model.pending == 7


def test_an_id_that_is_asked_for_twice_at_once_counts_once() -> None:
    """Before either is durable, only the first one counts."""
    policy = DelayedUCB(DIM, Bernoulli())
    served = decider(policy)
    first, second = choose(served, id="mine"), choose(served, id="mine")
    assert (served.model.pending, served.model.decisions, served.ahead) == (1, 1, 1)
    served.unapplied.mark_durable("mine", 3)
    served.unapplied.mark_durable("mine", 4)
    assert served.unapplied.find("mine") is first
    served.discard(second)
    assert served.ahead == 1
    served.take(published(policy, [3], Learner(policy)))
    assert (served.model.pending, served.ahead) == (0, 0)


def test_a_dormant_decision_is_not_pending() -> None:
    """Its window has not started; it is also removed only once."""
    served = decider()
    decision = choose(served, activated=False)
    assert (served.model.pending, served.ahead) == (0, 1)
    served.release(decision.id)
    assert (served.model.pending, served.ahead) == (0, 0)


def test_actions_have_their_names() -> None:
    """Actions have their index if they have no names; callers' ids are kept."""
    served = decider()
    decision = choose(served, actions=["red", "green", "blue"], id="mine")
    assert decision.action == ["red", "green", "blue"][decision.index]
    assert decision.id == "mine"
    assert choose(served).action in (0, 1, 2)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_without_a_learner_nothing_is_dropped(share: float, metric: Any) -> None:
    """The oldest of many are summed, and still count in every model."""
    policy = DelayedUCB(DIM, Bernoulli(), pending_weight=share, metric=metric)
    bounded = Served(policy, tuning=Tuning(max_unapplied=5, unapplied_block=2))
    unbounded = Served(policy)
    for position in range(1, 41):
        for served in (bounded, unbounded):
            served.unapplied.mark_durable(choose(served, id=f"d{position}").id, position)
    assert bounded.ahead == bounded.model.pending == 40
    assert len(list(bounded.unapplied)) <= 7  # the others are sums
    for applied in (0, 0, 33, 40):
        for served in (bounded, unbounded):
            served.take(published(policy, [applied], Learner(policy)))
        assert bounded.model.pending == bounded.model.decisions
        if applied in (0, 40):
            assert bounded.ahead == unbounded.ahead == bounded.model.pending == 40 - applied
            np.testing.assert_allclose(
                bounded.model.decided @ bounded.model.decided.T,
                unbounded.model.decided @ unbounded.model.decided.T,
                rtol=1e-9,
            )
        else:  # a sum leaves when its last decision was read: rather too many than too few
            assert unbounded.ahead <= bounded.ahead <= unbounded.ahead + 7


def test_what_waits_in_a_spool_is_never_summed() -> None:
    """Its position is unknown, and its id must be found."""
    served = Served(tuning=Tuning(max_unapplied=2, unapplied_block=1))
    decisions = [choose(served, id=f"d{n}") for n in range(9)]
    for decision in decisions:
        served.unapplied.mark_durable(decision.id, 0)
    choose(served)
    assert [served.unapplied.find(decision.id) for decision in decisions] == decisions
    assert served.ahead == served.model.pending == 10


def test_a_choice_that_is_not_held_leaves_the_model_alone() -> None:
    """It is about to be folded, but counts for later choices of the batch."""
    served = decider()
    before = served.model.decided.copy()
    requests = [ParsedRequest(DIM)] * DIM
    batch = served.choose(requests, np.tile(ROWS, (DIM, 1)), now=5, rng=served.rng, hold=False)
    assert sorted(decision.index for decision in batch.decisions) == [0, 1, 2]
    np.testing.assert_array_equal(served.model.decided, before)
    assert (served.model.pending, served.model.decisions, served.ahead) == (0, 0, 0)


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
    batched, sequential = decider(policy), decider(policy)
    batch = batched.many(tables, requests)
    singles = [
        sequential.many([rows], [request])[0]
        for rows, request in zip(tables, requests, strict=True)
    ]
    assert [decision.index for decision in batch] == [decision.index for decision in singles]
    for rows, decision, single in zip(tables, batch, singles, strict=True):
        np.testing.assert_array_equal(decision.x, rows[decision.index])
        assert (decision.mean, decision.propensity) == pytest.approx(
            (single.mean, single.propensity)
        )
    np.testing.assert_allclose(batched.model.decided, sequential.model.decided, rtol=1e-12)
    assert batched.model.pending == sequential.model.pending == 23
    assert batched.ahead == sequential.ahead == 30


def test_what_waits_in_a_spool_counts_until_its_position_is_known() -> None:
    """In either order of marks; a model that has read it counts it."""
    policy = DelayedUCB(DIM, Bernoulli())
    served = decider(policy)
    first, second = choose(served, id="first"), choose(served, id="second")
    assert served.unapplied.find("first") is None  # it is not safe yet
    served.unapplied.mark_durable("first", 0)
    assert served.unapplied.find("first", spooled=True) == served.unapplied.find("first") == first
    served.unapplied.mark_durable(
        "second", 7
    )  # it was handed over before anyone was told that it waits
    served.unapplied.mark_durable("second", 0)
    assert (served.unapplied.find("second", spooled=True), served.unapplied.find("second")) == (
        None,
        second,
    )
    served.take(published(policy, [7], Learner(policy)))
    assert (served.ahead, served.model.pending) == (1, 1)
    served.unapplied.mark_durable("first", 8)
    served.take(published(policy, [8], Learner(policy)))
    assert (served.ahead, served.unapplied.find("first")) == (0, None)
