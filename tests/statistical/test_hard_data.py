"""Fits of data that no one would choose: finite always, and converged or said not to be.

Warnings that are not the library's own, as those of an overflow, are errors here too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import BelatedWarning, ConvergenceWarning
from belated.model.blocks import root_of
from belated.model.estimators import Estimate, Estimator, Laplace, Online, Ridge
from belated.model.families import Family
from belated.model.priors import AUTO_RANGE, Prior
from belated.model.statistics import Observations
from tests.statistical.problems import observed, sphere

Data = tuple[Matrix, Vector]
Maker = Callable[[Family, np.random.Generator], Data]
THETA = np.array([3.0, -2.0, 1.0, 0.0])


def unit(family: Family, rng: np.random.Generator, n: int = 60) -> Data:
    """Sixty unit rows of four numbers, with rewards of the family."""
    X = sphere(n, 4, rng)
    return X, family.sample(X @ THETA, rng)


def one_long_row(at: int) -> Maker:
    """One row of 10⁸ among unit rows."""

    def made(family: Family, rng: np.random.Generator) -> Data:
        X, y = unit(family, rng)
        X[at] *= 1e8
        return X, y

    return made


def changed(
    rows: Callable[[Matrix], Matrix] = lambda X: X,
    rewards: Callable[[Matrix, Vector], Vector] = lambda _, y: y,
) -> Maker:
    """Unit rows and their rewards, changed."""

    def made(family: Family, rng: np.random.Generator) -> Data:
        X, y = unit(family, rng)
        return rows(X), rewards(X, y)

    return made


def thousands(family: Family, rng: np.random.Generator) -> Data:
    """Counts with means of up to 10⁴."""
    X = np.abs(sphere(100, 4, rng))
    return X, family.sample(X @ np.full(4, 4.6), rng)


CASES: dict[str, Maker] = {
    "separable": changed(rewards=lambda X, _: np.where(X @ THETA > 0, 1.0, 0.0)),
    "all rewards 0": changed(rewards=lambda _, y: np.zeros_like(y)),
    "all rewards 1": changed(rewards=lambda _, y: np.ones_like(y)),
    "a column twice": changed(lambda X: np.hstack([X, X[:, :1]])),
    "constant columns": changed(lambda X: np.hstack([X, np.ones((60, 1)), np.zeros((60, 1))])),
    "rows of zeros": changed(np.zeros_like),
    "one column": changed(lambda X: X[:, :1]),
    "one row only": changed(lambda X: np.repeat(X[:1], 60, axis=0)),
    "rows of 1e-6": changed(lambda X: 1e-6 * X),
    "rows of 1e6": changed(lambda X: 1e6 * X),
    "rows of 1e-6 to 1e8": changed(lambda X: X * np.logspace(-6, 8, 60)[:, None]),
    "a column of 1e8": changed(lambda X: X * [1e8, 1.0, 1.0, 1.0]),
    "fewer rows than columns": lambda family, rng: unit(family, rng, n=2),
    "no rows": lambda family, rng: unit(family, rng, n=0),
    "first row 1e8": one_long_row(0),
    "last row 1e8": one_long_row(-1),
}
COUNTS: dict[str, Maker] = {
    "means to 1e4": thousands,
    "all rewards 1e9": changed(rewards=lambda _, y: np.full_like(y, 1e9)),
    "first reward 1e9": changed(rewards=lambda _, y: np.r_[1e9, y[1:]]),
    "last reward 1e9": changed(rewards=lambda _, y: np.r_[y[:-1], 1e9]),
    "every other reward 1e9": changed(rewards=lambda _, y: np.where(np.arange(60) % 2, y, 1e9)),
    "rows of 1e6, rewards 1e9": changed(lambda X: 1e6 * X, lambda _, y: np.full_like(y, 1e9)),
    "rows of 1e-6, rewards 1e9": changed(lambda X: 1e-6 * X, lambda _, y: np.full_like(y, 1e9)),
}
SKEWED: list[tuple[Family, str]] = [
    *((Bernoulli(), name) for name in CASES),
    *((Poisson(), name) for name in CASES | COUNTS),
]
NORMAL: list[tuple[Family, str]] = [
    *((Gaussian(1.0), name) for name in CASES),
    *((Gaussian("estimate"), name) for name in CASES),
]


def data(family: Family, name: str) -> Data:
    """The data of a case, always the same."""
    return (CASES | COUNTS)[name](family, np.random.default_rng(len(name)))


def fit(
    estimator: Estimator,
    seen: Observations,
    family: Family,
    prior: Prior,
    start: Vector | None = None,
) -> tuple[Estimate, set[type[Warning]]]:
    """The estimate and the kinds of warning it came with."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("error")
        warnings.simplefilter("always", BelatedWarning)
        estimate = estimator.fit(seen, family=family, prior=prior, start=start)
    return estimate, {warning.category for warning in caught_warnings}


def prior_of(estimate: Estimate, family: Family) -> Matrix:
    """The precision of θ before any reward; if φ is estimated, a ridge is of θ/√φ."""
    unit = estimate.dispersion if family.dispersion is None else 1.0
    return np.asarray(estimate.prior.precision / unit)


def assert_sound(estimate: Estimate, family: Family) -> None:
    """Everything is finite, and no coefficient is less certain than under the prior.

    With an estimated precision that holds given it; over all that it may be, none is less certain
    than under the weakest prior.
    """
    for value in (estimate.theta, estimate.mean, estimate.precision, estimate.covariance):
        assert np.isfinite(value).all()
    assert np.linalg.svdvals(root_of(estimate.precision))[-1] > 0.0
    variances = np.diag(np.linalg.inv(prior_of(estimate, family)))
    root = root_of(estimate.precision)
    assert (np.vecdot(root, root) <= variances * (1 + 1e-6)).all()
    if estimate.doubt is not None:
        variances = variances * estimate.prior.precision[0, 0] / AUTO_RANGE[0]
    assert (np.diag(estimate.covariance) <= variances * (1 + 1e-6)).all()


def distance_to_maximum(X: Matrix, y: Vector, family: Family, estimate: Estimate) -> float:
    """The Newton step still missing, in posterior deviations, computed in extended precision."""
    rows = X.astype(np.float32).astype(np.longdouble)
    theta = estimate.theta.astype(np.longdouble)
    eta = np.clip(rows @ theta, -700, 700)
    if isinstance(family, Gaussian):
        mean, slope = rows @ theta, np.ones_like(eta)
    elif isinstance(family, Poisson):
        mean = slope = np.exp(eta)
    else:
        mean, slope = 0.5 + 0.5 * np.tanh(eta / 2), 0.25 / np.square(np.cosh(eta / 2))
    prior = prior_of(estimate, family).astype(np.longdouble)
    H = prior + (rows * slope[:, None]).T @ rows / estimate.dispersion
    residual = (y - mean) @ rows / estimate.dispersion - prior @ theta
    square = 0.0
    for j in range(len(H)):  # Gaussian elimination: Σ left²/pivot is leftᵀH⁻¹left
        square += float(residual[j] ** 2 / H[j, j])
        residual[j + 1 :] -= H[j + 1 :, j] * (residual[j] / H[j, j])
        H[j + 1 :, j + 1 :] -= np.outer(H[j + 1 :, j], H[j, j + 1 :]) / H[j, j]
    return float(np.sqrt(square))


@pytest.mark.parametrize("ridge", [1.0, "auto"])
@pytest.mark.parametrize("corrected", [False, True], ids=["plain", "corrected"])
@pytest.mark.parametrize(("family", "name"), SKEWED, ids=str)
def test_laplace_is_finite_and_at_the_maximum_or_says_it_is_not(
    family: Family, name: str, corrected: bool, ridge: float | Literal["auto"]
) -> None:
    """Either converged, to 1e-3 posterior deviations, or with a ConvergenceWarning."""
    X, y = data(family, name)
    prior = Prior.ridge(X.shape[1], ridge)
    estimate, kinds = fit(Laplace(mean_correction=corrected), observed(X, y), family, prior)
    assert_sound(estimate, family)
    assert estimate.converged == (ConvergenceWarning not in kinds)
    if estimate.converged:
        assert distance_to_maximum(X, y, family, estimate) < 1e-3


@pytest.mark.parametrize("ridge", [1.0, "auto"])
@pytest.mark.parametrize(("family", "name"), NORMAL, ids=str)
def test_ridge_is_finite_and_at_the_maximum_or_says_it_is_not(
    family: Family, name: str, ridge: float | Literal["auto"]
) -> None:
    """Either converged, to 1e-3 posterior deviations, or with a ConvergenceWarning."""
    X, y = data(family, name)
    estimate, kinds = fit(Ridge(), observed(X, y), family, Prior.ridge(X.shape[1], ridge))
    assert_sound(estimate, family)
    assert estimate.converged == (ConvergenceWarning not in kinds)
    if estimate.converged:
        assert distance_to_maximum(X, y, family, estimate) < 1e-3


@pytest.mark.parametrize(("family", "name"), SKEWED + NORMAL, ids=str)
def test_online_is_finite(family: Family, name: str) -> None:
    """Whatever the rows and rewards; it never claims to be at the maximum."""
    X, y = data(family, name)
    estimate, _ = fit(Online(), observed(X, y), family, Prior.ridge(X.shape[1]))
    assert_sound(estimate, family)
    assert not estimate.converged


@pytest.mark.parametrize("estimator", [Laplace(), Online()], ids=["Laplace", "Online"])
def test_counts_in_thousands_are_found_from_a_cold_start(estimator: Estimator) -> None:
    """Means of up to 10⁴ are estimated to 5 % from 100 counts."""
    X, y = data(Poisson(), "means to 1e4")
    estimate, _ = fit(estimator, observed(X, y), Poisson(), Prior.ridge(4))
    assert np.abs(X @ (estimate.theta - 4.6)).max() < 0.05


@pytest.mark.parametrize("length", [1e2, 1e3, 1e8])
@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
def test_a_warm_start_survives_a_long_row(family: Family, length: float) -> None:
    """A fit from the last estimate, with one row of 10², 10³ or 10⁸ more, is finite and honest."""
    rng = np.random.default_rng(1)
    X = sphere(60, 3, rng)
    y = family.sample(X @ [1.0, 1.0, 0.0], rng)
    prior = Prior.ridge(3)
    start = Laplace().fit(observed(X, y), family=family, prior=prior).theta
    X, y = np.vstack([X, [[length, 0.0, 0.0]]]), np.r_[y, 1.0]
    estimate, kinds = fit(Laplace(), observed(X, y), family, prior, start)
    assert_sound(estimate, family)
    assert estimate.converged == (ConvergenceWarning not in kinds)


def test_a_removed_row_of_1e8_leaves_no_trace() -> None:
    """The estimate and its warnings are those of the other rows."""
    X, y = unit(Bernoulli(), np.random.default_rng(2))
    reference = observed(X, y)
    removed = observed(X, y)
    removed.remove(removed.add([1e8, 0.0, 0.0, 0.0], 1.0))
    for estimator in (Laplace(), Laplace(mean_correction=True)):
        first, silence = fit(estimator, reference, Bernoulli(), Prior.ridge(4))
        second, kinds = fit(estimator, removed, Bernoulli(), Prior.ridge(4))
        assert np.array_equal(first.mean, second.mean)
        assert np.array_equal(first.precision, second.precision)
        assert kinds == silence == set()


ESTIMATORS: list[tuple[Estimator, Family]] = [
    (Ridge(), Gaussian(1.0)),
    (Laplace(), Bernoulli()),
    (Laplace(), Poisson()),
    (Online(), Bernoulli()),
]
