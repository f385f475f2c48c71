"""The learner's sums, roots and fits, against what the same events give from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from belated import (
    Bernoulli,
    Gaussian,
    Poisson,
)
from belated.core.inputs import Matrix
from belated.model.estimators import Laplace, Online
from belated.model.families import Family
from belated.model.priors import Prior
from belated.model.statistics import Observations
from tests.unit.told_decisions import Event, Metric, assert_root, every_metric, every_share, story

FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


def total(events: list[Event], weights: list[float]) -> Matrix:
    """Σ w x xᵀ."""
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
    """Observed holds learned weights; decided those frozen at the choice, pending ones by share.

    A renewal replaces what is frozen of arrived rows by what was learned. In the Gram metric every
    weight of decided is 1. Where pending decisions count nothing and the metric is the observed
    one, both roots are one.
    """
    rng = np.random.default_rng(1)
    told = story(family, share, metric, Online())
    for _ in range(30):
        told.wander(25, rng)
        arrived, pending = told.arrived, told.pending
        model = told.learner.model
        assert (model.n, model.pending) == (len(arrived), len(pending))
        observed = 0.5 * np.eye(4) + total(arrived, [e.learned for e in arrived])
        assert_root(model.observed, observed)
        if metric == "gram":
            known = total(arrived, [1.0] * len(arrived))
            out = total(pending, [1.0] * len(pending))
        else:
            known = total(arrived, [e.counted for e in arrived])
            out = total(pending, [e.frozen for e in pending])
        if share == 0.0 and metric == "hessian":
            assert_root(model.decided, observed)
        else:
            assert_root(model.decided, 0.5 * np.eye(4) + known + share * out)
    assert len(told.arrived) > 150 < len(told.arrived) + len(told.pending) < 750


@every_family
@every_share
@every_metric
def test_a_fit_gives_both_roots_its_precision(family: Family, share: float, metric: Metric) -> None:
    """After a fit observed is prior + Σ g'(xᵀθ̂)/φ x xᵀ, and decided has what is pending by share.

    The Gram metric counts 1 for each row instead, fitted or not.
    """
    rng = np.random.default_rng(2)
    told = story(family, share, metric)
    phi = family.dispersion or 1.0
    for _ in range(5):
        told.wander(80, rng)
        told.learner.fit()
        model, arrived, pending = told.learner.model, told.arrived, told.pending
        slopes = [float(family.slope(e.x @ model.theta)) / phi for e in arrived]
        observed = 0.5 * np.eye(4) + total(arrived, slopes)
        # A fit that is good enough to choose by ends within 1e-4 deviations.
        assert_root(model.observed, observed, 1e-9 if isinstance(family, Gaussian) else 1e-3)
        exact = np.linalg.inv(model.observed @ model.observed.T)
        if metric == "gram":
            exact = 0.5 * np.eye(4) + total(arrived, [1.0] * len(arrived))
            out = total(pending, [1.0] * len(pending))
        else:
            out = total(pending, [e.frozen for e in pending])
        assert_root(model.decided, exact + share * out)


@every_share
@every_metric
def test_roots_stay_exact_over_many_renewals(share: float, metric: Metric) -> None:
    """After 6,000 Gaussian events, through several renewals, both roots are right to 1e-9."""
    told = story(Gaussian(0.25), share, metric)
    told.wander(6_000, np.random.default_rng(3))
    arrived, pending = told.arrived, told.pending
    model = told.learner.model
    assert len(arrived) > 2_000
    assert_root(model.observed, 0.5 * np.eye(4) + 4.0 * total(arrived, [1.0] * len(arrived)))
    weight = 1.0 if metric == "gram" else 4.0
    known = total(arrived, [weight] * len(arrived))
    out = total(pending, [weight] * len(pending))
    assert_root(model.decided, 0.5 * np.eye(4) + known + share * out)


@every_share
def test_roots_are_renewed_every_thousand_decisions(share: float) -> None:
    """Without fits too; the weights frozen at the choice are then replaced by learned ones.

    The decision itself is pending, and counts by its frozen weight and the share.
    """
    told = story(Bernoulli(), share, "hessian", Online())
    rng = np.random.default_rng(4)
    for _ in range(3_500):
        x = rng.normal(size=4).astype(np.float32).astype(np.float64)
        event = Event(x, 0.1, float(rng.integers(2)))
        told.add_pending(event)
        if told.renewals and told.renewals[-1] == told.decisions:
            model, arrived = told.learner.model, told.arrived
            precision = 0.5 * np.eye(4) + total(arrived, [e.learned for e in arrived])
            assert_root(model.observed, precision)
            assert_root(model.decided, precision + share * total(told.pending, [0.1]))
        told.learn(event)
    gaps = np.diff([0, *told.renewals])
    assert gaps.max() == 1000
    assert sum(gaps) >= 3_000


@pytest.mark.parametrize("share", [0.5, 1.0])
@every_metric
def test_roots_are_renewed_where_no_reward_comes(share: float, metric: Metric) -> None:
    """At 1000, 2000 and 3000 decisions; all of them are pending and count by the share."""
    told = story(Bernoulli(), share, metric)
    rng = np.random.default_rng(4)
    for _ in range(3_500):
        told.add_pending(Event(rng.normal(size=4).astype(np.float32).astype(np.float64), 0.1, 0.0))
    assert told.renewals == [1_000, 2_000, 3_000]
    weights = [1.0 if metric == "gram" else 0.1] * 3_500
    decided = 0.5 * np.eye(4) + share * total(told.pending, weights)
    assert_root(told.learner.model.decided, decided)


@every_metric
def test_what_left_leaves_nothing_behind(metric: Metric) -> None:
    """Long rows that were asked and withdrawn, all of them, leave the prior in decided."""
    told = story(Gaussian(), 1.0, metric)
    rng = np.random.default_rng(5)
    rows = (1e7 * rng.normal(size=(8, 4))).astype(np.float32).astype(np.float64)
    events = [Event(x, 1.0, 0.0) for x in rows]
    for event in events:
        told.add_pending(event)
    for at in rng.permutation(8):
        told.remove_pending(events[at])
    assert told.learner.model.pending == 0
    assert_root(told.learner.model.decided, 0.5 * np.eye(4))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_row_that_dominates_can_be_withdrawn(share: float) -> None:
    """Where a step cannot take it out, the root is renewed: what is left is as before."""
    told = story(Gaussian(), share, "hessian")
    told.wander(40, np.random.default_rng(6))
    before = told.learner.model.decided @ told.learner.model.decided.T
    long = Event(np.array([3e4, 1e4, 0.0, 0.0]), 1.0, 0.0)
    told.add_pending(long)
    told.remove_pending(long)
    after = told.learner.model.decided @ told.learner.model.decided.T
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@every_family
def test_the_estimate_is_a_function_of_the_set(family: Family) -> None:
    """It equals Laplace on the arrived rows to 1e-8 deviations, in any order, fits or none."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(130, 4)).astype(np.float32).astype(np.float64) / 2.0
    y = family.sample(X @ np.array([1.0, -1.0, 0.5, 0.0]), rng, family.dispersion or 1.0)
    data = Observations(4)
    data.extend(X, y)
    expected = Laplace().fit(data, family=family, prior=Prior.ridge(4, 0.5))
    deviations = np.sqrt(np.diag(expected.covariance))
    for growth in (1.0, 1.05, 2.0):
        for order in (np.arange(130), rng.permutation(130)):
            learner = story(family, 1.0, "hessian", Laplace(growth=growth)).learner
            for s in order:
                learner.add_pending(X[s], 0.25)
                learner.add_pending(X[s], 0.25)
                learner.remove_pending(X[s], 0.25)
            for s in order[::-1]:
                learner.learn(X[s], float(y[s]), 0.25)
            found = learner.estimate
            assert (found.n, found.converged) == (130, True)
            gap = (found.theta - expected.theta) / deviations
            np.testing.assert_allclose(gap, 0.0, atol=1e-8)
            np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-7)


def test_asking_for_the_estimate_changes_nothing() -> None:
    """Choices, counts and fits go on as if nobody had asked."""
    rng = np.random.default_rng(8)
    quiet, asked = (story(Bernoulli(), 1.0, "hessian") for _ in range(2))
    for _ in range(200):
        x = rng.normal(size=4).astype(np.float32).astype(np.float64)
        event = Event(x, 0.25, float(rng.integers(2)))
        for told in (quiet, asked):
            told.add_pending(event)
            told.learn(event)
        assert asked.learner.estimate.n == asked.learner.model.n
    np.testing.assert_allclose(asked.learner.model.theta, quiet.learner.model.theta, atol=1e-12)
    for name in ("observed", "decided"):
        one, two = (getattr(told.learner.model, name) for told in (asked, quiet))
        np.testing.assert_allclose(one @ one.T, two @ two.T, rtol=0.0, atol=1e-12)
