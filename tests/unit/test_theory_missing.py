"""The paper's bounds on missing rewards: their numbers, how they move, and what they refuse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from scipy.special import zeta

from belated import theory
from belated.delays import Empirical, Exponential, Geometric, HalfNormal, Uniform
from belated.exceptions import InvalidInput

#: The bounds that fail with probability δ, each with numbers it takes.
BOUNDS: list[tuple[str, tuple[float, ...]]] = [
    ("prop1", (100.0, 0.0, 7.0887, 0.0)),
    ("prop1", (40.0, 3.0, 0.3, 1.0)),
    ("prop1", (7.0, 0.0, 0.0, 1.0)),
    ("iid", (100.0, 7.0887)),
    ("iid", (7.0, 0.0)),
    ("hoeffding", (40.4, 0.0, 50.0, 1.0)),
    ("hoeffding", (4.0, 2.0, 1.5, 0.3)),
    ("markov", (20.0, 0.5)),
    ("markov", (20.0, 0.0)),
    ("random", (5.0, 25.0, 1.0)),
    ("random", (5.0, 0.0, 0.1)),
]


def one(name: str) -> Callable[..., float]:
    """The bound in one round."""
    function: Callable[..., float] = getattr(theory, f"missing_{name}")
    return function


def maximum(name: str) -> Callable[..., float]:
    """The bound in all rounds together."""
    return one(name)


def test_proposition_1_has_the_number_that_was_computed() -> None:
    """1154.2 for geometric delays of mean 100, for which σ² = 50.25 and q = 0."""
    assert theory.missing_prop1(100, 0, math.sqrt(50.25), 0, delta=0.05) == pytest.approx(
        1154.2, abs=0.05
    )


def test_most_of_proposition_1_is_the_term_the_paper_hides() -> None:
    """Of 1367 over 3000 rounds, 929 are 2σ_G² log C₃, not of the order σ_G √log T."""
    law = Geometric(mean=100).params()
    assert law.sigma is not None
    total = theory.missing_prop1(100, 0, law.sigma, 0, horizon=3000, delta=0.05)
    hidden = 2.0 * 2.0 * law.sigma**2 * math.log(2.0 * law.sigma**2 + 1.0)
    assert total == pytest.approx(1367, abs=0.5)
    assert hidden == pytest.approx(929, abs=0.5)


@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-6])
@pytest.mark.parametrize(("mu", "M", "sigma", "q"), [(100, 0, 7.09, 0.0), (3.5, 2.5, 0.4, 1.5)])
def test_proposition_1_is_its_formula(
    mu: float, M: float, sigma: float, q: float, delta: float
) -> None:
    """Equations (6) and (7), written out."""
    L, s, C3, T = math.log(1 / delta), sigma * math.sqrt(2 + q), 2 * sigma**2 + 1, 5000
    bound = theory.missing_prop1(mu, M, sigma, q, delta=delta)
    assert bound == pytest.approx(2 * (mu + M) + s * math.sqrt(2 * L) + 2 * s**2 * math.log(C3) + 1)
    u = s * math.sqrt(2 * math.log(T))
    inner = 2 * L + 2 * math.log(C3) * u + 2 * math.log(C3)
    bound = theory.missing_prop1(mu, M, sigma, q, horizon=T, delta=delta)
    assert bound == pytest.approx(
        2 * (mu + M) + u + 2 * s**2 * math.log(C3) + s * math.sqrt(inner) + 1
    )


def test_the_special_case_is_its_formula() -> None:
    """Equation (10), and the same at δ/T for the maximum, which the paper does not state."""
    law = Exponential(mean=50.5).params()
    assert law.sigma is not None
    mean, sigma = 50.5, law.sigma
    expected = (
        mean + 2 * sigma * math.sqrt(math.log(20)) + 1 + 4 * sigma**2 * math.log(2 * sigma**2)
    )
    assert theory.missing_iid(mean, sigma, delta=0.05) == pytest.approx(expected)
    assert theory.missing_iid(mean, sigma, horizon=100, delta=0.05) == pytest.approx(
        theory.missing_iid(mean, sigma, delta=0.0005)
    )


def test_hoeffding_has_the_number_that_was_computed() -> None:
    """264.4 for half-normal delays of scale 50, whose mean is 40.40."""
    assert theory.missing_hoeffding(40.40, 0, 50, 1, delta=0.05) == pytest.approx(264.4, abs=0.05)
    assert HalfNormal(scale=50).mean == pytest.approx(40.40, abs=0.005)


def test_hoeffding_is_not_weaker_than_proposition_1() -> None:
    """264 against 128,055 for these delays: the paper's comparison is the wrong way round."""
    law = HalfNormal(scale=50).params()
    assert law.mu is not None
    numbers = (law.mu, 0.0, 50.0, 1.0)
    assert theory.missing_prop1(*numbers, delta=0.05) == pytest.approx(128_055, abs=0.5)
    assert theory.missing_hoeffding(*numbers, delta=0.05) < 265


@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0, 100.0, 2500.0])
@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
def test_hoeffding_is_below_proposition_1_for_tails_well_below_exponential(
    q: float, variance: float
) -> None:
    """For q ≥ 1/2 always; for q = 1/4 it is the other way round from σ² = 10 on."""
    sigma = math.sqrt(variance)
    hoeffding = theory.missing_hoeffding(10, 0, sigma, q, delta=0.05)
    assert hoeffding < theory.missing_prop1(10, 0, sigma, q, delta=0.05)
    hoeffding = theory.missing_hoeffding(10, 0, sigma, 0.25, delta=0.05)
    prop1 = theory.missing_prop1(10, 0, sigma, 0.25, delta=0.05)
    assert (prop1 < hoeffding) == (variance >= 10)


def test_hoeffding_is_its_formula_with_twice_the_variance() -> None:
    """I has 2σ², as the definition has it, not σ² as the text of the proof."""
    sigma, q, L, T = 3.0, 0.6, math.log(20), 1000
    first = max((2 * math.log(2) * 9) ** (1 / 1.6), (2 * 9 / 1.6) ** (1 / 0.6) + 1)
    s = math.sqrt(first / 4 + 9 * 1.6 / 0.6)
    bound = theory.missing_hoeffding(12, 1, sigma, q, delta=0.05)
    assert bound == pytest.approx(26 + s * math.sqrt(2 * L))
    bound = theory.missing_hoeffding(12, 1, sigma, q, horizon=T, delta=0.05)
    assert bound == pytest.approx(26 + s * math.sqrt(2 * L) + s * math.sqrt(2 * math.log(T)))


def test_hoeffding_is_infinite_where_no_float_holds_it() -> None:
    """For q close to 0 the number explodes: infinity is still a bound, and no error."""
    assert theory.missing_hoeffding(10, 0, 5, 1e-4, delta=0.05) == math.inf


def test_the_bound_for_chains_has_the_number_that_was_computed() -> None:
    """68.917 for a mean of 20 and λ = 1/2."""
    assert theory.missing_markov(20, 0.5, delta=0.05) == pytest.approx(68.917, abs=5e-4)


def test_the_bound_for_chains_is_its_formula() -> None:
    """Equations (21) and (22), A₂ jumping at λ = 0, and the root of (24) if asked for."""
    L = math.log(20)
    assert theory.missing_markov(20, 0, delta=0.05) == pytest.approx(
        20 + L / 3 + math.sqrt(2 * 20 * L)
    )
    assert theory.missing_markov(20, 0.9, delta=0.05) == pytest.approx(
        20 + 50 * L + math.sqrt(2 * 19 * 20 * L)
    )
    bound = theory.missing_markov(20, 0.9, delta=0.05, conservative=True)
    assert bound == pytest.approx(20 + 50 * L + math.sqrt((50 * L) ** 2 + 2 * 19 * 20 * L))
    for conservative in (False, True):
        assert theory.missing_markov(
            20, 0.9, horizon=500, delta=0.05, conservative=conservative
        ) == pytest.approx(theory.missing_markov(20, 0.9, delta=0.0001, conservative=conservative))


@pytest.mark.parametrize("spectral", [0.0, 0.3, 0.95])
def test_the_conservative_bound_solves_the_inequality_it_is_made_from(spectral: float) -> None:
    """exp(-x²/(2(A₁μ + A₂x))) is δ at it: what (24) gives without the moments behind it."""
    x = theory.missing_markov(20, spectral, delta=0.05, conservative=True) - 20
    a1 = (1 + spectral) / (1 - spectral)
    a2 = 5 / (1 - spectral) if spectral else 1 / 3
    assert math.exp(-(x**2) / (2 * (a1 * 20 + a2 * x))) == pytest.approx(0.05)
    assert theory.missing_markov(20, spectral, delta=0.05) < x + 20


def test_the_bound_for_any_dependence_is_its_formula() -> None:
    """Equations (26) and (27), with C₄ and the zeta function."""
    law, L, T = Uniform(10).params(), math.log(20), 3000
    assert law.sigma_r == 25.0
    s, C4 = 25 * float(zeta(2.0)), 2 * 25**2 + 1
    round_bound = 5 + s * math.sqrt(2 * (L + math.log(C4)))
    assert theory.missing_random(5, 25, 1, delta=0.05) == pytest.approx(round_bound)
    assert theory.missing_random(5, 25, 1, horizon=T, delta=0.05) == pytest.approx(
        round_bound + s * math.sqrt(2 * math.log(T))
    )


def test_the_bound_for_any_dependence_rounds_the_mean_up() -> None:
    """With μ as it is it would fail: one reward is missing in 99 of 100 rounds, and μ = .99."""
    law = Empirical([0] + [1] * 99).params()
    assert law.mu is not None
    assert law.mu == pytest.approx(0.99)
    assert law.sigma_r is not None
    assert law.q_r is not None
    slack = theory.missing_random(law.mu, law.sigma_r, law.q_r, delta=0.05) - 1.0
    assert law.mu + slack < 1.0 <= 1.0 + slack


def test_a_bound_on_delays_bounds_what_is_missing() -> None:
    """The bound itself, in one round and in all."""
    assert theory.missing_bounded(100) == theory.missing_bounded(100) == 100.0
    assert theory.missing_bounded(0) == 0.0


@pytest.mark.parametrize(("name", "numbers"), BOUNDS)
def test_a_bound_grows_as_it_may_fail_less_often(name: str, numbers: tuple[float, ...]) -> None:
    """In one round and in all of them; for all δ and horizons the maximum is no less."""
    deltas = [0.9, 0.5, 0.05, 1e-3, 1e-9]
    values = [one(name)(*numbers, delta=delta) for delta in deltas]
    assert values == sorted(values)
    for horizon in (1, 2, 1000, 10**9):
        maxima = [maximum(name)(*numbers, horizon=horizon, delta=delta) for delta in deltas]
        assert maxima == sorted(maxima)
        assert all(m >= v for m, v in zip(maxima, values, strict=True))


@pytest.mark.parametrize(("name", "numbers"), BOUNDS)
def test_a_maximum_grows_with_the_horizon(name: str, numbers: tuple[float, ...]) -> None:
    """From one round to 10⁹."""
    horizons = [1, 2, 10, 1000, 10**6, 10**9]
    maxima = [maximum(name)(*numbers, horizon=horizon, delta=0.05) for horizon in horizons]
    assert maxima == sorted(maxima)


@pytest.mark.parametrize("name", ["prop1", "hoeffding"])
def test_longer_and_wilder_delays_leave_more_missing(name: str) -> None:
    """The bounds for independent delays grow with μ, M and σ."""
    for mu, M, sigma in itertools.product([0.0, 10.0], [0.0, 3.0], [0.8, 6.0]):
        bound = one(name)(mu, M, sigma, 1.0, delta=0.05)
        assert one(name)(mu + 1.0, M, sigma, 1.0, delta=0.05) == pytest.approx(bound + 2.0)
        assert one(name)(mu, M + 1.0, sigma, 1.0, delta=0.05) == pytest.approx(bound + 2.0)
        assert one(name)(mu, M, sigma + 1.0, 1.0, delta=0.05) > bound


def test_slower_chains_leave_more_missing() -> None:
    """The bound for chains grows with λ, and without end as it comes to 1."""
    values = [theory.missing_markov(20, s, delta=0.05) for s in (0.0, 0.1, 0.5, 0.9, 0.999999)]
    assert values == sorted(values)
    assert values[-1] > 1e6


@pytest.mark.parametrize(
    ("name", "numbers", "said"),
    [
        ("prop1", (-1.0, 0.0, 1.0, 0.0), "`mu` must be a finite number of at least 0"),
        ("prop1", (math.inf, 0.0, 1.0, 0.0), "`mu` must be .*got inf"),
        ("prop1", (1.0, math.nan, 1.0, 0.0), "`M` must be .*got nan"),
        ("prop1", (1.0, 0.0, "7", 0.0), "`sigma` must be .*got '7'"),
        ("prop1", (1.0, 0.0, 1.0, -0.5), "`q` must be .*got -0.5"),
        ("iid", (1.0, -2.0), "`sigma` must be .*got -2.0"),
        ("iid", (None, 2.0), "`mu` must be .*got None"),
        ("hoeffding", (1.0, 0.0, 1.0, 0.0), "`q` must be a finite number above 0"),
        ("markov", (1.0, 1.0), "`spectral` must be .*missing_union"),
        ("markov", (1.0, -0.1), "`spectral` must be .*got -0.1"),
        ("markov", (1.0, math.nan), "`spectral` must be .*got nan"),
        ("random", (1.0, 1.0, 0.0), "`q_r` must be .*got 0.0"),
        ("random", (1.0, -1.0, 1.0), "`sigma_r` must be .*got -1.0"),
    ],
)
def test_what_no_delay_has_is_refused_by_name(name: str, numbers: Any, said: str) -> None:
    """The error says which number it was and what was expected, in both forms of the bound."""
    with pytest.raises(InvalidInput, match=said):
        one(name)(*numbers, delta=0.05)
    with pytest.raises(InvalidInput, match=said):
        maximum(name)(*numbers, horizon=10, delta=0.05)


@pytest.mark.parametrize(("name", "numbers"), BOUNDS)
@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 5, math.nan, "0.05", None])
def test_a_level_is_a_probability(name: str, numbers: tuple[float, ...], delta: Any) -> None:
    """Neither 0 nor 1, and no text."""
    with pytest.raises(InvalidInput, match="`delta` must be a probability between 0 and 1"):
        one(name)(*numbers, delta=delta)
    with pytest.raises(InvalidInput, match="`delta` must be a probability between 0 and 1"):
        maximum(name)(*numbers, horizon=10, delta=delta)


@pytest.mark.parametrize(("name", "numbers"), BOUNDS)
@pytest.mark.parametrize("horizon", [0, -3, 10.5, True, "10"])
def test_a_horizon_is_a_number_of_rounds(
    name: str, numbers: tuple[float, ...], horizon: Any
) -> None:
    """Whole, and at least one."""
    with pytest.raises(InvalidInput, match="`horizon` must be a whole number from 1"):
        maximum(name)(*numbers, horizon=horizon, delta=0.05)


@pytest.mark.parametrize("bound", [-1, 2.5, None, math.inf])
def test_the_longest_delay_is_a_number_of_rounds(bound: Any) -> None:
    """Whole, and at least 0."""
    with pytest.raises(InvalidInput, match="`bound` must be"):
        theory.missing_bounded(bound)
    with pytest.raises(InvalidInput, match="`bound` must be"):
        theory.missing_bounded(bound)
