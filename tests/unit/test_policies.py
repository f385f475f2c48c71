"""What policies are made of, and how they choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from belated import (
    Bernoulli,
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Gaussian,
    Greedy,
    Poisson,
    Uniform,
    WaitForWindow,
    kernels,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
)
from belated.exceptions import InvalidInput
from belated.families import Family
from belated.inputs import Matrix
from belated.kernels import Kernels
from belated.learner import Learner
from belated.models import Model
from belated.policies import Choice, Policy, Warmup
from belated.policies.delayed_ucb import (
    SPECTRAL_EVERY,
    greatest_shares,
    rayleigh_shares,
    spectral_inflation,
)
from belated.priors import Prior

B = Bernoulli()
MAKE: dict[str, Callable[[], Policy]] = {
    "ucb": lambda: DelayedUCB(3, B),
    "ucb-floor": lambda: DelayedUCB(3, B, floor=0.1),
    "ucb-gram": lambda: DelayedUCB(3, B, metric="gram", missing_weight=1.0),
    "ucb-spectral": lambda: DelayedUCB(3, B, spectral=True),
    "randomized": lambda: DelayedUCB(3, B, randomized=True),
    "randomized-floor": lambda: DelayedUCB(3, B, randomized=True, floor=0.1),
    "thompson": lambda: DelayedThompson(3, B),
    "thompson-floor": lambda: DelayedThompson(3, B, floor=0.1),
    "blind-ucb": lambda: BlindUCB(3, B),
    "blind-thompson": lambda: BlindThompson(3, B),
    "waiting": lambda: WaitForWindow(3, B, window=5),
    "greedy": lambda: Greedy(3, B),
    "epsilon-greedy": lambda: EpsilonGreedy(3, B),
    "uniform": lambda: Uniform(3, B),
    "ducb": lambda: paper_ducb(3, B, 1.0, warmup=0, ridge=1.0),
    "dts": lambda: paper_dts(3, B),
    "dts-lcb": lambda: paper_dts_lcb(3),
    "warming": lambda: paper_dts(3, B, warmup=1000),
}
every_policy = pytest.mark.parametrize("name", MAKE)


def rng(seed: int = 0) -> np.random.Generator:
    """A generator."""
    return np.random.default_rng(seed)


def busy(policy: Policy, decisions: int = 40, using: Kernels | None = None) -> Learner:
    """A learner after so many decisions on random rows, and three quarters of their rewards."""
    source = rng(3)
    learner = Learner(policy, kernels=using)
    rows = source.normal(size=(decisions, policy.dim)).astype(np.float32).astype(np.float64) / 2.0
    for number, x in enumerate(rows):
        weight = learner.model.predict(x)[1]
        learner.add_pending(x, weight)
        if number % 4:
            learner.learn(x, float(source.random() < 0.3 + 0.4 * (x[0] > 0)), weight)
    return learner


def state(model: Model) -> list[Any]:
    """All that is learned, bit for bit."""
    parts = (model.theta, model.observed, model.decided)
    return [*(part.tobytes() for part in parts), model.n, model.pending, model.dispersion]


# --- made of ------------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[], Policy], str]] = [
    (lambda: DelayedUCB(0, B), "dim is 0"),
    (lambda: DelayedUCB(2.5, B), r"dim is 2\.5"),  # type: ignore[arg-type]
    (lambda: Uniform(-3, B), "dim is -3"),
    (lambda: DelayedUCB(2, B, ridge=0.0), r"ridge is 0\.0"),
    (lambda: DelayedUCB(2, B, ridge=-1.0), r"ridge is -1\.0"),
    (lambda: DelayedUCB(2, B, ridge="some"), "ridge is 'some'"),  # type: ignore[arg-type]
    (lambda: DelayedUCB(2, B, prior=Prior.ridge(3)), "prior of 3 numbers for rows of 2"),
    (lambda: DelayedUCB(2, B, pending_weight=-0.1), r"pending_weight is -0\.1"),
    (lambda: DelayedUCB(2, B, pending_weight=1.5), r"pending_weight is 1\.5"),
    (lambda: DelayedThompson(2, B, pending_weight=math.nan), "pending_weight is nan"),
    (lambda: Greedy(2, B, floor=-0.5), r"floor is -0\.5"),
    (lambda: EpsilonGreedy(2, B, floor=1.01), r"floor is 1\.01"),
    (lambda: DelayedUCB(2, B, floor=math.nan), "floor is nan"),
    (lambda: DelayedUCB(2, B, metric="other"), "metric is 'other'"),  # type: ignore[arg-type]
    (lambda: DelayedUCB(2, B, alpha=-0.2), r"alpha is -0\.2"),
    (lambda: DelayedUCB(2, B, alpha=math.nan), "alpha is nan"),
    (lambda: DelayedUCB(2, B, missing_weight=-0.7), r"missing_weight is -0\.7"),
    (lambda: BlindUCB(2, B, missing_weight=math.nan), "missing_weight is nan"),
    (lambda: DelayedThompson(2, B, scale=-0.3), r"scale=-0\.3"),
    (lambda: DelayedThompson(2, B, scale=math.nan), "scale=nan"),
    (lambda: DelayedThompson(2, B, draws=1), "draws=1"),
    (lambda: BlindThompson(2, B, refresh=-0.4), r"refresh=-0\.4"),
    (lambda: WaitForWindow(2, B, window=-7), "window is -7"),
    (lambda: DelayedUCB(2, B, learn_after=-1), "learn_after is -1"),
    (lambda: WaitForWindow(2, B, learn_after=5), "learns after its window"),
    (lambda: WaitForWindow(2, B, window=2.5), r"2\.5"),  # type: ignore[arg-type]
    (lambda: DelayedThompson(2, B, draws=2.5), r"2\.5"),  # type: ignore[arg-type]
    (lambda: paper_ducb(2, B, 0.0), r"norm_bound is 0\.0"),
    (lambda: paper_ducb(2, B, 1.0, ridge=0.0), r"ridge is 0\.0"),
    (lambda: paper_ducb(2, B, 1.0, delta=0.0), r"delta is 0\.0"),
    (lambda: paper_ducb(2, B, 1.0, delta=1.5), r"delta is 1\.5"),
    (lambda: paper_ducb(2, B, 1.0, delta=1.5, warmup=10), r"delta is 1\.5"),
    (lambda: paper_dts(2, B, ridge=-2.0), r"ridge is -2\.0"),
    (lambda: paper_dts_lcb(2, noise=0.0), r"noise is 0\.0"),
    (lambda: paper_dts_lcb(2, noise=-1.0), r"noise is -1\.0"),
    (lambda: paper_dts_lcb(2, a=0.0), r"0\.0"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_makes_no_sense_is_refused_by_its_name(
    make: Callable[[], Policy], message: str
) -> None:
    """InvalidInput names the argument and its value."""
    with pytest.raises(InvalidInput, match=message):
        make()


def test_defaults_are_the_ones_that_work() -> None:
    """α .95, or .85 if randomized; scale .7; ridge 1; pending counted, no floor."""
    ucb, thompson = DelayedUCB(2, B), DelayedThompson(2, B)
    assert (ucb.alpha, ucb.missing_weight, ucb.spectral, ucb.metric) == (
        0.95,
        0.0,
        False,
        "hessian",
    )
    assert DelayedUCB(2, B, randomized=True).alpha == 0.85
    assert DelayedUCB(2, B, randomized=True, alpha=0.3).alpha == 0.3
    assert (thompson.scale, thompson.pending_weight, thompson.floor) == (0.7, 1.0, 0.0)
    assert ucb.start.precision.tolist() == np.eye(2).tolist()
    assert BlindUCB(2, B).pending_weight == BlindThompson(2, B).pending_weight == 0.0
    assert WaitForWindow(2, B).pending_weight == 0.0
    assert EpsilonGreedy(2, B).floor == 0.05


MEANINGLESS: list[tuple[type[Policy], str, Any]] = [
    (Greedy, "alpha", 3.0),
    (Greedy, "randomized", True),
    (Greedy, "missing_weight", 1.0),
    (Greedy, "pending_weight", 0.5),
    (EpsilonGreedy, "spectral", True),
    (EpsilonGreedy, "metric", "gram"),
    (BlindUCB, "pending_weight", 1.0),
    (BlindUCB, "spectral", True),
    (BlindThompson, "pending_weight", 1.0),
    (WaitForWindow, "pending_weight", 1.0),
    (Uniform, "floor", 0.1),
    (Uniform, "pending_weight", 1.0),
    (Uniform, "metric", "gram"),
    (Warmup, "floor", 0.1),
]


@pytest.mark.parametrize(("kind", "name", "value"), MEANINGLESS)
def test_what_would_mean_nothing_cannot_be_given(
    kind: type[Policy], name: str, value: object
) -> None:
    """A policy takes the arguments that it heeds, and says which one it does not know."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        kind(2, B, **{name: value})  # type: ignore[arg-type]


def test_options_have_names() -> None:
    """Only the width of a row and the family go by place."""
    with pytest.raises(TypeError):
        DelayedUCB(2, B, 1.0)  # type: ignore[call-arg]


@every_policy
def test_a_policy_cannot_be_changed(name: str) -> None:
    """It is a frozen value."""
    with pytest.raises(FrozenInstanceError):
        MAKE[name]().floor = 0.5  # type: ignore[misc]


def test_the_same_arguments_make_equal_policies() -> None:
    """A policy is what it is, not which object."""
    assert all(make() == make() for make in MAKE.values())


def test_a_changed_ridge_changes_the_prior() -> None:
    """dataclasses.replace(policy, ridge=4) starts from precision 4."""
    changed = replace(DelayedUCB(2, B), ridge=4.0)
    assert changed.start.precision.tolist() == (4.0 * np.eye(2)).tolist()


def test_a_prior_takes_the_place_of_the_ridge() -> None:
    """θ̂ starts at its mean, and both roots at its precision."""
    prior = Prior.normal([0.5, -1.0], [[4.0, 1.0], [1.0, 2.0]])
    learner = Learner(Greedy(2, B, prior=prior))
    model = learner.model
    assert model.theta.tolist() == [0.5, -1.0]
    for root in (model.observed, model.decided):
        np.testing.assert_allclose(root @ root.T @ prior.precision, np.eye(2), atol=1e-12)
    choice = learner.policy.choose(model, -np.eye(2), rng())
    assert choice.index == 1
    assert choice.mean == pytest.approx(1.0 / (1.0 + math.exp(-1.0)))


def test_an_estimated_ridge_starts_at_one() -> None:
    """ridge="auto" is adaptive, and so are the fits it starts."""
    start = DelayedUCB(2, B, ridge="auto").start
    assert start.adaptive
    assert start.precision.tolist() == np.eye(2).tolist()


# --- choose -------------------------------------------------------------------------------------


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
    one, two = (policy.choose(busy(policy).model, table, rng(4)) for table in (rows, rows.tolist()))
    assert one == two


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
    for value, at, seed in itertools.product([math.nan, math.inf, -math.inf], range(3), range(3)):
        rows = np.array([[0.5, 0.1, 0.2], [0.1, 0.5, -0.1], [-0.3, 0.2, 0.5]])
        rows[at, 1] = value
        try:
            accepted.append((value, at, policy.choose(model, rows, rng(seed))))
        except InvalidInput:
            assert state(model) == before
    assert accepted == []


@pytest.mark.parametrize("using", [kernels.plain, kernels.compiled])
@every_policy
def test_one_request_is_chosen_for_as_by_choose(name: str, using: Callable[[], Kernels]) -> None:
    """The same choices from the same draws, ties too, and the same model after them."""
    policy = MAKE[name]()
    one, other = (busy(policy, using=using()).model for _ in range(2))
    source, twin = rng(5), rng(5)
    for step in range(30):
        rows = rng(step).normal(size=(5, 3)) if step % 2 else np.tile([0.5, 0.1, 0.2], (4, 1))
        choice = policy.choose(one, rows, source)
        if step % 3:
            policy.add_pending(one, rows[choice.index], choice.weight)
        assert policy.choose_all(other, rows, [len(rows)], [step % 3 > 0], twin) == [choice]
    assert state(one) == state(other)
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


@pytest.mark.parametrize("weight", [0.1, 1.0, 3.0])
def test_missing_rewards_widen_by_their_root(weight: float) -> None:
    """missing_weight adds its multiple of √G_t to the width."""
    policy = DelayedUCB(3, B, missing_weight=weight)
    model = busy(policy).model
    assert model.pending == 10
    plain = DelayedUCB(3, B).width(model)
    assert policy.width(model) - plain == pytest.approx(weight * math.sqrt(10))


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
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_spectral_inflation_is_that_of_the_spectrum(metric: Any, share: float) -> None:
    """√λ_max(W⁻¹V) by numpy, W of what arrived and V of all, in the metric of the policy."""
    policy = DelayedUCB(
        3, Gaussian(0.25), metric=metric, pending_weight=share, spectral=True, ridge=1.0
    )
    learner = Learner(policy)
    table = rng(5).normal(size=(30, 3))
    weight = 1.0 if metric == "gram" else 4.0
    W = np.eye(3)
    for x in table:
        learner.add_pending(x, 4.0)
    for x in table[:20]:
        learner.learn(x, 1.0, 4.0)
        W += weight * np.outer(x, x)
    V = W + share * weight * table[20:].T @ table[20:]
    expected = math.sqrt(float(np.linalg.eigvals(np.linalg.solve(W, V)).real.max()))
    assert expected > 1.05
    assert spectral_inflation(learner.model) == pytest.approx(expected, rel=1e-9)
    plain = DelayedUCB(3, Gaussian(0.25), metric=metric, pending_weight=share)
    assert policy.width(learner.model) == pytest.approx(expected * plain.width(learner.model))


@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_a_warmed_policy_learns_as_it_would_alone(metric: Any) -> None:
    """Its width is the same: the warm-up passes on what the policy needs of the learner."""
    bare = DelayedUCB(3, B, metric=metric, spectral=True, pending_weight=0.5, ridge=2.0)
    alone, warmed = (busy(policy).model for policy in (bare, Warmup(bare, rounds=10)))
    assert spectral_inflation(alone) > 1.05
    assert bare.width(warmed) == bare.width(alone)
    assert state(warmed) == state(alone)
    assert Warmup(WaitForWindow(3, B, window=7), rounds=10).learns_after == 7


@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_where_nothing_is_pending_nothing_is_inflated(metric: Any) -> None:
    """The spectral inflation is 1 once all rewards are there."""
    policy = DelayedUCB(3, B, metric=metric, spectral=True)
    learner = Learner(policy)
    for x in rng(5).normal(size=(60, 3)):
        learner.add_pending(x, 0.25)
        learner.learn(x, float(x[0] > 0), 0.25)
    learner.fit()
    assert spectral_inflation(learner.model) == pytest.approx(1.0, abs=1e-9)


def test_the_inflation_is_never_below_one() -> None:
    """Through random decisions, rewards and fits of any family."""
    for family in (B, Poisson(), Gaussian("estimate")):
        policy = DelayedUCB(3, family, spectral=True)
        learner, source = Learner(policy), rng(6)
        pending: list[Any] = []
        for _ in range(200):
            x = source.normal(size=3).astype(np.float32).astype(np.float64) / 2.0
            weight = learner.model.predict(x)[1]
            learner.add_pending(x, weight)
            pending.append((x, weight))
            if source.random() < 0.7:
                x, weight = pending.pop(int(source.integers(len(pending))))
                learner.learn(x, float(source.integers(2)), weight)
            assert spectral_inflation(learner.model) >= 1.0


def test_the_inflation_is_computed_now_and_then() -> None:
    """It is kept for fewer than 20 decisions and computed anew at 20, or after a fit."""
    policy = DelayedUCB(3, Gaussian(1.0), spectral=True)
    learner = Learner(policy)
    x = np.array([1.0, 0.0, 0.0])
    first = spectral_inflation(learner.model)
    for _ in range(SPECTRAL_EVERY - 1):
        learner.add_pending(x, 1.0)
    assert spectral_inflation(learner.model) == first == 1.0
    learner.add_pending(x, 1.0)
    assert spectral_inflation(learner.model) == pytest.approx(math.sqrt(1.0 + SPECTRAL_EVERY))
    learner.add_pending(x, 1.0)
    learner.fit()
    assert spectral_inflation(learner.model) == pytest.approx(math.sqrt(2.0 + SPECTRAL_EVERY))


@pytest.mark.parametrize("floor", [0.1, 0.5, 1.0])
def test_a_floor_is_shared_by_all_rows(floor: float) -> None:
    """The best row has 1 - f + f/K, any other f/K."""
    for make in (DelayedUCB, Greedy, BlindUCB):
        policy = make(3, B, floor=floor)
        model = busy(policy).model
        rows = rng(1).normal(size=(5, 3))
        best = replace(policy, floor=0.0).choose(model, rows, rng()).index
        source, seen = rng(2), {}
        for _ in range(200):
            choice = policy.choose(model, rows, source)
            seen[choice.index] = choice.propensity
        assert set(seen) == set(range(5)) or floor < 0.2
        for index, propensity in seen.items():
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
    found = rayleigh_shares(np.array(means), np.array(deviations))
    assert found.tolist() == pytest.approx(expected)


def test_one_draw_of_the_width_goes_for_all_rows() -> None:
    """The median of B decides between two lines that cross there: ½ each."""
    median = math.sqrt(2.0 * math.log(2.0))
    shares = rayleigh_shares(np.array([median, 0.0]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(shares, 0.5, atol=1e-12)


# --- Thompson's pool ----------------------------------------------------------------------------


def pool_of(model: Model) -> Any:
    """The only thing that was derived from the model: the deviations it is sampled with."""
    ((pool, _),) = model.derived.values()
    return pool


def test_a_pool_is_kept_until_decisions_have_grown_by_a_tenth() -> None:
    """Drawn at 100 decisions it serves until 111, and a new one is drawn at 112."""
    policy = DelayedThompson(3, Gaussian(1.0))
    learner = busy(policy, decisions=100)
    model, rows = learner.model, rng(1).normal(size=(5, 3))
    policy.choose(model, rows, rng(2))
    pool = pool_of(model)
    for _ in range(11):
        learner.add_pending(rows[0], 1.0)
        policy.choose(model, rows, rng(3))
        assert pool_of(model) is pool
    learner.add_pending(rows[0], 1.0)
    policy.choose(model, rows, rng(3))
    assert pool_of(model) is not pool


def test_rewards_do_not_make_a_pool_older() -> None:
    """A reward moves θ̂, and decisions are as many as before: the deviations stay."""
    policy = DelayedThompson(3, Gaussian(1.0), ridge=1.0)
    learner = Learner(policy)
    rows = rng(1).normal(size=(5, 3))
    for _ in range(50):
        learner.add_pending(rows[0], 1.0)
    policy.choose(learner.model, rows, rng(2))
    pool = pool_of(learner.model)
    for _ in range(50):
        learner.learn(rows[0], 1.0, 1.0)
        policy.choose(learner.model, rows, rng(3))
        assert pool_of(learner.model) is pool


def test_a_fit_throws_the_pool_away() -> None:
    """The deviations were of other roots."""
    policy = DelayedThompson(3, B)
    learner = busy(policy)
    policy.choose(learner.model, np.eye(3), rng())
    learner.fit()
    assert learner.model.derived == {}


def test_two_policies_that_read_one_model_keep_apart_what_they_derive() -> None:
    """Each has a pool with draws of its own scale and number."""
    model = busy(DelayedThompson(3, B)).model
    few, many = DelayedThompson(3, B, draws=4), DelayedThompson(3, B, draws=256)
    few.choose(model, np.eye(3), rng())
    many.choose(model, np.eye(3), rng())
    assert few.pool(model, 3, rng()).shape[1] == 4
    assert many.pool(model, 3, rng()).shape[1] == 256


def test_a_choice_is_that_of_the_current_theta() -> None:
    """With the pool kept, a θ̂ far in one direction decides alone."""
    policy = DelayedThompson(3, Gaussian(1.0))
    model = busy(policy).model
    policy.choose(model, np.eye(3), rng())
    pool = pool_of(model)
    for index in range(3):
        model.theta[:] = 100.0 * np.eye(3)[index]
        choice = policy.choose(model, np.eye(3), rng(index))
        assert (choice.index, choice.propensity) == (index, 1.0)
    assert pool_of(model) is pool


@pytest.mark.parametrize("pending", [0, 30])
def test_a_pool_has_the_deviations_of_the_posterior(pending: int) -> None:
    """Scaled, and with pending decisions counted: the covariance of 40,000 draws, to 5 %."""
    policy = DelayedThompson(3, Gaussian(1.0), scale=0.7, draws=40_000)
    learner = busy(policy, decisions=20)
    for x in rng(7).normal(size=(pending, 3)):
        learner.add_pending(x, 1.0)
    policy.choose(learner.model, np.eye(3), rng())
    pool = np.asarray(pool_of(learner.model), dtype=np.float64)
    assert pool.shape == (4, 40_000)
    assert (pool[3] == 1.0).all()  # by which the means enter
    expected = 0.49 * learner.model.decided @ learner.model.decided.T
    np.testing.assert_allclose(np.cov(pool[:3]), expected, rtol=0.05, atol=0.02 * expected.max())


def test_without_refresh_every_choice_has_a_pool_of_its_own() -> None:
    """refresh=0 draws anew at every choice, though nothing was decided in between."""
    policy = BlindThompson(3, Gaussian(1.0), refresh=0.0)
    model = busy(policy).model
    pools = []
    source = rng()
    for _ in range(5):
        policy.choose(model, np.eye(3), source)
        pools.append(pool_of(model).tobytes())
    assert len(set(pools)) == 5


def test_without_refresh_lapsed_decisions_keep_no_pool() -> None:
    """refresh=0 draws anew also where fewer decisions count than at the last choice."""
    policy = BlindThompson(3, Gaussian(1.0), refresh=0.0)
    learner = busy(policy)
    policy.choose(learner.model, np.eye(3), rng())
    pool = pool_of(learner.model)
    for x in np.eye(3):
        learner.add_pending(x, 1.0)
        learner.remove_pending(x, 1.0)
        learner.remove_pending(x, 1.0)
    policy.choose(learner.model, np.eye(3), rng(1))
    assert pool_of(learner.model) is not pool


def test_many_rows_are_scored_with_half_the_draws() -> None:
    """Above 32 rows 32 of 64 draws choose: propensities are multiples of 1/32."""
    policy = DelayedThompson(3, B, scale=2.0)
    for count, draws in ((32, 64), (33, 32)):
        model = busy(policy).model
        choice = policy.choose(model, rng(1).normal(size=(count, 3)), rng())
        assert pool_of(model).shape == (4, draws)
        assert (choice.propensity * draws) % 1.0 == 0.0


def test_thompson_likes_what_is_uncertain() -> None:
    """Of two rows with equal means the one with the larger deviation wins half of the time.

    Of m - δ against m, with deviations s and 0, it is the normal quantile: P(N > δ/s).
    """
    policy = DelayedThompson(2, Gaussian(1.0), scale=1.0, draws=20_000)
    model = Model(Prior.normal([1.0, 0.0], np.diag([1e12, 1.0])), Gaussian(1.0))
    gap = float(-ndtri(0.2))
    rows = np.array([[gap, 0.0], [0.0, 1.0]])
    found = {}
    source = rng()
    for _ in range(50):
        choice = policy.choose(model, rows, source)
        found[choice.index] = choice.propensity
    assert found[1] == pytest.approx(0.2, abs=0.02)
