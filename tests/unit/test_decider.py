"""A decider counts what it has chosen until a model knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB
from belated.events import Decision
from belated.exceptions import CorruptJournal, InvalidInput
from belated.inputs import Row
from belated.journals import MemoryJournal
from belated.learner import Learner
from belated.policies.policy import Choice
from belated.published import PublishedModel
from belated.service.decider import Asked, Decider, NoChoice
from belated.service.gathering import Gathering
from belated.service.group_commit import GroupCommit

DIM = 3
ROWS: Row = np.eye(DIM, dtype=np.float32)


def decider(policy: DelayedUCB | None = None, partitions: int = 1) -> Decider:
    """With a clock that ticks."""
    ticks = count(1_700_000_000_000_000)
    chosen = policy or DelayedUCB(DIM, Bernoulli())
    return Decider(chosen, partitions=partitions, clock=lambda: next(ticks), seed=1)


def choose(one: Decider, **offer: Any) -> Decision:
    """For one offer."""
    (decision,) = one.choose_all([Asked(ROWS.tobytes(), **offer)])
    return decision


def published(policy: DelayedUCB, positions: list[int], learner: Learner) -> PublishedModel:
    """What a learner says after those positions."""
    return PublishedModel.of(
        learner.model, policy, positions=positions, version=sum(positions), at=1
    )


def test_a_burst_does_not_ask_the_same_question_again() -> None:
    """Before any model has come, three decisions are for three rows."""
    one = decider()
    assert sorted(choose(one).index for _ in range(DIM)) == [0, 1, 2]
    assert one.model.pending == one.ahead == DIM


def test_what_a_model_does_not_know_is_added_to_it() -> None:
    """By position; what is not written yet is not known either."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    made = [choose(one) for _ in range(4)]
    for position, decision in enumerate(made[:3], start=1):
        one.written(decision.id, position)
    learner = Learner(policy)
    for decision in made[:2]:  # it has read up to position 2
        x = decision.x.astype(np.float64)
        learner.expect(x, learner.model.weight_at(decision.mean))
    one.take(published(policy, [2], learner))
    assert one.ahead == 2
    assert one.model.pending == 4
    assert one.version == 2
    for decision in made[2:]:
        x = decision.x.astype(np.float64)
        learner.expect(x, learner.model.weight_at(decision.mean))
    covariance = one.model.decided @ one.model.decided.T
    np.testing.assert_allclose(covariance, learner.model.decided @ learner.model.decided.T)
    one.take(published(policy, [3], learner))
    one.written(made[3].id, 4)
    assert one.ahead == 1
    one.take(published(policy, [4], learner))
    assert (one.ahead, one.model.pending) == (0, 4)


def test_positions_are_those_of_partitions() -> None:
    """A model that is ahead in one partition says nothing of another."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy, partitions=2)
    made = [choose(one) for _ in range(40)]
    for decision in made:
        one.written(decision.id, 5)
    homes = [own.partition for own in one._own.values()]
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
    """The journal did not take it: the model is what it was."""
    one = decider(policy)
    first = choose(one)
    before = one.model.decided.copy()
    second = choose(one)
    one.dropped(second.id)
    one.dropped(second.id)  # again does nothing
    assert (one.model.pending, one.model.decisions, one.ahead) == (1, 1, 1)
    np.testing.assert_allclose(
        one.model.decided @ one.model.decided.T, before @ before.T, rtol=1e-9, atol=1e-12
    )
    one.dropped(first.id)
    assert (one.model.pending, one.model.decisions, one.ahead) == (0, 0, 0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_it_counts_as_the_learner_does(share: float, metric: str) -> None:
    """Whatever share and metric the policy has: the same root."""
    policy = DelayedUCB(DIM, Bernoulli(), pending_weight=share, metric=metric)  # type: ignore[arg-type]
    one, learner = decider(policy), Learner(policy)
    for _ in range(7):
        decision = choose(one)
        learner.expect(decision.x.astype(np.float64), learner.model.weight_at(decision.mean))
    np.testing.assert_allclose(one.model.decided, learner.model.decided, rtol=1e-12)
    assert one.model.pending == learner.model.pending == 7


def test_a_dormant_decision_is_not_pending() -> None:
    """Its outcome clock has not started; it is not dropped twice either."""
    one = decider()
    decision = choose(one, activated=False)
    assert (one.model.pending, one.ahead) == (0, 1)
    one.dropped(decision.id)
    assert (one.model.pending, one.ahead) == (0, 0)


def test_actions_have_their_names() -> None:
    """Or their index, where none are given; an id of one's own is kept."""
    one = decider()
    decision = choose(one, actions=["red", "green", "blue"], id="mine")
    assert decision.action == ["red", "green", "blue"][decision.index]
    assert decision.id == "mine"
    assert choose(one).action in (0, 1, 2)


def test_without_a_learner_the_oldest_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has an end, and so has what a new model makes a decider do."""
    monkeypatch.setattr("belated.service.decider.MOST_AHEAD", 5)
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    made = [choose(one) for _ in range(9)]
    assert one.model.pending == 9
    assert list(one._own) == [decision.id for decision in made[4:]]
    one.take(published(policy, [0], Learner(policy)))
    assert one.model.pending == 5


@pytest.mark.parametrize(
    "policy",
    [
        DelayedUCB(DIM, Bernoulli()),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.5, metric="gram"),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.0),
        DelayedUCB(DIM, Bernoulli(), missing_weight=0.3),
        DelayedUCB(DIM, Bernoulli(), randomized=True),
        DelayedThompson(DIM, Bernoulli()),
    ],
    ids=["kernel", "gram", "blind", "missing", "randomized", "thompson"],
)
def test_many_at_once_are_chosen_one_after_the_other(policy: Any) -> None:
    """The same choices, and the same model after them, as by requests that follow each other."""
    rng = np.random.default_rng(5)
    tables = [rng.normal(size=(rng.integers(1, 6), DIM)).astype(np.float32) for _ in range(30)]
    offers = [Asked(rows.tobytes(), activated=n % 4 != 3) for n, rows in enumerate(tables)]
    together, one_by_one = decider(policy), decider(policy)
    all_at_once = together.choose_all(offers)
    in_turn = [one_by_one.choose_all([offer])[0] for offer in offers]
    assert [one.index for one in all_at_once] == [one.index for one in in_turn]
    for rows, one, other in zip(tables, all_at_once, in_turn, strict=True):
        np.testing.assert_array_equal(one.x, rows[one.index])
        assert (one.mean, one.propensity) == pytest.approx((other.mean, other.propensity))
    np.testing.assert_allclose(together.model.decided, one_by_one.model.decided, rtol=1e-12)
    assert together.model.pending == one_by_one.model.pending == 23
    assert together.ahead == one_by_one.ahead == 30


@pytest.mark.parametrize("kind", [DelayedUCB, DelayedThompson])
def test_all_or_none_of_them_are_chosen(kind: Any) -> None:
    """One that cannot be decided leaves no trace of those before it."""
    one = decider(kind(DIM, Bernoulli()))
    before = one.model.decided.copy()
    bad = np.full((2, DIM), np.nan, dtype=np.float32).tobytes()
    with pytest.raises(InvalidInput, match="finite"):
        one.choose_all([Asked(ROWS.tobytes()), Asked(bad)])
    np.testing.assert_array_equal(one.model.decided, before)
    assert (one.model.pending, one.model.decisions, one.ahead) == (0, 0, 0)


def test_what_waits_in_a_spool_counts_until_its_position_is_known() -> None:
    """Whichever of the two is told first; a model that has read it counts it itself."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    first, second = choose(one, id="first"), choose(one, id="second")
    assert one.kept("first") is None  # it is not safe yet
    one.written("first", 0)
    assert one.kept("first", waiting=True) == one.kept("first") == first
    one.written("second", 7)  # it was handed over before anyone was told that it waits
    one.written("second", 0)
    assert (one.kept("second", waiting=True), one.kept("second")) == (None, second)
    one.take(published(policy, [7], Learner(policy)))
    assert (one.ahead, one.model.pending) == (1, 1)
    one.written("first", 8)
    one.take(published(policy, [8], Learner(policy)))
    assert (one.ahead, one.kept("first")) == (0, None)


# --- without a model -----------------------------------------------------------------------------


class Broken(DelayedUCB):
    """A policy that cannot choose."""

    def choose_all(self, *_: Any) -> list[Choice]:
        """It fails."""
        raise ZeroDivisionError("of a policy")


def spoilt(one: Decider) -> None:
    """Its model is of no use any more."""
    one.model.theta = np.full(DIM, np.nan)
    one.model.decided = np.full((DIM, DIM), np.nan)


@pytest.mark.parametrize(
    "policy", [DelayedUCB(DIM, Bernoulli()), DelayedThompson(DIM, Bernoulli())], ids=["ucb", "ts"]
)
def test_a_model_that_is_not_finite_chooses_nothing(policy: Any) -> None:
    """The decision falls back to the baseline, with the true propensity; the model is renewed."""
    one = decider(policy)
    choose(one)
    spoilt(one)
    offers = [Asked(ROWS.tobytes())]
    with pytest.raises(NoChoice) as caught:
        one.choose_all(offers)
    (decision,) = one.fall_back(offers, caught.value)
    assert (decision.propensity, decision.mean) == (1 / DIM, 0.5)
    assert sum(one.fallbacks.values()) == 1
    assert np.isfinite(one.model.decided).all()  # as it came, with what is ahead
    assert choose(one).propensity > 0
    assert one.ahead == 3


def test_a_policy_that_fails_is_told_once_and_never_the_callers_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever asked gets a decision; a wrong offer among them is refused all the same."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        one = Decider(
            Broken(DIM, Bernoulli()), partitions=1, clock=lambda: 5, baseline="b", bandit="offers"
        )
        journal = MemoryJournal()
        commits = GroupCommit(journal, loop)
        gathering = Gathering(one, commits, loop)
        told: list[Sequence[Decision]] = []
        offer = Asked(ROWS.tobytes(), ["a", "b", "c"])
        good = [gathering.decide([offer], told.append) for _ in range(4)]
        wrong = Asked(np.full((1, DIM), np.nan, np.float32).tobytes())
        bad = gathering.decide([wrong], told.append)
        made = [decision for (decision,) in await asyncio.gather(*good)]
        assert {(decision.action, decision.propensity) for decision in made} == {("b", 1.0)}
        with pytest.raises(InvalidInput, match="finite"):
            await bad
        assert one.fallbacks == {"error": 4}
        assert [decision for (decision,) in told] == made
        await asyncio.to_thread(commits.close)

    asyncio.run(story())
    told = [record for record in caplog.records if "baseline" in record.message]
    assert [record.__dict__["why"] for record in told] == ["ZeroDivisionError: of a policy"]


def test_a_model_with_numbers_that_are_not_finite_is_not_taken() -> None:
    """The decider goes on with the one it has."""
    policy = DelayedUCB(DIM, Bernoulli())
    one, learner = decider(policy), Learner(policy)
    learner.model.theta = np.full(DIM, np.nan)
    before = one.model
    with pytest.raises(CorruptJournal, match="not finite"):
        one.take(published(policy, [1], learner))
    assert (one.model, one.version) == (before, 0)


def test_a_frozen_model_does_not_change() -> None:
    """Not by what is decided with it; when it is over, that is counted."""
    policy = DelayedUCB(DIM, Bernoulli())
    one = decider(policy)
    first = choose(one)
    one.switch("freeze")
    before = one.model.decided.copy()
    made = [choose(one) for _ in range(5)]
    one.dropped(made[0].id)
    np.testing.assert_array_equal(one.model.decided, before)
    assert (one.model.pending, one.ahead) == (0, 5)
    one.dropped(first.id)  # it was counted in the model of before
    assert one.model.pending == 0
    one.switch("learn")
    assert (one.model.pending, one.ahead) == (4, 4)
    one.dropped(made[1].id)
    assert one.model.pending == 3


def test_the_baseline_has_its_true_propensity() -> None:
    """An action by its name, or its index; the first where it is not on offer; or any."""
    frequencies: dict[object, int] = {}
    for baseline, actions, expected in (
        ("b", ["a", "b", "c"], ("b", 1.0)),
        ("z", ["a", "b", "c"], ("a", 1.0)),
        ("first", ["a", "b", "c"], ("a", 1.0)),
        (2, None, (2, 1.0)),
    ):
        one = Decider(DelayedUCB(DIM, Bernoulli()), partitions=1, clock=int, baseline=baseline)
        one.switch("baseline")
        decision = choose(one, actions=actions)
        assert (decision.action, decision.propensity) == expected
    one = decider()
    one.switch("baseline")
    for _ in range(3000):
        decision = choose(one)
        assert decision.propensity == 1 / 3
        frequencies[decision.action] = frequencies.get(decision.action, 0) + 1
    assert all(abs(count - 1000) < 150 for count in frequencies.values())
