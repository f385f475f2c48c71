"""What delays promise: the parameters of the paper's assumptions, and Markov chains."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from belated.delays import (
    Batched,
    BlockDependent,
    Constant,
    DelayProcess,
    Empirical,
    Exponential,
    FiniteChain,
    Geometric,
    HalfNormal,
    Law,
    LazyMarkov,
    Lognormal,
    Lomax,
    Parameters,
    RegimeSwitch,
    Uniform,
    Weibull,
)
from tests.unit.delay_processes import CYCLE, PROCESSES, SWITCH, min_sigma, rng, shown


def atoms_above(process: DelayProcess) -> NDArray[np.float64]:
    """The delays above the mean whose tail is still a normal float."""
    i = np.arange(math.floor(process.mean) + 1.0, 200_000.0)
    return i[process.tail(i) > 1e-300]


def last_above(process: DelayProcess, floor: float) -> int:
    """The largest delay with at least this tail."""
    return int((process.tail(np.arange(1, 100_000)) > floor).sum())


# --- the parameters of the paper's assumptions


@pytest.mark.parametrize(
    ("law", "twice_square", "q"),
    [
        (Geometric(mean=5), 5.485, 0.0),
        (Geometric(mean=100), 100.5, 0.0),
        (Exponential(mean=1.0 / (1.0 - math.exp(-1.0 / 50.0))), 50.0, 0.0),
        (Weibull(shape=1, scale=40), 40.0, 0.0),
        (Weibull(shape=1.5, scale=40), 252.98, 0.5),
        (Weibull(shape=2, scale=40), 1600.0, 1.0),
        (Weibull(shape=3, scale=40), 64_000.0, 2.0),
        (HalfNormal(scale=20), 800.0, 1.0),
        (Uniform(100), 5000.0, 1.0),
        (Constant(9), 0.0, 1.0),
    ],
    ids=shown,
)
def test_independent_laws_have_the_closed_form_of_assumption_2(
    law: Law, twice_square: float, q: float
) -> None:
    """2σ² and q of the specification, M = 0, and λ = 0."""
    params = law.params()
    assert params.sigma is not None
    assert 2.0 * params.sigma**2 == pytest.approx(twice_square, rel=1e-4)
    assert (params.q, params.M, params.spectral) == (q, 0.0, 0.0)
    assert params.mu == law.mean


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_the_tail_keeps_to_the_parameters(process: DelayProcess) -> None:
    """Assumptions 2 and 4 hold at every delay above the mean, and no delay exceeds the bound."""
    p = process.params()
    assert (p.sigma is None) == (p.q is None)
    assert (p.sigma_r is None) == (p.q_r is None)
    assert p.sigma is None or process.independent
    if p.mu is None:
        assert p == Parameters(spectral=p.spectral)
        return
    i = atoms_above(process)
    x, fall = i - p.mu, -np.log(process.tail(i))
    if p.sigma is not None and p.q is not None:
        assert (x ** (1.0 + p.q) <= 2.0 * p.sigma**2 * fall * (1.0 + 1e-9)).all()
    if p.sigma_r is not None and p.q_r is not None:
        assert p.q_r > 0.0
        assert (x ** (2.0 * (1.0 + p.q_r)) <= 2.0 * p.sigma_r**2 * fall * (1.0 + 1e-9)).all()


@pytest.mark.parametrize(
    ("law", "least"),
    [
        (Geometric(mean=5), 5.476),
        (Weibull(shape=1.5, scale=40), 248.1),
        (Weibull(shape=2, scale=40), 1485.5),
        (Weibull(shape=3, scale=40), 45_717.0),
        (HalfNormal(scale=20), 2.0 * 19.479**2),
    ],
    ids=shown,
)
def test_the_closed_form_is_the_limit_of_the_least_sigma(law: Law, least: float) -> None:
    """Up to a tail of 1e-250 the least 2σ² is below it; it rises towards it with every delay."""
    params = law.params()
    assert params.sigma is not None
    assert params.q is not None
    sigmas = [
        min_sigma(law.tail, law.mean, params.q, last_above(law, floor))
        for floor in (1e-100, 1e-200, 1e-250, 1e-300)
    ]
    assert 2.0 * sigmas[2] ** 2 == pytest.approx(least, rel=1e-4)
    assert sigmas == sorted(sigmas)
    assert sigmas[-1] < params.sigma
    gaps = [params.sigma - sigma for sigma in sigmas]
    assert gaps[-1] < 0.75 * gaps[0]


@pytest.mark.parametrize(
    ("law", "growth"),
    [
        (Lognormal(median=30, sigma=1.5), [195.8, 1007.9, 5788.1]),
        (Lomax(shape=1.5, scale=50), [197.2, 1244.6, 8761.6]),
    ],
    ids=shown,
)
def test_a_heavy_tail_has_no_sigma(law: Law, growth: list[float]) -> None:
    """The least 2σ² for q = 0 grows with the range, so Assumption 2 fails for every σ."""
    for horizon, expected in zip([10**3, 10**4, 10**5], growth, strict=True):
        least = 2.0 * min_sigma(law.tail, law.mean, 0.0, horizon) ** 2
        assert least == pytest.approx(expected, rel=1e-3)
    params = law.params()
    assert (params.sigma, params.q, params.sigma_r, params.q_r) == (None, None, None, None)
    assert params.mu == law.mean


def test_a_stretched_exponential_has_no_sigma() -> None:
    """A Weibull shape below 1 is heavier than an exponential; at 2 Assumption 4 still fails."""
    assert Weibull(shape=0.99, scale=40).params().sigma is None
    assert Weibull(shape=2.0, scale=40).params().sigma_r is None
    params = Weibull(shape=4, scale=40).params()
    assert params.sigma_r is not None
    assert 2.0 * params.sigma_r**2 == pytest.approx(40.0**4)
    assert params.q_r == 1.0


def test_the_least_sigma_is_the_least() -> None:
    """For delays uniform up to 100 it is 19.1; a smaller one breaks Assumption 2 somewhere."""
    law = Uniform(100)
    sigma = min_sigma(law.tail, 50.0, 1.0, 100)
    assert sigma == pytest.approx(19.0992, abs=1e-4)
    discrete = min_sigma(Uniform(4).tail, 2.0, 1.0, 4)  # at 4, with a tail of 1/5
    assert discrete == pytest.approx(math.sqrt(2.0 / math.log(5.0)))
    i = np.arange(51, 101)
    for factor, is_bound in [(1.0 + 1e-9, True), (1.0 - 1e-4, False)]:
        bound = np.exp(-((i - 50.0) ** 2) / (2.0 * (factor * sigma) ** 2))
        assert (law.tail(i) <= bound).all() == is_bound


def test_the_least_sigma_of_samples_is_exact() -> None:
    """It is found at the samples alone, and is that of all whole numbers up to the largest."""
    law = Empirical([0, 0, 1, 3, 3, 20, 50])
    params = law.params()
    assert params.bound == 50
    assert params.sigma == pytest.approx(min_sigma(law.tail, law.mean, 1.0, 50), rel=1e-12)
    assert params.sigma_r == pytest.approx(min_sigma(law.tail, law.mean, 3.0, 50), rel=1e-12)
    sigma = Empirical([0, 10**15]).params().sigma
    assert sigma == pytest.approx(math.sqrt(0.5 * (5e14) ** 2 / math.log(2.0)))


def test_the_least_sigma_of_a_constant_is_zero() -> None:
    """No delay is above the mean, even where the mean is a rounding error too small."""
    assert min_sigma(Constant(5).tail, 5.0, 1.0, 100) == 0.0
    assert min_sigma(Constant(5).tail, math.nextafter(5.0, 0.0), 0.0, 100) == 0.0
    assert Empirical([3, 3]).params().sigma == 0.0
    assert FiniteChain([[0.1, 0.9], [0.7, 0.3]], values=[3, 3]).params().sigma_r == 0.0


def test_dependent_delays_do_not_claim_assumption_2() -> None:
    """What they keep of their base is its mean, its bound and Assumption 4."""
    base = Weibull(shape=4, scale=40)
    params = base.params()
    expected = Parameters(mu=params.mu, sigma_r=params.sigma_r, q_r=params.q_r)
    assert BlockDependent(base, length=30).params() == expected
    assert LazyMarkov(0.5, base=base).params() == dataclasses.replace(expected, spectral=0.5)
    assert Batched(100).params() == Parameters(mu=49.5, bound=99)


def test_dependent_delays_can_be_independent() -> None:
    """A chain that never stays and blocks of one round are their base; equal rows forget."""
    base = Geometric(mean=5)
    processes: list[DelayProcess] = [LazyMarkov(0.0, base=base), BlockDependent(base, length=1)]
    for process in processes:
        assert process.independent
        assert process.params() == base.params()
    chain = FiniteChain([[0.2, 0.8], [0.2, 0.8]], values=[10, 0])
    params = Empirical([10, 0, 0, 0, 0]).params()
    assert chain.independent
    for name, value in dataclasses.asdict(params).items():
        assert getattr(chain.params(), name) == pytest.approx(value, abs=1e-12)
    switch = RegimeSwitch([[0.5, 0.5], [0.5, 0.5]], laws=[Uniform(3), Uniform(30)])
    assert switch.independent
    assert (switch.params().sigma, switch.params().M) == (15.0, 0.0)


# --- Markov chains


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_the_spectral_norm_of_a_lazy_chain_is_rho(rho: float) -> None:
    """As that of the explicit chain ρ I + (1 - ρ) 1 πᵀ, here with a geometric π cut at 400."""
    base = Geometric(mean=20)
    i = np.arange(400)
    pi = base.tail(i) - base.tail(i + 1)
    pi /= pi.sum()
    explicit = FiniteChain(rho * np.eye(400) + (1.0 - rho) * pi, values=i)
    assert explicit.params().spectral == pytest.approx(rho, abs=1e-9)
    assert LazyMarkov(rho, base=base).params().spectral == rho
    assert explicit.tail(np.arange(100)) == pytest.approx(base.tail(np.arange(100)), abs=1e-7)


@pytest.mark.parametrize("transition", [SWITCH, CYCLE, [[0.3, 0.7], [0.9, 0.1]]])
def test_the_spectral_norm_of_regimes_is_that_of_regime_and_delay(transition: Any) -> None:
    """As that of the explicit chain of pairs, whatever the laws."""
    laws = [Uniform(4), Constant(9), Uniform(7)][: len(transition)]
    pairs = [
        (r, d) for r, law in enumerate(laws) for d in range(10) if law.tail(d) > law.tail(d + 1)
    ]
    explicit = [
        [transition[r][s] * float(laws[s].tail(d) - laws[s].tail(d + 1)) for s, d in pairs]
        for r, _ in pairs
    ]
    chain = FiniteChain(explicit, values=[d for _, d in pairs])
    process = RegimeSwitch(transition, laws=laws)
    assert process.params().spectral == pytest.approx(chain.params().spectral, abs=1e-12)
    assert process.mean == pytest.approx(chain.mean)
    assert process.tail(range(12)) == pytest.approx(chain.tail(range(12)), abs=1e-12)
    if len(transition) == 2:
        second = abs(transition[0][0] + transition[1][1] - 1.0)
        assert process.params().spectral == pytest.approx(second)


def test_the_spectral_norm_is_of_the_reversed_product() -> None:
    """λ² is the second largest eigenvalue of P P*, P* the chain run backwards."""
    for seed in range(5):
        p = rng(seed).dirichlet(np.ones(6), 6)
        pi = np.linalg.matrix_power(p, 200)[0]
        reverse = p.T * pi / pi[:, None]
        second = np.sort(np.linalg.eigvals(p @ reverse).real)[-2]
        chain = FiniteChain(p, values=range(6))
        assert chain.params().spectral == pytest.approx(math.sqrt(second))
        assert chain.mean == pytest.approx(pi @ np.arange(6))


def test_a_periodic_chain_has_no_spectral_gap() -> None:
    """λ is 1, so Assumption 3 fails."""
    assert FiniteChain([[0.0, 1.0], [1.0, 0.0]], values=[0, 5]).params().spectral is None
    assert FiniteChain(np.roll(np.eye(3), 1, axis=1), values=[0, 5, 6]).params().spectral is None
    assert FiniteChain([[1.0]], values=[5]).params().spectral == 0.0


def test_states_that_are_left_for_good_do_not_count() -> None:
    """A transient state has no share in the mean, the bound or λ, and no run begins in it."""
    p = [[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.2, 0.3, 0.5]]
    chain = FiniteChain(p, values=[1, 10, 1000])
    assert chain.mean == pytest.approx(3.25)
    assert chain.params().bound == 10
    assert chain.params().spectral == pytest.approx(0.6)
    assert chain.sample(10_000, rng()).max() == 10
    laws = [Constant(1), Constant(10), Lomax(shape=0.5, scale=1)]
    switch = RegimeSwitch(p, laws=laws)
    assert switch.mean == pytest.approx(3.25)
    assert switch.params().bound == 10


def test_small_shares_of_a_chain_are_accurate() -> None:
    """A birth and death chain with ratio 1e-3: the share of state k is 1e-3^k (1 - 1e-3)."""
    n = 30
    p = np.zeros((n, n))
    for k in range(n - 1):
        p[k, k + 1], p[k + 1, k] = 5e-4, 0.5
    p += np.diag(1.0 - p.sum(axis=1))
    chain = FiniteChain(p, values=range(n))
    states = np.arange(n)
    expected = (1e-3**states - 1e-3**n) / (1.0 - 1e-3**n)
    assert chain.tail(states) == pytest.approx(expected, rel=1e-9)
