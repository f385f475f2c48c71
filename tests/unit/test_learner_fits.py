"""When a learner fits, and what a fit does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from belated import (
    Bernoulli,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    Gaussian,
    Poisson,
    delays,
    environments,
    simulate,
)
from belated.exceptions import InvalidInput
from belated.fold.learner import Learner
from belated.model import kernels
from belated.model.estimators import Laplace
from belated.model.priors import Prior
from belated.policies import Policy
from tests.unit.learner_runs import Metric, assert_root, every_metric, every_share, learned, new_run


def fits_up_to(count: int, dim: int) -> list[int]:
    """Return when fits are due: after 25 % more rewards, or 5 % including 4 per coefficient."""
    fits = [1]
    while (last := fits[-1]) < count:
        growth = max(1.0, min(0.05 * (last + 4 * dim), last / 4))
        fits.append(math.ceil(last + growth - 1e-9))
    return [n for n in fits if n <= count]


def test_fits_become_rarer_with_more_rewards() -> None:
    """There is a fit at each of the first rewards, later whenever rewards have grown by 5 %."""
    _, fits, _, _ = learned(Bernoulli(), 400)
    assert fits == fits_up_to(400, dim=4)
    assert (fits[:9], fits[-3:]) == ([1, 2, 3, 4, 5, 7, 9, 11, 13], [353, 372, 392])


def test_a_fit_moves_the_model_to_the_maximum() -> None:
    """Right after a fit, θ̂ is within 1e-4 standard deviations; between two fits, within .05."""
    gaps: dict[bool, list[float]] = {True: [], False: []}
    for count in range(51, 81):
        learner, fits, _, _ = learned(Bernoulli(), count)
        fitted = fits[-1] == count
        estimate = learner.estimate
        gap = np.abs(learner.model.theta - estimate.theta) / np.sqrt(np.diag(estimate.covariance))
        gaps[fitted].append(float(gap.max()))
    assert max(gaps[True]) < 1e-4
    assert 1e-6 < max(gaps[False]) < 0.05


def test_gaussian_rewards_of_known_variance_are_never_fitted() -> None:
    """Updates are exact to 1e-11, and no fit ever runs."""
    learner, fits, X, y = learned(Gaussian(0.09), 300, ridge=1.0)
    assert fits == []
    precision = np.eye(4) + X.T @ X / 0.09
    theta = np.linalg.solve(precision, X.T @ y / 0.09)
    np.testing.assert_allclose(learner.model.theta, theta, rtol=0.0, atol=1e-11)
    assert_root(learner.model.observed, precision, 1e-10)
    assert learner.estimate.n == 300
    np.testing.assert_allclose(learner.estimate.theta, theta, rtol=0.0, atol=1e-11)


def test_gaussian_rewards_of_unknown_variance_are_fitted() -> None:
    """Fits are as frequent as for any family, and the model's φ is the variance, here .09."""
    learner, fits, X, _ = learned(Gaussian("estimate"), 300, ridge=1.0)
    assert fits == fits_up_to(300, dim=4)
    assert learner.model.dispersion == pytest.approx(0.09, rel=0.15)
    precision = (np.eye(4) + X[: fits[-1]].T @ X[: fits[-1]]) / learner.model.dispersion
    later_rows = X[fits[-1] :]
    assert_root(
        learner.model.observed, precision + later_rows.T @ later_rows / learner.model.dispersion
    )
    assert learner.estimate.dispersion == pytest.approx(0.09, rel=0.15)


@every_metric
def test_an_estimated_prior_is_no_reason_to_explore(metric: Metric) -> None:
    """Strong effects weaken the prior, but the uncertainty of an untried direction is the same."""
    policy = DelayedUCB(2, Bernoulli(), ridge="auto", metric=metric)
    learner = Learner(policy)
    x, unseen_row = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    for _ in range(400):
        learner.add_pending(x, 0.25)
        learner.learn(x, 1.0, 0.25)
    learner.fit()
    prior = learner.estimate.prior
    assert prior.precision[0, 0] < 0.5
    assert (
        learner.model.theta[0]
        > 1.2 * Laplace().fit(learner.observed, family=policy.family, prior=Prior.ridge(2)).theta[0]
    )
    spread = unseen_row @ learner.model.decided
    assert spread @ spread == pytest.approx(1.0)


def test_an_estimated_prior_is_fitted_even_for_gaussian_rewards() -> None:
    """With ridge="auto", fits are run, and strong effects weaken the prior."""
    _, fits, _, _ = learned(Gaussian(0.09), 60, ridge="auto")
    assert fits == fits_up_to(60, dim=4)
    learner = Learner(DelayedUCB(1, Gaussian(0.09)))
    for _ in range(60):
        learner.add_pending(np.ones(1), 1.0)
        learner.learn(np.ones(1), 20.0, 1.0)
    assert learner.estimate.prior.precision[0, 0] < 0.1


@every_share
@every_metric
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_row_that_is_not_finite_is_refused(share: float, metric: Metric, value: float) -> None:
    """Both methods raise InvalidInput, and the row is not in the sums."""
    run = new_run(Bernoulli(), share, metric)
    run.add_random_events(60, np.random.default_rng(10))
    learner, row = run.learner, np.array([0.1, value, 0.2, 0.3])
    counts = learner.model.n, learner.model.pending
    with pytest.raises(InvalidInput):
        learner.learn(row, 1.0, 0.25)
    with pytest.raises(InvalidInput):
        learner.add_pending(row, 0.25)
    learner.fit()
    assert (learner.model.n, learner.model.pending) == counts
    assert np.isfinite(learner.model.decided).all()


def test_a_reward_outside_the_support_is_refused() -> None:
    """The decision remains pending, and no observation is added."""
    run = new_run(Bernoulli(), 1.0, "hessian")
    run.add_random_events(60, np.random.default_rng(11))
    learner, event = run.learner, run.pending[0]
    before = learner.model.theta.copy(), learner.model.n, learner.model.pending
    with pytest.raises(InvalidInput, match=r"1\.5"):
        learner.learn(event.x, 1.5, event.frozen)
    assert learner.model.theta.tolist() == before[0].tolist()
    assert (learner.model.n, learner.model.pending) == before[1:]
    assert learner.estimate.n == before[1]


def test_blind_learners_have_one_root() -> None:
    """If pending decisions do not count, one step updates both ``observed`` and ``decided``."""
    learner = Learner(BlindUCB(4, Bernoulli()))
    assert learner.model.decided is learner.model.observed
    learner.add_pending(np.ones(4), 0.25)
    assert learner.model.decided.tolist() == np.eye(4).tolist()
    learner.learn(np.ones(4), 1.0, 0.25)
    assert learner.model.decided is learner.model.observed
    assert learner.model.decided.tolist() != np.eye(4).tolist()


POLICIES: dict[str, Policy] = {
    "ucb": DelayedUCB(6, Bernoulli()),
    "ucb-gram-half": DelayedUCB(6, Bernoulli(), metric="gram", pending_weight=0.5),
    "blind": BlindUCB(6, Bernoulli()),
    "randomized": DelayedUCB(6, Bernoulli(), randomized=True),
    "thompson": DelayedThompson(6, Bernoulli()),
    "gaussian": DelayedUCB(6, Gaussian("estimate")),
    "poisson": DelayedUCB(6, Poisson()),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("contexts", ["fixed", "fresh"])
def test_plain_and_compiled_kernels_decide_the_same(policy: Policy, contexts: str) -> None:
    """All 500 choices agree; propensities and θ̂ agree up to rounding."""
    family = Gaussian(0.1) if isinstance(policy.family, Gaussian) else policy.family
    world = getattr(environments, contexts)(2, dim=6, n_arms=8, norm=1.0, family=family)
    plain, compiled = (
        simulate(policy, world, delays.Geometric(mean=30), horizon=500, seed=1, kernels=load())
        for load in (kernels.plain, kernels.compiled)
    )
    assert plain.actions.tolist() == compiled.actions.tolist()
    np.testing.assert_allclose(plain.propensities, compiled.propensities, atol=1e-6)
    theta = compiled.learner.model.theta
    np.testing.assert_allclose(plain.learner.model.theta, theta, rtol=0.0, atol=1e-8)
    assert np.abs(theta).max() > 0.1
