"""The paper's algorithms against others written from its pages, decision by decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from belated import (
    Bernoulli,
    Gaussian,
    Poisson,
    delays,
    environments,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
    simulate,
)
from belated.core.inputs import Matrix, Vector
from belated.delays import DelayProcess
from belated.fold.learner import Learner
from belated.model.families import Family
from belated.model.model import Model
from belated.policies import Choice, Policy, Warmup
from belated.simulation import Trace
from belated.simulation.environments import GLM

DELAYS: dict[str, DelayProcess] = {
    "at-once": delays.Constant(0),
    "geometric": delays.Geometric(mean=15),
    "batches": delays.Batched(25),
}
every_delay = pytest.mark.parametrize("law", DELAYS.values(), ids=DELAYS)

# --- from the pages of the paper ---------------------------------------------------------------


@dataclass
class Link:
    """A reward's mean and variance given z, its spread and how it is drawn."""

    mean: Callable[[Vector], Vector]
    slope: Callable[[Vector], Vector]
    sigma: float
    variance: float = 1.0


def logistic(z: Vector) -> Vector:
    """1/(1 + e^-z)."""
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


LINKS: dict[str, tuple[Family, Link]] = {
    "logistic": (Bernoulli(), Link(logistic, lambda z: logistic(z) * logistic(-z), 0.5)),
    "linear": (Gaussian(0.04), Link(lambda z: z, np.ones_like, 0.2, 0.04)),
    "counts": (Poisson(), Link(np.exp, np.exp, math.exp(0.5 * 1.5))),
}


def maximum(link: Link, X: Matrix, y: Vector, start: Vector, ridge: float = 0.0) -> Vector:
    """The maximum of the likelihood, or of the posterior under N(0, I/ridge), by Newton."""
    theta = start.copy()
    for _ in range(100):
        z = X @ theta
        score = X.T @ (y - link.mean(z)) / link.variance - ridge * theta
        hessian = (X.T * link.slope(z)) @ X / link.variance + ridge * np.eye(len(theta))
        step = np.linalg.solve(hessian, score)
        theta += step
        if np.abs(step).max() < 1e-13:
            break
    return theta


@dataclass
class World:
    """The streams of one run: rows, means, luck, delays, and the policy's own generator."""

    tables: list[tuple[Matrix, Vector]]
    luck: Vector
    delay: NDArray[np.int64]
    draws: np.random.Generator

    @classmethod
    def of(cls, world: GLM, law: DelayProcess, horizon: int, seed: int) -> World:
        """As simulate spawns them."""
        streams = np.random.SeedSequence(seed).spawn(4)
        contexts, luck, waits, draws = (np.random.default_rng(stream) for stream in streams)
        tables = list(world.rounds(horizon, contexts))
        return cls(tables, luck.random(horizon), law.sample(horizon, waits), draws)

    def arrived(self, t: int) -> NDArray[np.bool_]:
        """Which rounds before t (from 1) have s + D_s ≤ t - 1."""
        return np.asarray(np.arange(1, t) + self.delay[: t - 1] <= t - 1)


def ducb(
    world: World, reward: Callable[[float, float], float], link: Link, S: float, tau: int
) -> list[int]:
    """Algorithm 1 with sqrt(G_t) and n_t; with D = 0 it is UCB-GLM."""
    d = len(world.tables[0][0][0])
    grid = np.linspace(-S - 1.0, S + 1.0, 20_001)
    kappa = float(link.slope(grid).min())
    chosen: list[int] = []
    rows: list[Vector] = []
    rewards: list[float] = []
    theta = np.zeros(d)
    for t, (table, means) in enumerate(world.tables, start=1):
        if t <= tau:
            a = int(world.draws.integers(len(table)))
        else:
            arrived = world.arrived(t)
            X = np.array(rows)
            theta = maximum(link, X[arrived], np.array(rewards)[arrived], theta)
            n = int(arrived.sum())
            beta = link.sigma / kappa * math.sqrt(
                d / 2.0 * math.log(1.0 + 2.0 * n / d) + math.log(1.0 / 0.05)
            ) + math.sqrt(t - 1 - n)
            inverse = np.linalg.inv(X.T @ X)
            a = int(np.argmax(table @ theta + beta * np.sqrt(np.vecdot(table @ inverse, table))))
        chosen.append(a)
        rows.append(table[a])
        rewards.append(reward(float(means[a]), float(world.luck[t - 1])))
    return chosen


def lin_thompson(
    world: World, reward: Callable[[float, float], float], v: float, a0: float, tau: int
) -> list[int]:
    """Algorithm 3: B = a I + Σ x xᵀ, f = Σ x y, θ ~ N(B⁻¹f, v²B⁻¹).

    A root of v²B⁻¹ is any; here it is the upper triangular one.
    """
    d = len(world.tables[0][0][0])
    B, f = a0 * np.eye(d), np.zeros(d)
    chosen: list[int] = []
    observations: list[tuple[Vector, float]] = []
    arrived_before = np.zeros(0, dtype=np.bool_)
    for t, (table, means) in enumerate(world.tables, start=1):
        now = world.arrived(t)
        is_new = now & ~np.append(
            arrived_before, np.zeros(len(now) - len(arrived_before), dtype=np.bool_)
        )
        for s in np.flatnonzero(is_new):
            x, y = observations[s]
            B, f = B + np.outer(x, x), f + x * y
        arrived_before = now
        if t <= tau:
            a = int(world.draws.integers(len(table)))
        else:
            normals = world.draws.standard_normal((d, 64))
            drawn = int(world.draws.random() * 64)
            root = v * np.linalg.inv(np.linalg.cholesky(B)).T
            theta = np.linalg.solve(B, f) + root @ normals[:, drawn]
            a = int(np.argmax(table @ theta))
        chosen.append(a)
        observations.append((table[a], reward(float(means[a]), float(world.luck[t - 1]))))
    return chosen


# --- against them ------------------------------------------------------------------------------


def problem(family: Family) -> GLM:
    """Five new rows of three numbers every round, |θ*| = .5."""
    return environments.fresh(2, dim=3, n_arms=5, norm=0.5, family=family)


@every_delay
@pytest.mark.parametrize(("family", "link"), LINKS.values(), ids=LINKS)
def test_ducb_is_the_one_of_the_paper(family: Family, link: Link, law: DelayProcess) -> None:
    """400 choices equal those of a UCB-GLM with a new Newton and a new inverse every round.

    With D = 0 it is UCB-GLM itself: G = 0 and V = W. Else θ̂ is of what arrived, V of all
    decisions, and the width has √G_t more.
    """
    world = problem(family)
    reference = World.of(world, law, 400, seed=5)
    expected = ducb(reference, world.reward, link, 0.5, 60)
    policy = paper_ducb(3, family, 0.5, warmup=60)
    trace = simulate(policy, world, law, horizon=400, seed=5)
    assert trace.delay.tolist() == reference.delay.tolist()
    assert trace.actions.tolist() == expected
    assert len(set(expected[60:])) == 5


@every_delay
@pytest.mark.parametrize("tau", [0, 30])
def test_dts_lcb_is_linear_thompson_sampling(law: DelayProcess, tau: int) -> None:
    """400 choices equal those of B and f from the paper, with the same normals."""
    world = problem(Gaussian(0.25))
    reference = World.of(world, law, 400, seed=7)
    expected = lin_thompson(reference, world.reward, 0.5, 2.0, tau)
    policy = paper_dts_lcb(3, noise=0.5, a=2.0, warmup=tau)
    trace = simulate(policy, world, law, horizon=400, seed=7)
    assert trace.actions.tolist() == expected
    assert len(set(expected)) == 5


def followed(policy: Policy, law: DelayProcess, horizon: int) -> tuple[Trace, list[Model], Matrix]:
    """A run of logistic rewards; θ̂ and the roots at each choice, and the chosen rows."""
    states: list[Model] = []
    rows: list[Vector] = []
    choose = policy.choose

    def following(model: Model, table: Matrix, rng: np.random.Generator) -> Choice:
        choice = choose(model, table, rng)
        copy = Model(policy.start, policy.family, theta=model.theta)
        copy.observed, copy.decided = model.observed.copy(), model.decided.copy()
        states.append(copy)
        rows.append(np.array(table[choice.index]))
        return choice

    object.__setattr__(policy, "choose", following)
    world = environments.fresh(3, dim=4, n_arms=6, norm=2.0)
    return simulate(policy, world, law, horizon=horizon, seed=3), states, np.array(rows)


@every_delay
def test_dts_samples_from_the_laplace_posterior_of_what_arrived(law: DelayProcess) -> None:
    """Θ̂ and H of every round are those of prior × likelihood of the rounds s + D_s ≤ t - 1.

    So the whole warm-up enters, and arrivals between two choices do once.
    """
    _, link = LINKS["logistic"]
    trace, states, rows = followed(paper_dts(4, Bernoulli(), warmup=40), law, 250)
    theta = np.zeros(4)
    for t, state in enumerate(states, start=1):
        arrived = np.arange(1, t) + trace.delay[: t - 1] <= t - 1
        X, y = rows[: t - 1][arrived], trace.rewards[: t - 1][arrived]
        theta = maximum(link, X, y, theta, ridge=1.0)
        H = np.eye(4) + (X.T * link.slope(X @ theta)) @ X
        deviations = np.sqrt(np.diag(np.linalg.inv(H)))
        np.testing.assert_allclose((state.theta - theta) / deviations, 0.0, atol=1e-6)
        np.testing.assert_allclose(H @ state.observed @ state.observed.T, np.eye(4), atol=1e-3)
        assert state.decided.tolist() == state.observed.tolist()


def test_dts_forgets_the_order_of_arrivals() -> None:
    """Three orders give one posterior: θ̂ to 1e-6 and the estimate to 1e-9 deviations."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)).astype(np.float32).astype(np.float64) / 2.0
    y = (rng.random(120) < logistic(X @ np.array([1.0, -1.0, 0.5, 0.0]))).astype(float)
    fits = []
    for order in (np.arange(120), np.arange(120)[::-1], rng.permutation(120)):
        learner = Learner(paper_dts(4, Bernoulli()))
        for x in X:
            learner.add_pending(x, 0.25)
        for s in order:
            learner.learn(X[s], float(y[s]), 0.25)
        fits.append((learner.model.theta, learner.estimate.theta, learner.estimate.precision))
    for theta, estimate, precision in fits[1:]:
        np.testing.assert_allclose(theta, fits[0][0], rtol=0.0, atol=1e-6)
        np.testing.assert_allclose(estimate, fits[0][1], rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(precision, fits[0][2], rtol=1e-9)
    assert np.abs(fits[0][0]).max() > 0.3


@pytest.mark.parametrize("seed", range(5))
def test_dts_lcb_learns_one_by_one_what_a_batch_gives(seed: int) -> None:
    """B⁻¹f and v²B⁻¹ equal the batch posterior to 1e-12, for a random order of arrival."""
    rng = np.random.default_rng(seed)
    d = 6
    X = rng.normal(size=(300, d)).astype(np.float32).astype(np.float64) / math.sqrt(d)
    y = X @ rng.normal(size=d) + 0.5 * rng.normal(size=300)
    learner = Learner(paper_dts_lcb(d, noise=0.5, a=2.0))
    for x in X:
        learner.add_pending(x, 4.0)
    for s in rng.permutation(300):
        learner.learn(X[s], float(y[s]), 4.0)
    B, f = 2.0 * np.eye(d) + X.T @ X, X.T @ y
    S = learner.model.observed
    np.testing.assert_allclose(learner.model.theta, np.linalg.solve(B, f), rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(S @ S.T, 0.25 * np.linalg.inv(B), rtol=0.0, atol=1e-12)


def test_a_warm_up_is_uniform_and_as_long_as_it_is_told() -> None:
    """The first τ choices have propensity 1/K, and the next has that of the algorithm."""
    world = problem(Gaussian())
    trace = simulate(paper_dts_lcb(3, warmup=50), world, delays.Constant(3), horizon=60)
    assert (trace.propensities[:50] == 0.2).all()
    assert (trace.propensities[50:] != 0.2).all()
    assert set(trace.actions[:50].tolist()) == set(range(5))


def test_a_warm_up_of_rounds_counts_decisions_that_lapsed() -> None:
    """With rewards that never come and a window, τ rounds of warm-up are τ rounds."""
    world, law = problem(Gaussian()), delays.Constant(delays.NEVER)
    policy = paper_dts_lcb(3, warmup=50)
    trace = simulate(policy, world, law, horizon=80, window=10)
    assert (trace.propensities[:50] == 0.2).all()
    assert (trace.propensities[50:] != 0.2).all()


def test_the_theorems_warm_up_counts_arrivals() -> None:
    """Without a warm-up given, DUCB explores until the theorem's arrivals have come."""
    policy = paper_ducb(2, Gaussian(1e-3), 1.0)
    assert isinstance(policy, Warmup)
    # σ̂²/κ² = 1e-3: the threshold is its floor 1, so that log(d/δ) decides.
    assert policy.arrivals == pytest.approx(2.0 * math.log(2 / 0.05) / 0.15343, rel=1e-4)
    assert policy.rounds == 0


def test_the_theorems_warm_up_ends_with_the_arrivals() -> None:
    """Uniform choices end in the first round that has as many rewards, not decisions."""
    policy = paper_ducb(2, Gaussian(1e-3), 1.0)
    assert isinstance(policy, Warmup)
    world = environments.fresh(1, dim=2, n_arms=4, norm=1.0, family=Gaussian(1e-3))
    trace = simulate(policy, world, delays.Constant(20), horizon=120)
    rounds = math.ceil(policy.arrivals)
    assert 20 < rounds < 90
    assert (trace.propensities[: rounds + 20] == 0.25).all()
    assert (trace.propensities[rounds + 20 :] == 1.0).all()


def test_ducb_does_not_warn_of_its_own_ridge() -> None:
    """The paper has no prior, and the preset's stand-in for none is not the user's mistake."""
    policy = paper_ducb(3, Bernoulli(), 0.5, warmup=60)
    trace = simulate(policy, problem(Bernoulli()), delays.Constant(0), horizon=80)
    assert trace.learner.model.n == 79
