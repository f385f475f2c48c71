import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.families import Family
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.model.priors import Prior

FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
BAD = [math.nan, math.inf, -math.inf]
THETA: Vector = np.array([1.0, -0.5, 0.25])
#: The block of each row: there is one.
NONE = np.zeros(9, dtype=np.int64)
ROOT: Matrix = np.array([[0.5, 0.1, 0.0], [0.0, 0.7, -0.2], [0.0, 0.0, 0.8]])


@pytest.fixture(params=["plain", "compiled"])
def chosen(request: pytest.FixtureRequest) -> Kernels:
    """Both sets of kernels, one after the other."""
    return kernels.plain() if request.param == "plain" else kernels.compiled()


def _named(chosen: Kernels, family: Family) -> Any:
    return family if chosen is kernels.plain() else family.number


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("width", [0.0, 1.0])
def test_a_row_that_is_not_finite_is_signalled_among_others(
    chosen: Kernels, value: float, width: float
) -> None:
    """Upper returns NaN as the mean, whatever the width and wherever the row stands."""
    family = _named(chosen, Bernoulli())
    for index in np.ndindex(4, 3):
        rows = np.vstack([np.eye(3), np.ones(3)])
        rows[index] = value
        assert math.isnan(
            chosen.upper(rows, NONE[:4], THETA[None], ROOT[None], width, 0.0, family)[2]
        )


@pytest.mark.parametrize("value", BAD)
def test_a_row_that_is_not_finite_is_signalled_among_draws(chosen: Kernels, value: float) -> None:
    """Sampled returns NaN as the mean too, whichever row a draw would favour."""
    family = _named(chosen, Bernoulli())
    pool = np.random.default_rng(0).normal(size=(1, 4, 8)).astype(np.float32)
    for index in np.ndindex(4, 3):
        rows = np.vstack([np.eye(3), np.ones(3)])
        rows[index] = value
        assert math.isnan(chosen.sampled(rows, NONE[:4], THETA[None], pool, 0.0, family)[2])


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("value", BAD)
def test_a_row_that_is_not_finite_changes_nothing(
    chosen: Kernels, family: Family, value: float
) -> None:
    """Count, learn, unlearn and amend signal it and leave root and θ bit for bit."""
    named = _named(chosen, family)
    for index in range(3):
        x = np.array([0.5, -1.0, 2.0])
        x[index] = value
        root, theta = ROOT.copy(), THETA.copy()
        assert not chosen.count(root, x, 1.0) < math.inf
        assert math.isnan(chosen.learn(root, theta, x, 1.0, named, 1.0))
        assert math.isnan(chosen.unlearn(root, theta, x, 1.0, 0.1, named, 1.0, 3.0))
        assert not chosen.amend(root, theta, x, 1.0, 3.0)
        assert root.tobytes() == ROOT.tobytes()
        assert theta.tobytes() == THETA.tobytes()


def test_a_draw_chooses_its_best_row(chosen: Kernels, full: bool) -> None:
    """The index, the draws that agree, the mean and the slope equal those of a plain loop."""
    rng = np.random.default_rng(1)
    for _ in range(500 if full else 50):
        dim, arms, draws = (int(n) for n in rng.integers(1, 20, size=3))
        rows, theta = rng.normal(size=(arms, dim)), rng.normal(size=dim)
        pool = rng.normal(size=(dim, draws)).astype(np.float32)
        scores = [[float(x @ (theta + column)) for x in rows] for column in pool.T]
        pool = np.vstack([pool, np.ones((1, draws), dtype=np.float32)])  # by which the means enter
        best = [int(np.argmax(row)) for row in scores]
        drawn = int(rng.integers(draws))
        u = (drawn + 0.5) / draws
        result = chosen.sampled(
            rows, NONE[:1].repeat(arms), theta[None], pool[None], u, _named(chosen, Bernoulli())
        )
        mean = 1.0 / (1.0 + math.exp(-float(rows[best[drawn]] @ theta)))
        assert result[:2] == (best[drawn], best.count(best[drawn]) / draws)
        assert result[2:] == pytest.approx((mean, mean * (1.0 - mean)), rel=1e-10)


def test_equal_rows_divide_a_draw_evenly(chosen: Kernels) -> None:
    """Whichever of them a draw names, each is chosen as often, by what is left of u."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3, 3))[[0, 1, 0, 2, 0]]
    pool = np.vstack([rng.normal(size=(3, 8)), np.ones((1, 8))]).astype(np.float32)
    uniforms = (np.arange(240) + 0.5) / 240
    named = _named(chosen, Bernoulli())
    results = [chosen.sampled(rows, NONE[:5], THETA[None], pool[None], u, named) for u in uniforms]
    counts = np.bincount([result[0] for result in results], minlength=5)
    assert counts[0] == counts[2] == counts[4] > 0
    for index, share, *_ in results:
        assert share == pytest.approx(counts[index] / 240)


@dataclass(frozen=True)
class Clone(Bernoulli):
    """A family the compiled kernels do not know."""

    number = None  # type: ignore[assignment]


def test_a_family_of_ones_own_runs_like_a_built_in_one(chosen: Kernels) -> None:
    """A clone of Bernoulli without a number gives what Bernoulli gives, step by step."""
    rng = np.random.default_rng(2)
    custom = Model(Prior.ridge(4), Clone(), kernels=chosen)
    built_in = Model(Prior.ridge(4), Bernoulli(), kernels=chosen)
    for k in range(150):
        x, y = rng.normal(size=4), float(rng.integers(0, 2))
        for model in (custom, built_in):
            model.add_pending(x, model.argmax_ucb([x], 1.0)[3])
            weight = model.learn(x, y)
            model.revise(x, y, 0.9 * y)
            if k % 3 == 0:
                assert model.retract(x, 0.9 * y, weight)
    np.testing.assert_allclose(custom.theta, built_in.theta, atol=1e-10)
    np.testing.assert_allclose(custom.observed, built_in.observed, atol=1e-10)
    np.testing.assert_allclose(custom.decided, built_in.decided, atol=1e-10)
