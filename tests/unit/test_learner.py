"""The learner's sums, roots and fits, compared with those computed from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix
from belated.model.estimators import Laplace, Online
from belated.model.families import Family
from belated.model.priors import Prior
from belated.model.statistics import Observations
from tests.unit.learner_runs import Event, Metric, assert_root, every_metric, every_share, new_run

FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


def total(events: list[Event], weights: list[float]) -> Matrix:
    """Return Σ w x xᵀ."""
    sums = np.zeros((4, 4))
    for event, weight in zip(events, weights, strict=True):
        sums += weight * np.outer(event.x, event.x)
    return sums


@every_family
@every_share
@every_metric
def test_roots_are_those_of_the_weights_between_fits(
    family: Family, share: float, metric: Metric
) -> None:
    """``observed`` uses learned weights; ``decided`` those of the choice, with a pending share.

    A renewal replaces the weights of arrived rows in ``decided`` by the learned ones. In the Gram
    metric, every weight in ``decided`` is 1. If pending decisions do not count and the metric is
    the Hessian, both roots are the same.
    """
    rng = np.random.default_rng(1)
    run = new_run(family, share, metric, Online())
    for _ in range(30):
        run.add_random_events(25, rng)
        arrived, pending = run.arrived, run.pending
        model = run.learner.model
        assert (model.n, model.pending) == (len(arrived), len(pending))
        observed = 0.5 * np.eye(4) + total(arrived, [e.learned for e in arrived])
        assert_root(model.observed, observed)
        if metric == "gram":
            of_arrived = total(arrived, [1.0] * len(arrived))
            of_pending = total(pending, [1.0] * len(pending))
        else:
            of_arrived = total(arrived, [e.counted for e in arrived])
            of_pending = total(pending, [e.frozen for e in pending])
        if share == 0.0 and metric == "hessian":
            assert_root(model.decided, observed)
        else:
            assert_root(model.decided, 0.5 * np.eye(4) + of_arrived + share * of_pending)
    assert len(run.arrived) > 150 < len(run.arrived) + len(run.pending) < 750


@every_family
@every_share
@every_metric
def test_a_fit_gives_both_roots_its_precision(family: Family, share: float, metric: Metric) -> None:
    """After a fit, ``observed`` is prior + Σ g'(xᵀθ̂)/φ x xᵀ; ``decided`` adds the pending share.

    In the Gram metric, each row has the weight 1 instead.
    """
    rng = np.random.default_rng(2)
    run = new_run(family, share, metric)
    phi = family.dispersion or 1.0
    for _ in range(5):
        run.add_random_events(80, rng)
        run.learner.fit()
        model, arrived, pending = run.learner.model, run.arrived, run.pending
        slopes = [float(family.slope(e.x @ model.theta)) / phi for e in arrived]
        observed = 0.5 * np.eye(4) + total(arrived, slopes)
        # Fits for making decisions end within 1e-4 standard deviations.
        assert_root(model.observed, observed, 1e-9 if isinstance(family, Gaussian) else 1e-3)
        exact = np.linalg.inv(model.observed @ model.observed.T)
        if metric == "gram":
            exact = 0.5 * np.eye(4) + total(arrived, [1.0] * len(arrived))
            of_pending = total(pending, [1.0] * len(pending))
        else:
            of_pending = total(pending, [e.frozen for e in pending])
        assert_root(model.decided, exact + share * of_pending)


@every_share
@every_metric
def test_roots_stay_exact_over_many_renewals(share: float, metric: Metric) -> None:
    """After 6,000 Gaussian events and several renewals, both roots are accurate to 1e-9."""
    run = new_run(Gaussian(0.25), share, metric)
    run.add_random_events(6_000, np.random.default_rng(3))
    arrived, pending = run.arrived, run.pending
    model = run.learner.model
    assert len(arrived) > 2_000
    assert_root(model.observed, 0.5 * np.eye(4) + 4.0 * total(arrived, [1.0] * len(arrived)))
    weight = 1.0 if metric == "gram" else 4.0
    of_arrived = total(arrived, [weight] * len(arrived))
    of_pending = total(pending, [weight] * len(pending))
    assert_root(model.decided, 0.5 * np.eye(4) + of_arrived + share * of_pending)


@every_share
def test_roots_are_renewed_every_thousand_decisions(share: float) -> None:
    """Without fits, a renewal replaces the weights of the choice by the learned ones.

    The latest decision is pending, and counts with the weight of its choice and the share.
    """
    run = new_run(Bernoulli(), share, "hessian", Online())
    rng = np.random.default_rng(4)
    for _ in range(3_500):
        x = rng.normal(size=4).astype(np.float32).astype(np.float64)
        event = Event(x, 0.1, float(rng.integers(2)))
        run.add_pending(event)
        if run.renewals and run.renewals[-1] == run.decisions:
            model, arrived = run.learner.model, run.arrived
            precision = 0.5 * np.eye(4) + total(arrived, [e.learned for e in arrived])
            assert_root(model.observed, precision)
            assert_root(model.decided, precision + share * total(run.pending, [0.1]))
        run.learn(event)
    gaps = np.diff([0, *run.renewals])
    assert gaps.max() == 1000
    assert sum(gaps) >= 3_000


@pytest.mark.parametrize("share", [0.5, 1.0])
@every_metric
def test_roots_are_renewed_without_rewards(share: float, metric: Metric) -> None:
    """Renewals are at 1000, 2000 and 3000 decisions; all are pending and count by the share."""
    run = new_run(Bernoulli(), share, metric)
    rng = np.random.default_rng(4)
    for _ in range(3_500):
        run.add_pending(Event(rng.normal(size=4).astype(np.float32).astype(np.float64), 0.1, 0.0))
    assert run.renewals == [1_000, 2_000, 3_000]
    weights = [1.0 if metric == "gram" else 0.1] * 3_500
    decided = 0.5 * np.eye(4) + share * total(run.pending, weights)
    assert_root(run.learner.model.decided, decided)


@every_metric
def test_removed_decisions_leave_no_rounding_errors(metric: Metric) -> None:
    """After all of some decisions with large rows were removed, ``decided`` is the prior."""
    run = new_run(Gaussian(), 1.0, metric)
    rng = np.random.default_rng(5)
    rows = (1e7 * rng.normal(size=(8, 4))).astype(np.float32).astype(np.float64)
    events = [Event(x, 1.0, 0.0) for x in rows]
    for event in events:
        run.add_pending(event)
    for index in rng.permutation(8):
        run.remove_pending(events[index])
    assert run.learner.model.pending == 0
    assert_root(run.learner.model.decided, 0.5 * np.eye(4))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_row_that_dominates_can_be_removed(share: float) -> None:
    """If a step cannot remove it, the root is recomputed, and is as before."""
    run = new_run(Gaussian(), share, "hessian")
    run.add_random_events(40, np.random.default_rng(6))
    before = run.learner.model.decided @ run.learner.model.decided.T
    event = Event(np.array([3e4, 1e4, 0.0, 0.0]), 1.0, 0.0)
    run.add_pending(event)
    run.remove_pending(event)
    after = run.learner.model.decided @ run.learner.model.decided.T
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@every_family
def test_the_estimate_depends_only_on_the_set_of_rewards(family: Family) -> None:
    """It equals Laplace to 1e-8 standard deviations, whatever the order and the fits."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(130, 4)).astype(np.float32).astype(np.float64) / 2.0
    y = family.sample(X @ np.array([1.0, -1.0, 0.5, 0.0]), rng, family.dispersion or 1.0)
    data = Observations(4)
    data.extend(X, y)
    expected = Laplace().fit(data, family=family, prior=Prior.ridge(4, 0.5))
    deviations = np.sqrt(np.diag(expected.covariance))
    for growth in (1.0, 1.05, 2.0):
        for order in (np.arange(130), rng.permutation(130)):
            learner = new_run(family, 1.0, "hessian", Laplace(growth=growth)).learner
            for s in order:
                learner.add_pending(X[s], 0.25)
                learner.add_pending(X[s], 0.25)
                learner.remove_pending(X[s], 0.25)
            for s in order[::-1]:
                learner.learn(X[s], float(y[s]), 0.25)
            estimate = learner.estimate
            assert (estimate.n, estimate.converged) == (130, True)
            gap = (estimate.theta - expected.theta) / deviations
            np.testing.assert_allclose(gap, 0.0, atol=1e-8)
            np.testing.assert_allclose(estimate.precision, expected.precision, rtol=1e-7)


def test_reading_the_estimate_changes_nothing() -> None:
    """The model is the same as without reading it."""
    rng = np.random.default_rng(8)
    twin, reader = (new_run(Bernoulli(), 1.0, "hessian") for _ in range(2))
    for _ in range(200):
        x = rng.normal(size=4).astype(np.float32).astype(np.float64)
        event = Event(x, 0.25, float(rng.integers(2)))
        for run in (twin, reader):
            run.add_pending(event)
            run.learn(event)
        assert reader.learner.estimate.n == reader.learner.model.n
    np.testing.assert_allclose(reader.learner.model.theta, twin.learner.model.theta, atol=1e-12)
    for name in ("observed", "decided"):
        root, expected = (getattr(run.learner.model, name) for run in (reader, twin))
        np.testing.assert_allclose(root @ root.T, expected @ expected.T, rtol=0.0, atol=1e-12)
