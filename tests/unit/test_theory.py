"""Widths and warm-ups against numbers computed elsewhere, and against what they bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from belated import Bernoulli, DelayedUCB, Gaussian, Poisson, theory
from belated.exceptions import InvalidInput
from belated.model.families import Family
from belated.theory.confidence import CHERNOFF, noise

#: n, G, d, δ, σ̂, κ: from small to the sizes the paper speaks of, and with σ̂ < κ (low noise).
GRID = list(
    itertools.product(
        [0, 1, 100, 10_000],
        [0, 1, 7, 1000],
        [1, 10, 50],
        [0.5, 0.05, 1e-4],
        [0.01, 0.5],
        [0.0177, 1.0],
    )
)


def test_the_papers_width_has_the_size_that_was_computed() -> None:
    """β = 181 at n = 10^4, d = 10, δ = .05, σ̂ = .5, κ = .0177, and nothing missing."""
    width = theory.width_paper(10_000, 0, 10, delta=0.05, sigma=0.5, kappa=0.0177)
    assert width == pytest.approx(181.0, abs=0.5)


@pytest.mark.parametrize(("norm", "expected"), [(1.0, 30.0), (3.0, 181.0), (5.0, 1298.0)])
def test_the_papers_width_explodes_with_the_norm(norm: float, expected: float) -> None:
    """30, 181 and 1298 for |θ*| up to 1, 3 and 5, within 2 %."""
    kappa = theory.min_slope(Bernoulli(), norm)
    width = theory.width_paper(10_000, 0, 10, delta=0.05, sigma=0.5, kappa=kappa)
    assert width == pytest.approx(expected, rel=0.02)


def test_the_papers_width_is_its_formula() -> None:
    """(σ̂/κ) √(d/2 log(1 + 2n/d) + log 1/δ) + √G, on a grid."""
    for n, G, d, delta, sigma, kappa in GRID:
        root = math.sqrt(d / 2 * math.log(1 + 2 * n / d) + math.log(1 / delta))
        width = theory.width_paper(n, G, d, delta=delta, sigma=sigma, kappa=kappa)
        assert width == pytest.approx(sigma / kappa * root + math.sqrt(G), rel=1e-12)


def test_what_the_proof_gives_is_never_wider_than_the_paper() -> None:
    """√(β² + G) ≤ β + √G everywhere, low noise included, and as wide where G = 0."""
    for n, G, d, delta, sigma, kappa in GRID:
        constants = {"delta": delta, "sigma": sigma, "kappa": kappa}
        paper, tight = (
            width(n, G, d, **constants) for width in (theory.width_paper, theory.width_tight)
        )
        base_width = theory.width_paper(n, 0, d, **constants)
        assert tight <= paper * (1 + 1e-15)
        assert tight == pytest.approx(math.sqrt(base_width**2 + G), rel=1e-12)
        assert (tight < paper) == (G > 0)


def test_rewards_missing_are_not_multiplied_by_the_noise() -> None:
    """With σ̂ < κ the first line of the paper's proof would give less than √G: this does not."""
    tight = theory.width_tight(100, 400, 2, delta=0.05, sigma=0.01, kappa=1.0)
    assert tight >= 20.0


def test_the_spectral_width_is_a_factor() -> None:
    """β ψ: with ψ = 1 the width without delay, and linear in ψ."""
    for n, _, d, delta, sigma, kappa in GRID:
        constants = {"delta": delta, "sigma": sigma, "kappa": kappa}
        width = theory.width_paper(n, 0, d, **constants)
        assert theory.width_spectral(n, 1.0, d, **constants) == width
        assert theory.width_spectral(n, 1.3, d, **constants) == pytest.approx(1.3 * width)


def test_the_spectral_width_bounds_what_is_observed() -> None:
    """Whatever the rows, β ‖x‖ in W⁻¹ ≤ β ψ ‖x‖ in V⁻¹ for ψ² = λ_max(W⁻¹V), once with equality."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        X, P = rng.normal(size=(8, 4)), rng.normal(size=(5, 4))
        W = np.eye(4) + X.T @ X
        V = W + P.T @ P
        psi = math.sqrt(float(np.linalg.eigvals(np.linalg.solve(W, V)).real.max()))
        x = rng.normal(size=(500, 4))
        ratio = np.sqrt(np.vecdot(x @ np.linalg.inv(W), x) / np.vecdot(x @ np.linalg.inv(V), x))
        assert 1.0 <= ratio.max() <= psi + 1e-12
        assert ratio.max() > 0.8 * psi


def test_the_width_that_works_has_no_constants() -> None:
    """The log width is α √log(2 + n): 2.88 at 10^4 rewards, free of d, δ, σ̂ and κ.

    Its α is the policy's.
    """
    assert theory.width_log(10_000) == pytest.approx(2.883, abs=1e-3)
    alpha = DelayedUCB(2, Bernoulli()).alpha or 0.0
    assert theory.width_log(0) == pytest.approx(alpha * math.sqrt(math.log(2.0)))
    assert theory.width_log(7, alpha=2.0) == pytest.approx(2.0 * math.sqrt(math.log(9.0)))


@pytest.mark.parametrize(
    ("norm", "kappa"), [(1.0, 0.105), (3.0, 0.0177), (5.0, 0.0025), (8.0, 0.00012)]
)
def test_the_least_slope_of_a_logistic_is_at_the_ends(norm: float, kappa: float) -> None:
    """κ = e^-Z/(1 + e^-Z)² at Z = S + 1, to the digits it was computed to."""
    assert theory.min_slope(Bernoulli(), norm) == pytest.approx(kappa, rel=0.03)
    decay = math.exp(-norm - 1.0)
    assert theory.min_slope(Bernoulli(), norm) == pytest.approx(decay / (1 + decay) ** 2)


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(0.25), Poisson()], ids=repr)
@pytest.mark.parametrize("norm", [0.1, 1.0, 3.0])
def test_no_slope_is_below_the_least(family: Family, norm: float) -> None:
    """On a fine grid of [-S - 1, S + 1] the slope is nowhere less, and once as little."""
    slopes = family.slope(np.linspace(-norm - 1.0, norm + 1.0, 10_001))
    assert slopes.min() == pytest.approx(theory.min_slope(family, norm), rel=1e-12)


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(0.25), Poisson()], ids=repr)
@pytest.mark.parametrize("norm", [0.1, 1.0, 3.0])
def test_no_slope_is_above_the_greatest(family: Family, norm: float) -> None:
    """On the same grid the slope is nowhere more, and once as much: ¼ for a logistic."""
    slopes = family.slope(np.linspace(-norm - 1.0, norm + 1.0, 10_001))
    assert slopes.max() == pytest.approx(theory.max_slope(family, norm), rel=1e-12)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_on_the_norm_is_above_zero(norm: float) -> None:
    """The error names the value."""
    for slope in (theory.min_slope, theory.max_slope):
        with pytest.raises(InvalidInput, match=repr(norm)):
            slope(Bernoulli(), norm)


def test_noise_is_what_a_reward_is_sub_gaussian_by() -> None:
    """½ in [0, 1], the standard deviation for Gaussian, e^(Z/2) for counts."""
    assert noise(Bernoulli(), 3.0) == 0.5
    assert noise(Gaussian(0.09), 3.0) == pytest.approx(0.3)
    assert noise(Poisson(), 3.0) == pytest.approx(math.exp(2.0))


def test_half_is_the_least_sub_gaussian_noise_of_a_coin() -> None:
    """log E e^(s(y - p)) ≤ s²σ̂²/2 for σ̂ = ½ and every p, with hardly any room at p = ½."""
    for p in (0.01, 0.3, 0.5, 0.9):
        for s in (-5.0, -0.1, 0.1, 3.0):
            moment = math.log(p * math.exp(s * (1 - p)) + (1 - p) * math.exp(-s * p))
            assert moment <= s**2 * noise(Bernoulli(), 1.0) ** 2 / 2
    assert math.log(math.cosh(0.05)) / (0.1**2 / 2) > 0.249


def test_the_rate_of_matrix_chernoff_is_at_half_the_mean() -> None:
    """.15343 = ½ + ½ log ½, the exponent -min over t of the bound at half the mean."""
    assert pytest.approx(0.15343, abs=5e-6) == CHERNOFF
    minimum = minimize_scalar(
        lambda t: 0.5 * t + math.expm1(-t), bounds=(0.0, 5.0), method="bounded"
    )
    assert pytest.approx(-float(minimum.fun), abs=1e-9) == CHERNOFF


def test_the_threshold_is_that_of_the_noise() -> None:
    """max(1, 16 σ̂² (d + log 1/δ)/κ²)."""
    threshold = theory.threshold(10, delta=0.05, sigma=0.5, kappa=0.0177)
    assert threshold == pytest.approx(16 * 0.25 * (10 + math.log(20)) / 0.0177**2)
    assert theory.threshold(10, delta=0.05, sigma=0.01, kappa=1.0) == 1.0


#: A bound on the missing rewards of geometric delays of mean 100, that the totals below include.
MISSING = 1154.2


@pytest.mark.parametrize(
    ("norm", "total", "digits"), [(1e-9, 28_049, 1e-4), (1.0, 95_466, 1e-4), (3.0, 3.3e6, 0.0125)]
)
def test_the_literal_warm_up_has_the_size_that_was_computed(
    norm: float, total: float, digits: float
) -> None:
    """d = 10, δ = .05, logistic, rows of a sphere: 28,049, 95,466 and 3.3 million rounds.

    1154 of each are the bound on missing rewards; the others are arrivals.
    """
    kappa = theory.min_slope(Bernoulli(), norm)
    target = theory.threshold(10, delta=0.05, sigma=0.5, kappa=kappa)
    arrivals = theory.warmup_chernoff(10, delta=0.05, target=target)
    assert arrivals == pytest.approx(total - MISSING, rel=digits)
    rounds = theory.warmup_chernoff(10, delta=0.05, target=target, missing=MISSING)
    assert rounds == pytest.approx(total, rel=digits)
    assert rounds == pytest.approx(arrivals + MISSING)


def test_a_small_target_asks_for_the_spectrum_alone() -> None:
    """log(d/δ)/.15343 over λ_min(Σ), where twice the target is less."""
    rounds = theory.warmup_chernoff(10, delta=0.05, target=1.0, least=0.02)
    assert rounds == pytest.approx(math.log(10 / 0.05) / CHERNOFF / 0.02)
    assert theory.warmup_chernoff(10, delta=0.05, target=1.0) == pytest.approx(rounds / 5)


@pytest.mark.parametrize(("dim", "target"), [(5, 1.0), (5, 10.0), (10, 10.0)])
def test_a_warm_up_of_that_length_is_long_enough(dim: int, target: float) -> None:
    """In 100 runs λ_min(Σ x xᵀ) always reaches the target, and at a twentieth of it never does."""
    rng = np.random.default_rng(0)
    count = math.ceil(theory.warmup_chernoff(dim, delta=0.05, target=target))
    for _ in range(100):
        rows = rng.normal(size=(count, dim))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        assert np.linalg.eigvalsh(rows.T @ rows)[0] >= target
        first_rows = rows[: count // 20]
        assert np.linalg.eigvalsh(first_rows.T @ first_rows)[0] < target


def test_the_papers_warm_up_is_its_formula() -> None:
    """((C₁√d + C₂√log 1/δ)/λ)² + 2B/λ + G, and constants have no default."""
    rounds = theory.warmup_paper(10, delta=0.05, target=3.0, missing=7.0, least=0.1, c1=2.0, c2=0.5)
    first = (2.0 * math.sqrt(10) + 0.5 * math.sqrt(math.log(20))) / 0.1
    assert rounds == pytest.approx(first**2 + 60.0 + 7.0)
    with pytest.raises(TypeError, match="c1"):
        theory.warmup_paper(10, delta=0.05, target=3.0, missing=7.0, least=0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "width",
    [theory.width_paper, theory.width_tight, theory.width_spectral],
    ids=lambda w: w.__name__,
)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": -1}, "`n` must be .*got -1"),
        ({"dim": 0}, "`dim` must be .*got 0"),
        ({"delta": 1.0}, "`delta` must be .*got 1.0"),
        ({"sigma": 0.0}, "`sigma` must be .*got 0.0"),
        ({"kappa": 0.0}, "`kappa` must be .*got 0.0"),
        ({"kappa": math.nan}, "`kappa` must be .*got nan"),
        ({"third": -4.0}, "`(missing|inflation)` must be .*got -4.0"),
    ],
)
def test_a_width_refuses_what_it_cannot_be_computed_from(
    width: Callable[..., float], change: dict[str, Any], said: str
) -> None:
    """By name and value, and not with a domain error of the root."""
    numbers = {"n": 100, "third": 1.0, "dim": 2, "delta": 0.05, "sigma": 0.5, "kappa": 0.25}
    numbers |= change
    n, third, dim = (numbers.pop(name) for name in ("n", "third", "dim"))
    with pytest.raises(InvalidInput, match=said):
        width(n, third, dim, **numbers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dim": 2.5}, "`dim` must be .*got 2.5"),
        ({"delta": 0.0}, "`delta` must be .*got 0.0"),
        ({"target": -1.0}, "`target` must be .*got -1.0"),
        ({"missing": math.inf}, "`missing` must be .*got inf"),
        ({"least": 0.0}, "`least` must be .*got 0.0"),
    ],
)
def test_a_warm_up_refuses_what_it_cannot_be_computed_from(
    change: dict[str, Any], said: str
) -> None:
    """By name and value, in both forms."""
    numbers = {"dim": 10, "delta": 0.05, "target": 3.0, "missing": 7.0, "least": 0.1, **change}
    dim = numbers.pop("dim")
    with pytest.raises(InvalidInput, match=said):
        theory.warmup_chernoff(dim, **numbers)
    with pytest.raises(InvalidInput, match=said):
        theory.warmup_paper(dim, c1=1.0, c2=1.0, **numbers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delta": 2}, "`delta` must be .*got 2"),
        ({"sigma": -1.0}, "`sigma` must be"),
        ({"kappa": 0}, "`kappa` must be .*got 0"),
    ],
)
def test_a_threshold_refuses_what_it_cannot_be_computed_from(
    change: dict[str, Any], said: str
) -> None:
    """By name and value."""
    with pytest.raises(InvalidInput, match=said):
        theory.threshold(10, **{"delta": 0.05, "sigma": 0.5, "kappa": 0.1, **change})
