"""What policies are made of, and how they choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from belated import (
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Gaussian,
    Greedy,
    Poisson,
    Uniform,
    WaitForWindow,
)
from belated.core.inputs import Matrix
from belated.exceptions import InvalidInput
from belated.fold.learner import Learner
from belated.model import kernels
from belated.model.families import Family
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.model.priors import Prior
from belated.policies import Choice, Policy, Warmup
from belated.policies.delayed_ucb import greatest_shares, rayleigh_shares
from tests.unit.policy_examples import MAKE, B, busy, every_policy, rng


def state(model: Model) -> list[Any]:
    """All that is learned, bit for bit."""
    parts = (model.theta, model.observed, model.decided)
    return [*(part.tobytes() for part in parts), model.n, model.pending, model.dispersion]


@every_policy
def test_a_choice_comes_with_its_mean_and_weight(name: str) -> None:
    """g(xᵀθ̂) and g'(xᵀθ̂)/φ of the chosen row; the propensity is a probability."""
    policy = MAKE[name]()
    model = busy(policy).model
    family = policy.family
    for seed in range(20):
        rows = rng(seed).normal(size=(5, 3))
        choice = policy.choose(model, rows, rng(seed))
        eta = rows[choice.index] @ model.theta
        assert choice.mean == pytest.approx(float(family.mean(eta)), rel=1e-9)
        assert choice.weight == pytest.approx(float(family.slope(eta)), rel=1e-9)
        assert 0.0 < choice.propensity <= 1.0


@pytest.mark.parametrize("family", [Gaussian(0.25), Poisson()], ids=repr)
@pytest.mark.parametrize("make", [DelayedUCB, DelayedThompson, EpsilonGreedy, Uniform])
def test_weights_are_those_of_the_family(make: type[Policy], family: Family) -> None:
    """g'(η)/φ, 4 for Gaussian rewards of variance ¼."""
    policy = make(3, family)
    model = busy(policy).model
    rows = rng(1).normal(size=(5, 3))
    choice = policy.choose(model, rows, rng())
    slope = float(family.slope(rows[choice.index] @ model.theta))
    assert choice.weight == pytest.approx(slope / (family.dispersion or 1.0))


@every_policy
def test_rows_may_be_lists(name: str) -> None:
    """As arrays are: the same index and propensity."""
    policy = MAKE[name]()
    rows = rng(2).normal(size=(5, 3)).astype(np.float32)
    from_array, from_list = (
        policy.choose(busy(policy).model, table, rng(4)) for table in (rows, rows.tolist())
    )
    assert from_array == from_list


@every_policy
def test_choosing_leaves_the_model_as_it_was(name: str) -> None:
    """What was learned changes by decisions and rewards only."""
    policy = MAKE[name]()
    model = busy(policy).model
    before = state(model)
    for seed in range(5):
        policy.choose(model, rng(seed).normal(size=(5, 3)), rng(seed))
    assert state(model) == before


@pytest.mark.parametrize("using", [kernels.plain, kernels.compiled])
@every_policy
def test_a_row_that_is_not_finite_is_refused(name: str, using: Callable[[], Kernels]) -> None:
    """InvalidInput by every policy, wherever the row stands, and the model is untouched."""
    policy = MAKE[name]()
    model = busy(policy, using=using()).model
    before = state(model)
    accepted = []
    for value, index, seed in itertools.product(
        [math.nan, math.inf, -math.inf], range(3), range(3)
    ):
        rows = np.array([[0.5, 0.1, 0.2], [0.1, 0.5, -0.1], [-0.3, 0.2, 0.5]])
        rows[index, 1] = value
        try:
            accepted.append((value, index, policy.choose(model, rows, rng(seed))))
        except InvalidInput:
            assert state(model) == before
    assert accepted == []


@pytest.mark.parametrize("using", [kernels.plain, kernels.compiled])
@every_policy
def test_one_request_is_chosen_for_as_by_choose(name: str, using: Callable[[], Kernels]) -> None:
    """The same choices from the same draws, ties too, and the same model after them."""
    policy = MAKE[name]()
    single, batched = (busy(policy, using=using()).model for _ in range(2))
    source, twin = rng(5), rng(5)
    for step in range(30):
        rows = rng(step).normal(size=(5, 3)) if step % 2 else np.tile([0.5, 0.1, 0.2], (4, 1))
        choice = policy.choose(single, rows, source)
        if step % 3:
            policy.add_pending(single, rows[choice.index], choice.weight)
        assert policy.choose_all(batched, rows, [len(rows)], [step % 3 > 0], twin) == [choice]
    assert state(single) == state(batched)
    assert source.random() == twin.random()


class _Last(DelayedUCB):
    """An author's policy: it says how to choose, and nothing else."""

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """The last row."""
        mean, weight = model.predict(rows[-1])
        return Choice(len(rows) - 1, 1.0, mean, weight)


def test_whoever_writes_choose_has_written_choose_all() -> None:
    """Also in a subclass of a policy that chooses for many at once in a kernel."""
    policy = _Last(3, B)
    choices = policy.choose_all(busy(policy).model, np.ones((6, 3)), [2, 6], [True, True], rng())
    assert [choice.index for choice in choices] == [1, 3]


#: Rows of different lengths, so that nothing ties.
LENGTHS = np.diag([1.0, 0.99, 0.98, 0.97])


def blindly(policy: Policy, count: int, rows: Matrix = LENGTHS) -> list[int]:
    """So many choices among the same rows, while no reward comes."""
    learner, source, chosen = Learner(policy), rng(), []
    for _ in range(count):
        choice = policy.choose(learner.model, rows, source)
        learner.add_pending(rows[choice.index], choice.weight)
        chosen.append(choice.index)
    return chosen


def test_who_counts_what_is_pending_does_not_repeat_itself() -> None:
    """While no reward comes DelayedUCB asks all four rows in turn, BlindUCB one for ever."""
    assert set(blindly(BlindUCB(4, B), 40)) == {0}
    aware = blindly(DelayedUCB(4, B), 40)
    assert sorted(aware[:4]) == [0, 1, 2, 3]
    assert min(aware.count(index) for index in range(4)) >= 7
    assert set(blindly(Greedy(4, B, prior=Prior.normal([0.1, 0, 0, 0], np.eye(4))), 40)) == {0}


def test_half_a_pending_weight_is_in_between() -> None:
    """The first row is asked again sooner than with the whole weight, and not for ever."""
    rows = np.diag([1.0, 0.9, 0.9, 0.9])
    firsts = []
    for share in (0.0, 0.2, 1.0):
        chosen = blindly(DelayedUCB(4, B, pending_weight=share), 40, rows)
        firsts.append(next((t for t, index in enumerate(chosen) if index), 40))
    assert firsts[0] == 40 > firsts[1] > firsts[2] >= 1


def test_the_width_grows_with_rewards_only() -> None:
    """α √log(2 + n): pending decisions leave it, rewards do not."""
    policy = DelayedUCB(3, B, alpha=0.5)
    learner = busy(policy)
    model = learner.model
    assert policy.width(model) == pytest.approx(0.5 * math.sqrt(math.log(2 + 30)))
    learner.add_pending(np.ones(3), 0.25)
    assert policy.width(model) == pytest.approx(0.5 * math.sqrt(math.log(2 + 30)))
    assert Greedy(3, B).width(model) == 0.0


@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_the_chosen_row_has_the_greatest_upper_bound(metric: Any) -> None:
    """xᵀθ̂ + width √(xᵀV⁻¹x), V of all decisions: x xᵀ in the Gram metric, else x xᵀ/φ."""
    policy = DelayedUCB(3, Gaussian(0.25), metric=metric, alpha=2.0)
    learner = Learner(policy)
    table = rng(5).normal(size=(40, 3))
    for number, x in enumerate(table):
        learner.add_pending(x, 4.0)
        if number % 4:
            learner.learn(x, float(x[0] > 0), 4.0)
    model = learner.model
    V = np.eye(3) + (1.0 if metric == "gram" else 4.0) * table.T @ table
    W = np.eye(3) + 4.0 * sum(np.outer(x, x) for n, x in enumerate(table) if n % 4)
    f = 4.0 * sum(x * float(x[0] > 0) for n, x in enumerate(table) if n % 4)
    theta, width = np.linalg.solve(W, f), 2.0 * math.sqrt(math.log(32.0))
    chosen = set()
    for seed in range(30):
        rows = rng(seed).normal(size=(8, 3))
        bounds = rows @ theta + width * np.sqrt(np.vecdot(rows @ np.linalg.inv(V), rows))
        choice = policy.choose(model, rows, rng())
        assert (choice.index, choice.propensity) == (int(bounds.argmax()), 1.0)
        chosen.add(choice.index)
    assert len(chosen) > 4


@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_a_warmed_policy_learns_as_it_would_alone(metric: Any) -> None:
    """Its width is the same: the warm-up passes on what the policy needs of the learner."""
    inner = DelayedUCB(3, B, metric=metric, pending_weight=0.5, ridge=2.0)
    plain, warmed = (busy(policy).model for policy in (inner, Warmup(inner, rounds=10)))
    assert inner.width(warmed) == inner.width(plain)
    assert state(warmed) == state(plain)
    assert Warmup(WaitForWindow(3, B, window=7), rounds=10).learns_after == 7


@pytest.mark.parametrize("floor", [0.1, 0.5, 1.0])
def test_a_floor_is_shared_by_all_rows(floor: float) -> None:
    """The best row has 1 - f + f/K, any other f/K."""
    for policy_type in (DelayedUCB, Greedy, BlindUCB):
        policy = policy_type(3, B, floor=floor)
        model = busy(policy).model
        rows = rng(1).normal(size=(5, 3))
        best = replace(policy, floor=0.0).choose(model, rows, rng()).index
        source, propensities = rng(2), {}
        for _ in range(200):
            choice = policy.choose(model, rows, source)
            propensities[choice.index] = choice.propensity
        assert set(propensities) == set(range(5)) or floor < 0.2
        for index, propensity in propensities.items():
            expected = floor / 5 + (1.0 - floor) * (index == best)
            assert propensity == pytest.approx(expected)


def test_ties_are_split_evenly() -> None:
    """Shares of the greatest score, to a relative 1e-12."""
    assert greatest_shares(np.array([1.0, 3.0, 2.0])).tolist() == [0.0, 1.0, 0.0]
    assert greatest_shares(np.array([3.0, 3.0 - 1e-13, 2.0])).tolist() == [0.5, 0.5, 0.0]
    assert greatest_shares(np.array([3.0, 3.0 - 1e-9, 2.0])).tolist() == [1.0, 0.0, 0.0]
    assert greatest_shares(np.zeros(4)).tolist() == [0.25] * 4


def test_a_rayleigh_width_has_closed_shares() -> None:
    """Of lines m + b s: exp(-lo²/2) - exp(-hi²/2), worked by hand."""
    shares = rayleigh_shares(np.array([1.0, 0.0, 0.9]), np.array([0.0, 1.0, 0.1]))
    # 1 wins until b = 1, where all three meet; then the steepest.
    np.testing.assert_allclose(shares, [1.0 - math.exp(-0.5), math.exp(-0.5), 0.0], atol=1e-12)
    shares = rayleigh_shares(np.array([1.0, 0.0, 0.9]), np.array([0.0, 1.0, 0.5]))
    a, b = math.exp(-0.5 * 0.2**2), math.exp(-0.5 * 1.8**2)
    np.testing.assert_allclose(shares, [1.0 - a, b, a - b], atol=1e-12)


HALF = 0.5 * math.exp(-0.5)


@pytest.mark.parametrize(
    ("means", "deviations", "expected"),
    [
        ([0.0, 0.0], [0.0, 0.0], [0.5, 0.5]),
        ([1.0, 0.0], [0.5, 0.5], [1.0, 0.0]),
        ([2.0, 1.0], [1.0, 0.5], [1.0, 0.0]),
        ([1.0, 1.0, 0.0], [0.2, 0.2, 0.1], [0.5, 0.5, 0.0]),
        ([1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5 - HALF, 0.5 - HALF, 2.0 * HALF]),
        ([5.0], [1.0], [1.0]),
    ],
)
def test_rayleigh_shares_at_the_edges(
    means: list[float], deviations: list[float], expected: list[float]
) -> None:
    """Equal lines share, dominated ones have nothing, one row has all."""
    shares = rayleigh_shares(np.array(means), np.array(deviations))
    assert shares.tolist() == pytest.approx(expected)


def test_one_draw_of_the_width_goes_for_all_rows() -> None:
    """The median of B decides between two lines that cross there: ½ each."""
    median = math.sqrt(2.0 * math.log(2.0))
    shares = rayleigh_shares(np.array([median, 0.0]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(shares, 0.5, atol=1e-12)
