"""Where the paper errs on Algorithms 2 and 3 and Theorem 2."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from belated import Bernoulli, Gaussian, Poisson, delays, paper_dts_lcb, simulate, theory
from belated.core.inputs import Matrix
from belated.delays import Constant, Geometric
from belated.exceptions import InvalidInput
from belated.model.estimators import Laplace
from belated.model.families import Family
from belated.model.priors import Prior
from belated.model.statistics import Observations
from belated.simulation.environments import GLM
from belated.theory import Setting
from tests.missing import outstanding

DELTA, LOG = 0.05, math.log(20)


def rounds(delay: NDArray[np.int64]) -> NDArray[np.int64]:
    """1 to T."""
    return np.arange(1, len(delay) + 1)


def batch(world: GLM, actions: NDArray[np.int64], rows: NDArray[np.bool_]) -> Matrix:
    """Σ x xᵀ over these rounds."""
    assert not isinstance(world.contexts, str)
    X = world.contexts[actions[rows]]
    return np.asarray(X.T @ X)


def test_the_posterior_after_the_warm_up_drops_nothing() -> None:
    """Line 7 of Algorithm 2 multiplies by the rewards of round τ alone: I_τ, not F_τ.

    Of the rewards that arrived in 50 rounds, 97 % are lost; the library has all of them.
    """
    world, lost, arrived = GLM(np.array([0.5, -0.2]), 2, np.eye(2), family=Gaussian(0.25)), 0, 0
    for seed in range(20):
        policy = paper_dts_lcb(2, noise=0.5, a=2.0, warmup=50)
        trace = simulate(policy, world, Geometric(mean=15), horizon=51, seed=seed)
        arrival = rounds(trace.delay) + trace.delay
        due, last = arrival <= 50, arrival == 50
        arrived, lost = arrived + int(due.sum()), lost + int((due & ~last).sum())
        B = 2.0 * np.eye(2) + batch(world, trace.actions, due)
        root = trace.learner.model.observed
        np.testing.assert_allclose(root @ root.T, 0.25 * np.linalg.inv(B), atol=1e-12)
        printed = 2.0 * np.eye(2) + batch(world, trace.actions, last)
        assert np.trace(np.linalg.inv(printed)) > 5.0 * np.trace(np.linalg.inv(B))
    assert lost / arrived == pytest.approx(0.97, abs=0.01)


def test_posterior_cannot_use_the_reward_of_its_own_round() -> None:
    """Line 16 of Algorithm 2 makes Q_{t+1} of I_{t+τ+1}, and draws from it in round t + τ + 1.

    I_u comes at the end of round u. Without delay it is the reward of the choice that is about to
    be made; and I_{τ+1} is never used. The library has the rounds s + D_s ≤ u - 1.
    """
    tau, u = 10, 20
    arrival = np.arange(1, u + 1)  # s + D_s with D = 0
    used = {tau, *range(tau + 2, u + 1)}  # I_τ for Q_1, then I_{t+τ+1} up to round u
    printed = [s for s in range(1, u + 1) if int(arrival[s - 1]) in used]
    assert u in printed
    assert tau + 1 not in printed
    policy = paper_dts_lcb(2, warmup=tau)
    world = GLM(np.array([0.5, -0.2]), 2, np.eye(2), family=Gaussian())
    trace = simulate(policy, world, Constant(0), horizon=u)
    assert trace.learner.model.n == u - 1 == (arrival <= u - 1).sum()


@pytest.mark.parametrize(
    ("law", "share"),
    [(delays.Batched(25), 1.0), (Geometric(mean=5), 0.36), (Geometric(mean=100), 0.35)],
    ids=["batches", "geo5", "geo100"],
)
def test_reward_is_kept_if_the_next_round_has_none(law: delays.DelayProcess, share: float) -> None:
    """Algorithm 3 looks whether I_{t+τ+1} is empty (line 13), and adds I_{t+τ} (line 17).

    A third of the rewards is lost under geometric delays, and all of them in batches.
    """
    T, tau = 1000, 50
    delay = law.sample(T, np.random.default_rng(0))
    arrival = rounds(delay) + delay
    arrivals = np.bincount(arrival[arrival <= T + 1], minlength=T + 2)
    used = sum(arrivals[u] for u in range(tau + 1, T + 1) if arrivals[u + 1] > 0)
    total = arrivals[tau + 1 : T + 1].sum()
    assert 1.0 - used / total == pytest.approx(share, abs=0.02)
    world = GLM(np.array([0.5, -0.2]), 2, np.eye(2), family=Gaussian())
    trace = simulate(paper_dts_lcb(2, warmup=tau), world, law, horizon=T)
    assert trace.learner.model.n == T - 1 - trace.pending[-1]


def test_the_prior_stays_in_the_posterior() -> None:
    """Line 7 of Algorithm 3 has B₁ = Σ x xᵀ without a I, which cannot be inverted for few rewards.

    And a = 0 is allowed, which is no prior. The library has B = a I + Σ x xᵀ with a > 0.
    """
    X = np.random.default_rng(0).normal(size=(3, 5))
    assert np.linalg.matrix_rank(X.T @ X) == 3 < 5
    with pytest.raises(InvalidInput, match=r"`a` must be .*got 0\.0"):
        paper_dts_lcb(5, a=0.0)
    world = GLM(np.zeros(5), 3, X / 4.0, family=Gaussian())
    trace = simulate(paper_dts_lcb(5, a=0.5), world, Constant(0), horizon=4)
    root = trace.learner.model.observed
    assert np.linalg.eigvalsh(np.linalg.inv(root @ root.T))[0] == pytest.approx(0.5)


def test_the_printed_rule_of_bayes_learns_nothing() -> None:
    """Its denominator has P(y|θ) for P(y|θ'): the likelihood cancels, and the prior is left.

    With the right one the mode is the estimate of the library.
    """
    theta = np.linspace(-8.0, 8.0, 4001)
    prior = norm.pdf(theta)
    likelihood = Bernoulli().mean(theta) ** 2 * (1.0 - Bernoulli().mean(theta))
    step = theta[1] - theta[0]
    printed = likelihood * prior / (likelihood * prior.sum() * step)
    np.testing.assert_allclose(printed, prior, rtol=1e-6)
    posterior = likelihood * prior / ((likelihood * prior).sum() * step)
    observations = Observations(1)
    observations.extend([[1.0]] * 3, [1.0, 1.0, 0.0])
    mode = Laplace().fit(observations, family=Bernoulli(), prior=Prior.ridge(1)).theta
    assert theta[np.argmax(posterior)] == pytest.approx(float(mode[0]), abs=step)
    assert mode[0] > 0.2


@pytest.mark.parametrize(
    ("family", "size"), [(Gaussian(), 3), (Bernoulli(), 12), (Poisson(), 12)], ids=str
)
def test_a_regression_has_no_small_conjugate_prior(family: Family, size: int) -> None:
    """Section 4 has a conjugate prior for every family: true of one mean, and not of rows.

    The log-likelihood of rows x is made of the functions θ → m(xᵀθ). For Gaussian rewards all of
    them lie in a space of d(d + 1)/2 = 3 dimensions; for others 12 rows span 12.
    """
    rng = np.random.default_rng(0)
    z = rng.normal(size=(12, 2)) @ (3.0 * rng.normal(size=(2, 200)))
    m, _, _ = family.cumulant_mean_slope(z)
    singular = np.linalg.svd(m, compute_uv=False)
    assert (singular > 1e-12 * singular[0]).sum() == size


def test_gaussian_prior_has_no_kappa() -> None:
    """Theorem 2 takes κ around θ*, which the prior draws: it must hold on its whole support.

    For a logistic mean and a Gaussian prior it is 0, and the bound is infinite.
    """
    regrets = []
    for norm_bound in (1.0, 10.0, 100.0):
        setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=norm_bound)
        regrets.append(theory.regret_bayes(setting, missing=0, warmup=0) / setting.horizon)
    assert regrets[0] < 0.05
    assert regrets[1] > 100.0
    assert regrets[2] > 1e40
    with pytest.raises(InvalidInput, match=r"`kappa` must be .*got 0\.0"):
        Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1000.0)


def test_printed_inequality_of_jensen_is_false() -> None:
    """The proof of Theorem 2 has E √G* ≤ √(E √G*): 10.9 against 3.3 for a delay of mean 100.

    Jensen's inequality gives √(E G*), which is 10.9.
    """
    law = Geometric(mean=100)
    peaks = [outstanding(law.sample(3000, np.random.default_rng(i))).max() for i in range(50)]
    average = np.sqrt(peaks).mean()
    assert average == pytest.approx(10.9, abs=0.05)
    assert math.sqrt(average) == pytest.approx(3.3, abs=0.05)
    assert average <= math.sqrt(np.mean(peaks)) < 1.01 * average


def test_the_two_sides_of_a_confidence_set_add_up() -> None:
    """The proof of Theorem 2 subtracts ⟨θ̂ - θᴸ, x⟩ from ⟨θᵁ - θ̂, x⟩: 0 for every ball around θ̂.

    The width of the set is their sum.
    """
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, centre, radius = rng.normal(size=3), rng.normal(size=3), 1.0 + rng.random()
        upper, lower = (centre + sign * radius * x / np.linalg.norm(x) for sign in (1, -1))
        width = (upper - lower) @ x
        assert (upper - centre) @ x - (centre - lower) @ x == pytest.approx(0.0, abs=1e-12)
        assert (upper - centre) @ x + (centre - lower) @ x == pytest.approx(width)
        assert width > 0.1


def test_ball_in_w_is_not_a_ball_in_v() -> None:
    """The proof of Theorem 2 takes θ from a ball in W and measures it in V.

    With W = I and 400 equal rows out, a θ on its rim is 63 away in V, where β has 23. Once λ_min(W)
    has reached the threshold no θ of the ball is further away than β.
    """
    d, missing, sigma, kappa = 2, 400, 0.5, 0.3
    for target in (1.0, theory.threshold(d, delta=DELTA, sigma=sigma, kappa=kappa)):
        n = 2 * math.ceil(target)
        width = theory.width_paper(n, 0, d, delta=DELTA, sigma=sigma, kappa=kappa)
        rim = width / math.sqrt(target)  # along the pending row
        distance = rim * math.sqrt(target + missing)
        beta = theory.width_paper(n, missing, d, delta=DELTA, sigma=sigma, kappa=kappa)
        assert (distance > 2.5 * beta) if target == 1.0 else (distance <= beta)
