"""Simulated delays against their exact laws, within five standard errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from belated.delays import (
    NEVER,
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
    Mixture,
    RegimeSwitch,
    Uniform,
    Weibull,
    expected_missing,
)
from tests.missing import outstanding

#: Laws whose delays have a finite fourth moment, so that a sample mean has a normal error.
LIGHT: list[Law] = [
    Uniform(100),
    Geometric(mean=5),
    Geometric(mean=100),
    Exponential(mean=50),
    Weibull(shape=0.6, scale=20),
    Weibull(shape=1.5, scale=40),
    Weibull(shape=4, scale=40),
    HalfNormal(scale=20),
    Lognormal(median=30, sigma=0.5),
    Empirical([0, 0, 3, 50]),
]
HEAVY: list[Law] = [
    Lognormal(median=30, sigma=1.5),
    Lomax(shape=1.2, scale=100),
    Lomax(shape=0.8, scale=20),
    Mixture(never=0.3, base=Geometric(mean=100)),
]
SWITCH = [[0.99, 0.01], [0.03, 0.97]]
DEPENDENT: list[DelayProcess] = [
    LazyMarkov(0.5, base=Geometric(mean=20)),
    LazyMarkov(0.95, base=Lomax(shape=1.2, scale=100)),
    RegimeSwitch(SWITCH, laws=[Geometric(mean=5), Geometric(mean=50)]),
    FiniteChain([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.7, 0.1, 0.2]], values=[40, 0, 7]),
    BlockDependent(Weibull(shape=4, scale=40), length=30),
]


def shown(process: object) -> str:
    """What a process prints, in one line."""
    return " ".join(repr(process).split())


def errors(hits: NDArray[np.bool], p: float) -> float:
    """How many standard errors a share of independent hits lies from its probability."""
    scale = math.sqrt(p * (1.0 - p) / hits.size)
    gap = abs(float(hits.mean()) - p)
    if scale == 0.0:
        return math.inf if gap > 0.0 else 0.0
    return gap / scale


@pytest.mark.parametrize("law", [*LIGHT, *HEAVY], ids=shown)
def test_samples_have_the_tail_of_their_law(law: Law, full: bool) -> None:
    """P(D ≥ i) at delays from the least to the rare, heavy tails among them."""
    delays = law.sample(2_000_000 if full else 200_000, np.random.default_rng(11))
    for i in [1, 2, 3, 5, 10, 20, 40, 70, 100, 200, 500, 2000, 10_000]:
        tail = float(law.tail(i))
        if tail * delays.size >= 20:
            assert errors(delays >= i, tail) < 5.0
        else:
            assert (delays >= i).sum() < 80


@pytest.mark.parametrize("law", LIGHT, ids=shown)
def test_samples_have_the_mean_of_their_law(law: Law, full: bool) -> None:
    """Within five standard errors, where the variance is finite."""
    delays = law.sample(2_000_000 if full else 200_000, np.random.default_rng(12))
    error = delays.std() / math.sqrt(delays.size)
    assert abs(delays.mean() - law.mean) < 5.0 * error


def test_a_mixture_loses_its_share_at_random() -> None:
    """30 % never come, and the rest have the mean of the base."""
    delays = Mixture(never=0.3, base=Geometric(mean=100)).sample(200_000, np.random.default_rng(13))
    lost = delays == NEVER
    assert errors(lost, 0.3) < 5.0
    arrived = delays[~lost]
    assert abs(arrived.mean() - 100.0) < 5.0 * 100.5 / math.sqrt(arrived.size)
    assert errors(lost[1:] & lost[:-1], 0.09) < 6.0  # pairs overlap: a little more than 5


@pytest.mark.parametrize("process", DEPENDENT, ids=shown)
def test_every_round_of_a_dependent_process_has_its_marginal_law(
    process: DelayProcess, full: bool
) -> None:
    """Over independent runs, in the first round and in later ones: it is stationary."""
    n = 20_000 if full else 4_000
    rng = np.random.default_rng(14)
    runs = np.array([process.sample(45, rng) for _ in range(n)])
    for t in (0, 1, 29, 30, 44):
        for i in (1, 5, 8, 20, 41):
            assert errors(runs[:, t] >= i, float(process.tail(i))) < 5.0


def test_a_lazy_chain_forgets_at_the_rate_rho() -> None:
    """The correlation of delays k rounds apart is ρ^k: within five standard errors."""
    rho, base = 0.8, Uniform(100)
    rng = np.random.default_rng(15)
    runs = np.array([LazyMarkov(rho, base=base).sample(11, rng) for _ in range(10_000)])
    for k in (1, 2, 5, 10):
        correlation = np.corrcoef(runs[:, 0], runs[:, k])[0, 1]
        assert abs(correlation - rho**k) < 5.0 / math.sqrt(10_000)


def test_regimes_change_as_the_matrix_says(full: bool) -> None:
    """The share of each step, among the rounds in which its regime was left, is its probability."""
    matrix = np.array([[0.90, 0.10, 0.0], [0.05, 0.75, 0.20], [0.30, 0.0, 0.70]])
    process = RegimeSwitch(matrix, laws=[Constant(0), Constant(1), Constant(2)])
    regimes = process.sample(1_000_000 if full else 100_000, np.random.default_rng(16))
    for r in range(3):
        successors = regimes[1:][regimes[:-1] == r]
        for s in range(3):
            assert errors(successors == s, float(matrix[r, s])) < 5.0


def test_blocks_are_independent_of_one_another() -> None:
    """Delays within a block are the same; those of neighbouring blocks do not correlate."""
    runs = BlockDependent(Uniform(100), length=10).sample(200_000, np.random.default_rng(17))
    blocks = runs.reshape(-1, 10)
    assert (blocks == blocks[:, :1]).all()
    correlation = np.corrcoef(blocks[1:, 0], blocks[:-1, 0])[0, 1]
    assert abs(correlation) < 5.0 / math.sqrt(len(blocks))


@pytest.mark.parametrize(
    "process",
    [Geometric(mean=100), Exponential(mean=50), Lomax(shape=0.8, scale=20), *DEPENDENT],
    ids=shown,
)
def test_the_number_outstanding_has_the_mean_of_its_sum(process: DelayProcess, full: bool) -> None:
    """E G_t = m_t in the first rounds and in the last, for independent and dependent delays."""
    n, horizon = (4000 if full else 800), 1500
    rng = np.random.default_rng(18)
    missing = np.array([outstanding(process.sample(horizon, rng)) for _ in range(n)])
    for t in (2, 30, 100, horizon):
        values = missing[:, t - 1]
        error = values.std() / math.sqrt(n)
        expected = float(expected_missing(process, t))
        assert abs(values.mean() - expected) <= 5.0 * error + 1e-9


def test_geometric_delays_leave_their_mean_outstanding(full: bool) -> None:
    """In the long run E G_t is μ = 100: over one long run, with the error of its blocks."""
    horizon = 4_000_000 if full else 400_000
    missing = outstanding(Geometric(mean=100).sample(horizon, np.random.default_rng(19)))
    blocks = missing[10_000:].reshape(-1, 10_000).mean(axis=1)
    error = blocks.std(ddof=1) / math.sqrt(len(blocks))
    assert error < 1.0
    assert abs(blocks.mean() - 100.0) < 5.0 * error


def test_midnight_leaves_half_a_period_outstanding_on_average() -> None:
    """The average of G_t over whole periods is (P - 1)/2, and the largest P - 1."""
    process = Batched(1000)
    missing = outstanding(process.sample(10_000, np.random.default_rng()))
    assert missing.mean() == process.mean == 499.5
    assert missing.max() == process.params().bound == 999
