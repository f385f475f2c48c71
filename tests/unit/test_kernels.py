import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.families import Family
from belated.model.kernels import Kernels

FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)
BOTH = (kernels.plain, kernels.compiled)
#: How far one step may move a linear predictor.
CAP = 3.0


@pytest.fixture(params=["plain", "compiled"])
def chosen(request: pytest.FixtureRequest) -> Kernels:
    """Both sets of kernels, one after the other."""
    return kernels.plain() if request.param == "plain" else kernels.compiled()


@dataclass
class Problem:
    """A random state of a model, with rows to choose from and one of them to learn."""

    rows: Matrix
    theta: Vector
    precision: Matrix
    root: Matrix
    y: float
    weight: float

    def __post_init__(self) -> None:
        self.x: Vector = self.rows[0]
        self.q = float(self.x @ np.linalg.solve(self.precision, self.x))

    @property
    def stacked(self) -> tuple[Matrix, NDArray[np.int64], Matrix, Matrix]:
        """Rows, their blocks, the estimate and the root: there is one block."""
        blocks = np.zeros(len(self.rows), dtype=np.int64)
        return self.rows, blocks, self.theta[None], self.root[None]


def _problem(rng: np.random.Generator, dim: int, arms: int) -> Problem:
    rows = rng.normal(size=(arms, dim)) / math.sqrt(dim)
    if arms > 2:
        rows[1] = 0.0
        rows[2] = rows[0]
    data = rng.normal(size=(2 * dim, dim))
    precision = np.eye(dim) + data.T @ data
    root = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(precision)).T)
    reward = float(rng.integers(0, 2))
    return Problem(rows, rng.normal(size=dim), precision, root, reward, float(rng.uniform(0.1, 2)))


def _problems(full: bool) -> Iterator[Problem]:
    rng = np.random.default_rng(3)
    for _ in range(1_000 if full else 60):
        yield _problem(rng, int(rng.integers(1, 31)), int(rng.integers(1, 21)))


def _named(chosen: Kernels, family: Family) -> Any:
    return family if chosen is kernels.plain() else family.number


def _learn(chosen: Kernels, p: Problem, family: Family) -> list[Any]:
    """The weight of the row, and the root and θ that learning leaves, on copies."""
    root, theta = p.root.copy(), p.theta.copy()
    phi = family.dispersion or 1.0
    weight = chosen.learn(root, theta, p.x, p.y, _named(chosen, family), phi)
    return [weight, root, theta]


def _unlearn(
    chosen: Kernels, p: Problem, family: Family, weight: float, cap: float = CAP
) -> list[Any]:
    """The share that remains, and the root and θ that unlearning leaves, on copies."""
    root, theta = p.root.copy(), p.theta.copy()
    phi = family.dispersion or 1.0
    remaining_share = chosen.unlearn(
        root, theta, p.x, p.y, weight, _named(chosen, family), phi, cap
    )
    return [remaining_share, root, theta]


def _same(found: list[Any], expected: list[Any], close: float) -> None:
    for a, b in zip(found, expected, strict=True):
        size = float(np.max(np.abs(b), initial=1.0))
        np.testing.assert_allclose(a, b, rtol=0.0, atol=close * size)


def test_scores_are_predictors_and_deviations(chosen: Kernels, full: bool) -> None:
    """Score gives Xθ and √(xᵀH⁻¹x), computed here with an inverse."""
    for p in _problems(full):
        eta, deviation = chosen.score(*p.stacked)
        covariance = np.linalg.inv(p.precision)
        np.testing.assert_allclose(eta, p.rows @ p.theta, rtol=1e-10, atol=1e-13)
        expected = [math.sqrt(x @ covariance @ x) for x in p.rows]
        np.testing.assert_allclose(deviation, expected, rtol=1e-9, atol=1e-13)


@every_family
def test_the_upper_row_is_the_one_a_loop_finds(chosen: Kernels, family: Family, full: bool) -> None:
    """Index, ties, mean and slope equal those of a loop over rows and an inverse."""
    named = _named(chosen, family)
    for p in _problems(full):
        for width, u in ((0.0, 0.0), (1.5, 0.3), (4.0, 0.999)):
            covariance = np.linalg.inv(p.precision)
            scores = [x @ p.theta + width * math.sqrt(x @ covariance @ x) for x in p.rows]
            candidates = [i for i, value in enumerate(scores) if value >= max(scores) - 1e-9]
            index, ties, mean, slope = chosen.upper(*p.stacked, width, u, named)
            assert ties == len(candidates)
            assert index == candidates[int(u * len(candidates))]
            eta = p.rows[index] @ p.theta
            assert mean == pytest.approx(float(family.mean(eta)), rel=1e-11, abs=1e-12)
            assert slope == pytest.approx(float(family.slope(eta)), rel=1e-11)


@pytest.mark.parametrize("copies", [1, 2, 3, 8])
def test_ties_are_all_counted_and_all_drawn(chosen: Kernels, copies: int) -> None:
    """With the best row in several places, u from 0 to 1 draws each place in turn."""
    rng = np.random.default_rng(5)
    p = _problem(rng, 7, 19)
    p.rows[:] *= 0.01
    places = sorted(rng.choice(19, size=copies, replace=False).tolist())
    p.rows[places] = p.theta
    for k in range(copies):
        for u in (k / copies + 1e-9, (k + 1) / copies - 1e-9):
            named = _named(chosen, Gaussian())
            index, ties, *_ = chosen.upper(*p.stacked, 0.5, u, named)
            assert (index, ties) == (places[k], copies)


def test_rows_of_zeros_all_tie(chosen: Kernels) -> None:
    """Before anything is known, every row is as good as any other."""
    family = _named(chosen, Bernoulli())
    blocks, theta = np.zeros(6, dtype=np.int64), np.zeros((1, 3))
    result = chosen.upper(np.zeros((6, 3)), blocks, theta, np.eye(3)[None], 1.0, 0.5, family)
    assert result == (3, 6, 0.5, 0.25)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_counting_adds_and_takes_away(chosen: Kernels, sign: float, full: bool) -> None:
    """S Sᵀ becomes (H + w x xᵀ)⁻¹ for either sign of w, and q = xᵀH⁻¹x is returned."""
    for p in _problems(full):
        root = p.root.copy()
        weight = sign * p.weight if sign > 0 else -0.9 / max(p.q, 1.0)
        q = chosen.count(root, p.x, weight)
        assert q == pytest.approx(p.q, rel=1e-9)
        expected = np.linalg.inv(p.precision + weight * np.outer(p.x, p.x))
        np.testing.assert_allclose(root @ root.T, expected, rtol=1e-8, atol=1e-11)


def test_counting_leaves_what_it_cannot_take_away(chosen: Kernels) -> None:
    """Where w takes all that H holds of a direction, the root stays as it was and q tells."""
    p = _problem(np.random.default_rng(1), 4, 1)
    for weight in (-1.0 / p.q, -2.0 / p.q):
        root = p.root.copy()
        assert 1.0 + weight * chosen.count(root, p.x, weight) <= kernels.LEFT
        assert root.tobytes() == p.root.tobytes()


@every_family
def test_learning_solves_the_likelihood_along_one_direction(
    chosen: Kernels, family: Family, full: bool
) -> None:
    """θ moves to θ + H⁻¹x (y - g(z))/φ, z solving z = η + q (y - g(z))/φ; H gains g'(z)/φ x xᵀ."""
    phi = family.dispersion or 1.0
    for p in _problems(full):
        weight_found, root, theta = _learn(chosen, p, family)
        eta, q = float(p.x @ p.theta), p.q

        def excess(z: float, eta: float = eta, q: float = q, y: float = p.y) -> float:
            return z - eta - q * (y - float(family.mean(np.array(z)))) / phi

        z = brentq(excess, eta - 500.0, eta + 500.0, xtol=1e-14)
        step = np.linalg.solve(p.precision, p.x) * (p.y - float(family.mean(np.array(z)))) / phi
        # Gaussian steps are exact. Others end within 1e-7, or are one Newton step: below .05.
        close = 1e-10 if isinstance(family, Gaussian) else 1e-5 if abs(z - eta) > 0.06 else 0.03
        np.testing.assert_allclose(theta, p.theta + step, atol=close * np.abs(step).max() + 1e-12)
        weight = float(family.slope(np.array(z))) / phi
        assert weight_found == pytest.approx(weight, rel=2.0 * close)
        expected = np.linalg.inv(p.precision + weight_found * np.outer(p.x, p.x))
        np.testing.assert_allclose(root @ root.T, expected, rtol=1e-8, atol=1e-11)


def test_unlearning_a_gaussian_reward_gives_the_posterior_without_it(
    chosen: Kernels, full: bool
) -> None:
    """θ and H equal those of the textbook with the row's terms subtracted."""
    for p in _problems(full):
        precision = p.precision - np.outer(p.x, p.x) / 4.0
        if np.linalg.eigvalsh(precision)[0] < 1e-3:
            continue
        remaining_share, root, theta = _unlearn(chosen, p, Gaussian(4.0), 0.25, math.inf)
        linear = p.precision @ p.theta - p.x * p.y / 4.0
        assert remaining_share == pytest.approx(1.0 - 0.25 * p.q, rel=1e-9)
        np.testing.assert_allclose(theta, np.linalg.solve(precision, linear), atol=1e-9)
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-8, atol=1e-9)


@every_family
def test_unlearning_leaves_what_it_cannot_take_away(chosen: Kernels, family: Family) -> None:
    """Where a millionth or less would remain, root and θ stay as they were and the share tells."""
    for seed in range(20):
        p = _problem(np.random.default_rng(seed), 3, 1)
        for share in (1e-7, 0.0, -3.0):
            remaining_share, root, theta = _unlearn(chosen, p, family, (1.0 - share) / p.q)
            assert remaining_share == pytest.approx(share, abs=1e-9)
            assert root.tobytes() == p.root.tobytes()
            assert theta.tobytes() == p.theta.tobytes()


@every_family
@pytest.mark.parametrize("y", [-1e3, 0.5, 1e3])
def test_unlearning_and_amending_move_a_predictor_by_the_cap_at_most(
    chosen: Kernels, family: Family, y: float
) -> None:
    """Both move θ along H⁻¹x, by as much as they say up to the cap; amending leaves the root."""
    phi = family.dispersion or 1.0
    for seed in range(20):
        p = _problem(np.random.default_rng(seed), 3, 1)
        p.y = y
        remaining_share, _, theta = _unlearn(chosen, p, family, 0.5 / p.q)
        change = -(y - float(family.mean(p.x @ p.theta))) / phi / remaining_share
        direction = np.linalg.solve(p.precision, p.x)
        expected = p.theta + float(np.clip(change, -CAP / p.q, CAP / p.q)) * direction
        np.testing.assert_allclose(theta, expected, rtol=1e-9, atol=1e-9)
        root, theta = p.root.copy(), p.theta.copy()
        assert chosen.amend(root, theta, p.x, y, CAP)
        expected = p.theta + float(np.clip(y, -CAP / p.q, CAP / p.q)) * direction
        np.testing.assert_allclose(theta, expected, rtol=1e-9, atol=1e-9)
        assert root.tobytes() == p.root.tobytes()


@every_family
def test_plain_and_compiled_kernels_learn_the_same(family: Family, full: bool) -> None:
    """Both sets learn, unlearn and amend alike, zero and doubled rows included."""
    for p in _problems(full):
        for row in range(min(3, len(p.rows))):
            part = Problem(p.rows[row:], p.theta, p.precision, p.root, p.y, p.weight)
            plain, compiled = (_learn(which(), part, family) for which in BOTH)
            _same(compiled, plain, 1e-12)
            weight = min(p.weight, 0.9 / part.q) if part.q else p.weight
            plain, compiled = (_unlearn(which(), part, family, weight) for which in BOTH)
            _same(compiled, plain, 1e-11)
            amended = p.theta.copy(), p.theta.copy()
            assert kernels.plain().amend(p.root.copy(), amended[0], part.x, 0.3, CAP)
            assert kernels.compiled().amend(p.root.copy(), amended[1], part.x, 0.3, CAP)
            _same([amended[1]], [amended[0]], 1e-12)


def test_plain_and_compiled_kernels_count_and_choose_the_same(full: bool) -> None:
    """Both sets give the same scores, choices and roots."""
    for p in _problems(full):
        results = []
        for which in BOTH:
            root = p.root.copy()
            q = which().count(root, p.x, p.weight)
            scores = which().score(*p.stacked)
            named = _named(which(), Bernoulli())
            choice = which().upper(*p.stacked, 1.2, 0.6, named)
            results.append([q, root, *scores, *choice])
        _same(results[1], results[0], 1e-12)
