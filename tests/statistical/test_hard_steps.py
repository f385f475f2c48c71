"""Steps of a model on rows and rewards that no one would choose.

Between two fits a model takes whatever comes, in any order: decisions, rewards, rewards that are
revised or taken back, decisions that are withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from tests.statistical.kept import Kept
from tests.statistical.problems import sphere

FAMILIES: list[Family] = [Gaussian(1.0), Bernoulli(), Poisson()]
KERNELS = pytest.mark.parametrize("chosen", [kernels.plain, kernels.best], ids=["plain", "best"])
Chosen = Callable[[], kernels.Kernels]

#: The lengths of the rows of a walk.
LENGTHS = {
    "unit": [1.0],
    "0.1 to 10": [0.1, 1.0, 10.0],
    "1e-6": [1e-6],
    "1e6": [1e6],
    "1e-6 to 1e8": [1e-6, 1e-3, 1.0, 1.0, 1.0, 1e3, 1e6, 1e8],
    "unit and 1e8": [1.0, 1.0, 1.0, 1e8],
}
#: Each family's rewards, and those that are hard.
REWARDS: dict[type, tuple[list[float], list[float]]] = {
    Gaussian: ([-1.0, 0.0, 2.0], [-1.0, 0.0, 1e9]),
    Bernoulli: ([0.0, 1.0], [0.0, 1.0]),
    Poisson: ([0.0, 1.0, 5.0, 30.0], [0.0, 1.0, 1e4, 1e9]),
}


def walk(
    family: Family,
    lengths: list[float],
    rewards: list[float],
    using: kernels.Kernels,
    seed: int,
    check: Callable[[Kept, Matrix], None],
) -> None:
    """Two hundred random steps among eight rows, with a check after each."""
    rng = np.random.default_rng(seed)
    dim = 1 + seed % 4
    rows = sphere(8, dim, rng) * rng.choice(lengths, 8)[:, None]
    kept = Kept(Prior.ridge(dim), family, using)
    pending: list[int] = []
    learned: list[int] = []
    for _ in range(200):
        step, reward = rng.integers(6), float(rng.choice(rewards))
        if step <= 1:
            pending.append(kept.add_pending(rows[rng.integers(8)]))
        elif step == 2 and pending:
            learned.append(pending.pop(rng.integers(len(pending))))
            kept.learn(learned[-1], reward)
        elif step == 3 and learned:
            pending.append(learned.pop(rng.integers(len(learned))))
            kept.retract(pending[-1])
        elif step == 4 and learned:
            kept.revise(learned[rng.integers(len(learned))], reward)
        elif step == 5 and pending:
            kept.remove_pending(pending.pop(rng.integers(len(pending))))
        check(kept, rows)


def assert_finite_and_definite(kept: Kept, rows: Matrix) -> None:
    """θ and both roots are finite, and no direction has lost its variance."""
    assert np.isfinite(kept.model.theta).all()
    for root in (kept.model.observed, kept.model.decided):
        assert np.isfinite(root).all()
        assert np.linalg.svdvals(root)[-1] > 0.0
    means, deviations = kept.model.score(rows)
    assert np.isfinite(means).all()
    assert np.isfinite(deviations).all()
    assert (deviations > 0.0).all()


def assert_no_less_certain_than_the_prior(kept: Kept, rows: Matrix) -> None:
    """No row's standard deviation is above that of the prior, N(0, I)."""
    norms = np.linalg.norm(rows, axis=1) * (1 + 1e-6)
    for root in (kept.model.observed, kept.model.decided):
        assert (np.linalg.norm(rows @ root, axis=1) <= norms).all()


@KERNELS
@pytest.mark.parametrize("hard", [False, True], ids=["mild rewards", "hard rewards"])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_no_sequence_of_steps_leaves_the_finite_numbers(
    family: Family, lengths: str, hard: bool, chosen: Chosen, full: bool
) -> None:
    """After every step of random walks θ and both roots are finite, the covariances definite."""
    rewards = REWARDS[type(family)][hard]
    for seed in range(200 if full else 8):
        walk(family, LENGTHS[lengths], rewards, chosen(), seed, assert_finite_and_definite)


@pytest.mark.parametrize("lengths", ["unit", "0.1 to 10"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_no_sequence_of_steps_makes_a_row_less_certain_than_the_prior(
    family: Family, lengths: str, full: bool
) -> None:
    """What has been taken back cannot take the prior with it, on rows of a sensible length."""
    rewards = REWARDS[type(family)][0]
    check = assert_no_less_certain_than_the_prior
    for seed in range(200 if full else 8):
        walk(family, LENGTHS[lengths], rewards, kernels.best(), seed, check)


def landing(family: Family, x: float, y: float, theta: float) -> float:
    """The root z of z - xθ = x² (y - g(z)), where the posterior of one reward is highest."""

    def excess(z: float) -> float:
        mean = float(family.mean(np.array(z)))
        return (z - x * theta) / x**2 - (y - mean)

    return float(brentq(excess, -1e20, 1e20, xtol=1e-12, rtol=1e-14, maxiter=1000))


SURPRISES = [
    (Poisson(), 1.0, 1e4, 0.0),
    (Poisson(), 1.0, 1e9, 0.0),
    (Poisson(), 1.0, 0.0, 30.0),
    (Poisson(), 1e2, 0.0, 10.0),
    (Poisson(), 1e3, 3.0, 1.0),
    (Poisson(), 1e8, 3.0, 1.0),
    (Poisson(), 1e8, 1e9, -1.0),
    (Bernoulli(), 1.0, 0.0, 30.0),
    (Bernoulli(), 1e3, 0.0, 1.0),
    (Bernoulli(), 1e8, 1.0, -1.0),
    (Bernoulli(), 1e8, 0.0, 1.0),
]


@KERNELS
@pytest.mark.parametrize(("family", "x", "y", "theta"), SURPRISES, ids=str)
def test_a_surprising_reward_moves_theta_to_where_it_is_likeliest(
    family: Family, x: float, y: float, theta: float, chosen: Chosen
) -> None:
    """The linear predictor after one step solves its own equation to 1e-3, however far it goes."""
    model = Model(Prior.ridge(1), family, theta=np.array([theta]), kernels=chosen())
    model.learn(np.array([x]), y)
    assert x * float(model.theta[0]) == pytest.approx(landing(family, x, y, theta), abs=1e-3)


def moved(model: Model) -> tuple[Vector, Matrix]:
    """θ̂ and the covariance, as they are now."""
    return model.theta.copy(), model.observed @ model.observed.T


@pytest.mark.parametrize("length", [1.0, 1e2, 1e3, 1e4, 1e5])
def test_a_gaussian_reward_of_a_long_row_is_taken_back_exactly(length: float) -> None:
    """θ̂ and the covariance are those before it to length² 1e-13, or a new fit is asked for."""
    rng = np.random.default_rng(1)
    model = Model(Prior.ridge(3), Gaussian(1.0))
    for x in sphere(50, 3, rng):
        model.add_pending(x, 1.0)
        model.learn(x, float(rng.normal()))
    theta, covariance = moved(model)
    row = length * sphere(1, 3, rng)[0]
    model.add_pending(row, 1.0)
    weight = model.learn(row, 5.0)
    if not model.retract(row, 5.0, weight):
        assert length >= 1e4
        return
    after = moved(model)
    bound = max(1e-10, 1e-13 * length**2)
    assert np.abs(after[0] - theta).max() < bound
    assert np.abs(after[1] - covariance).max() < bound


@pytest.mark.parametrize("y", [5.0, 30.0, 1e4])
def test_counts_learned_and_taken_back_leave_the_prior(y: float) -> None:
    """Deviations are the prior's again, and no taking back moved a linear predictor beyond 3."""
    model = Model(Prior.ridge(2), Poisson())
    rows = np.array([[0.72, 0.69], [0.97, -0.25]])
    rewards = [5.0, y]
    weights = []
    for x, reward in zip(rows, rewards, strict=True):
        model.add_pending(x, 1.0)
        weights.append(model.learn(x, reward))
    for x, reward, weight in zip(rows, rewards, weights, strict=True):
        before = float(x @ model.theta)
        assert model.retract(x, reward, weight)
        assert abs(x @ model.theta - before) <= 3.0 + 1e-9
    assert np.allclose(model.observed @ model.observed.T, np.eye(2), rtol=0, atol=1e-6)


def test_a_count_taken_back_at_once_leaves_theta_where_it_was() -> None:
    """Learning a mild count and taking it back is no step at all."""
    model = Model(Prior.ridge(2), Poisson())
    x = np.array([0.6, 0.8])
    model.add_pending(x, 1.0)
    assert model.retract(x, 4.0, model.learn(x, 4.0))
    assert np.abs(model.theta).max() < 1e-8
