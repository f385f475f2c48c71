"""Background fits: rewards that arrive, are revised or retracted meanwhile are not lost."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.fold.learner import Learner
from belated.fold.refit import Fitted
from belated.model.families import Family

every_family = pytest.mark.parametrize(
    "family", [Bernoulli(), Poisson(), Gaussian("estimate")], ids=repr
)


def data(family: Family, count: int, seed: int) -> tuple[Matrix, Vector]:
    """Return rows and rewards."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(count, 3)) / 2).astype(np.float32).astype(np.float64)
    return X, family.sample(X @ np.array([0.8, -0.5, 0.2]), rng, 0.3)


def taught(learner: Learner, X: Matrix, y: Vector, partitions: int = 1) -> list[tuple[int, int]]:
    """Learn rewards; return the partition and the handle of each."""
    handles = []
    for n, (x, reward) in enumerate(zip(X, y.tolist(), strict=True)):
        learner.add_pending(x, 0.25)
        handles.append((n % partitions, learner.learn(x, reward, 0.25, partition=n % partitions)))
    return handles


@every_family
@pytest.mark.parametrize("partitions", [1, 4])
def test_changes_during_a_fit_count(family: Family, partitions: int) -> None:
    """With new, revised and retracted rewards, θ̂ and both roots are close to a fit of all."""
    learner = Learner(DelayedUCB(3, family, ridge=1.0), partitions=partitions)
    learner.defers = True
    X, y = data(family, 2000, 0)
    handles = taught(learner, X, y, partitions)
    fit = learner.begin_fit()
    new_rows, rewards = data(family, 100, 1)
    taught(learner, new_rows, rewards, partitions)
    for partition, handle in handles[:30]:
        learner.revise(handle, 1.0, partition=partition)
    weights = []
    for n, (partition, handle) in enumerate(handles[30:60], 30):
        weights.append(learner.model.predict(X[n])[1])
        learner.retract(handle, partition=partition)
    fitted = fit()
    assert fitted.model is not None
    explored = np.linalg.inv(fitted.model.decided @ fitted.model.decided.T)
    assert learner.finish_fit(fitted)
    reference = learner.estimate
    assert learner.model.n == reference.n == 2070
    deviations = np.sqrt(np.diag(reference.covariance))
    assert np.abs((learner.model.theta - reference.theta) / deviations).max() < 0.02
    # Steps do not change the weights of older rows, unlike a fit of all rows.
    covariance = learner.model.observed @ learner.model.observed.T
    np.testing.assert_allclose(
        covariance, reference.covariance, rtol=0.1, atol=0.01 * deviations.max()
    )
    # ``decided`` is that of the fit, with every later change, exactly.
    explored += 0.25 * new_rows.T @ new_rows - X[30:60].T @ (np.array(weights)[:, None] * X[30:60])
    decided = np.linalg.inv(learner.model.decided @ learner.model.decided.T)
    np.testing.assert_allclose(decided, explored, rtol=1e-9)


@every_family
def test_the_latest_rewards_are_in_the_sums_of_a_fit(family: Family) -> None:
    """They are included even if they have not been stored since the fit began."""
    learner = Learner(DelayedUCB(3, family, ridge=1.0))
    learner.defers = True
    taught(learner, *data(family, 200, 0))
    fit = learner.begin_fit()
    new_rows, rewards = data(family, 5, 1)
    taught(learner, new_rows, rewards)
    weights = np.array(learner._waiting.arrived[0].after)
    fitted = fit()
    assert fitted.observed is not None
    before = fitted.observed.copy()
    assert learner.finish_fit(fitted)
    after = learner.weighting.observed
    assert after is not None
    added = after - before
    np.testing.assert_allclose(
        added, new_rows.T @ (weights[:, None] * new_rows), rtol=1e-9, atol=1e-12
    )


def test_a_deferred_fit_waits_until_the_caller_begins_it() -> None:
    """While it is due, nothing happens; once begun, it is not due again before it has ended."""
    learner = Learner(DelayedUCB(3, Bernoulli()))
    learner.defers = True
    assert not learner.fit_is_due()
    taught(learner, *data(Bernoulli(), 200, 0))
    assert learner.fit_is_due()
    before = learner.model.theta.copy()
    fit = learner.begin_fit()
    assert not learner.fit_is_due()
    np.testing.assert_array_equal(learner.model.theta, before)
    assert learner.finish_fit(fit())
    assert not learner.fit_is_due()
    assert np.abs(learner.model.theta - before).max() > 1e-4


def test_an_obsolete_fit_is_discarded() -> None:
    """It must not undo a fit of everything that was run in between."""
    learner = Learner(DelayedUCB(3, Bernoulli()))
    learner.defers = True
    taught(learner, *data(Bernoulli(), 200, 0))
    fit = learner.begin_fit()
    taught(learner, *data(Bernoulli(), 50, 1))
    learner.fit()
    theta = learner.model.theta.copy()
    assert not learner.finish_fit(fit())
    np.testing.assert_array_equal(learner.model.theta, theta)


def test_a_fit_may_run_in_another_thread() -> None:
    """Meanwhile, rewards are revised and retracted in this thread."""
    learner = Learner(DelayedUCB(3, Bernoulli()))
    learner.defers = True
    handles = taught(learner, *data(Bernoulli(), 20_000, 0))
    fit, results = learner.begin_fit(), list[Fitted]()
    thread = threading.Thread(target=lambda: results.append(fit()))
    thread.start()
    for n in range(0, 3000, 2):
        learner.revise(handles[n][1], 0.0)
        learner.retract(handles[n + 1][1])
    thread.join()
    assert results[0].estimate.n == 20_000
    assert results[0].estimate.converged
    assert learner.finish_fit(results[0])
    reference = learner.estimate
    deviations = np.sqrt(np.diag(reference.covariance))
    assert np.abs((learner.model.theta - reference.theta) / deviations).max() < 0.5
