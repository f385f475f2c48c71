"""The learner's sums, roots and fits, against what the same events give from scratch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

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
    kernels,
    simulate,
)
from belated.estimators import Estimate, Laplace, Online
from belated.exceptions import InvalidInput
from belated.families import Family
from belated.inputs import Matrix, Vector
from belated.learner import Learner
from belated.policies import Policy
from belated.priors import Prior
from belated.statistics import Observations, Seen

Metric = Literal["hessian", "gram"]
every_share = pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
every_metric = pytest.mark.parametrize("metric", ["hessian", "gram"])
FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


@dataclass(eq=False)
class Event:
    """A decision: its row, its weight when it was made, and what it has once it is learned."""

    x: Vector
    frozen: float
    y: float
    learned: float = math.nan
    #: What decided counts it for: the frozen weight, from the next renewal on the learned one.
    counted: float = math.nan


@dataclass
class DecisionStatus:
    """A learner and the decisions it was told of."""

    learner: Learner
    pending: list[Event] = field(default_factory=list)
    arrived: list[Event] = field(default_factory=list)
    decisions: int = 0
    #: After how many decisions the roots were made anew.
    renewals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.learner.model
        step, renew = model.learn, model.renew

        def learn(x: Any, y: float) -> float:
            self.weight = step(x, y)
            return self.weight

        def renewed(observed: Matrix, decided: Matrix) -> None:
            self.renewals.append(self.decisions)
            renew(observed, decided)

        model.learn = learn  # type: ignore[method-assign]
        model.renew = renewed  # type: ignore[method-assign]

    def add_pending(self, event: Event) -> None:
        """A decision."""
        self.decisions += 1
        before = len(self.renewals)
        self.learner.add_pending(event.x, event.frozen)
        self.pending.append(event)
        self._look(before)

    def learn(self, event: Event) -> None:
        """Its reward."""
        before = len(self.renewals)
        self.learner.learn(event.x, event.y, event.frozen)
        event.learned, event.counted = self.weight, event.frozen
        self.pending.remove(event)
        self.arrived.append(event)
        self._look(before)

    def remove_pending(self, event: Event) -> None:
        """It left without."""
        before = len(self.renewals)
        self.learner.remove_pending(event.x, event.frozen)
        self.pending.remove(event)
        self._look(before)

    def _look(self, before: int) -> None:
        if len(self.renewals) > before:
            for event in self.arrived:
                event.counted = event.learned

    def wander(self, steps: int, rng: np.random.Generator) -> None:
        """That many events at random: half decisions, a third rewards, the rest withdrawals."""
        family, dim = self.learner.policy.family, self.learner.policy.dim
        for _ in range(steps):
            kind = rng.random()
            if kind < 0.5 or not self.pending:
                x = rng.normal(size=dim).astype(np.float32).astype(np.float64) / math.sqrt(dim)
                weight = self.learner.model.predict(x)[1]
                y = float(family.sample(x[:1], rng)[0])
                self.add_pending(Event(x, weight, y))
            else:
                event = self.pending[int(rng.integers(len(self.pending)))]
                (self.learn if kind < 0.85 else self.remove_pending)(event)


def story(family: Family, share: float, metric: Metric, estimator: Any = None) -> DecisionStatus:
    """An empty one, of rows of four numbers."""
    policy = DelayedUCB(
        4,
        family,
        ridge=0.5,
        pending_weight=share,
        metric=metric,
        estimator=estimator or Laplace(),
    )
    return DecisionStatus(Learner(policy))


def total(events: list[Event], weights: list[float]) -> Matrix:
    """Σ w x xᵀ."""
    sums = np.zeros((4, 4))
    for event, weight in zip(events, weights, strict=True):
        sums += weight * np.outer(event.x, event.x)
    return sums


def assert_root(root: Matrix, precision: Matrix, close: float = 1e-9) -> None:
    """S Sᵀ H = I."""
    np.testing.assert_allclose(root @ root.T @ precision, np.eye(4), rtol=0.0, atol=close)


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


@dataclass(frozen=True)
class Counting(Laplace):
    """Laplace that remembers how many rewards each of its fits had."""

    fits: list[int] = field(default_factory=list, compare=False)

    def fit(self, data: Seen, **more: Any) -> Estimate:
        """As Laplace."""
        self.fits.append(data.n)
        return super().fit(data, **more)


def learned(family: Family, count: int, **more: Any) -> tuple[Learner, list[int], Matrix, Vector]:
    """A learner after that many rewards, the sizes of its fits, and what it saw."""
    estimator = Counting()
    learner = Learner(DelayedUCB(4, family, estimator=estimator, **more))
    rng = np.random.default_rng(9)
    X = rng.normal(size=(count, 4)).astype(np.float32).astype(np.float64)
    y = family.sample(X @ np.array([0.5, -0.5, 0.2, 0.0]), rng, 0.09)
    for x, reward in zip(X, y.tolist(), strict=True):
        learner.add_pending(x, 0.25)
        learner.learn(x, reward, 0.25)
    return learner, estimator.fits, X, y


def fits_up_to(count: int, dim: int) -> list[int]:
    """A quarter more rewards, or 5 % more with four for each coefficient, call for a fit."""
    fits = [1]
    while (last := fits[-1]) < count:
        more = max(1.0, min(0.05 * (last + 4 * dim), last / 4))
        fits.append(math.ceil(last + more - 1e-9))
    return [n for n in fits if n <= count]


def test_fits_become_rarer_as_more_is_known() -> None:
    """At each of the first rewards, then whenever what is known has grown by 5 %."""
    _, fits, _, _ = learned(Bernoulli(), 400)
    assert fits == fits_up_to(400, dim=4)
    assert (fits[:9], fits[-3:]) == ([1, 2, 3, 4, 5, 7, 9, 11, 13], [353, 372, 392])


def test_a_fit_moves_the_model_to_the_maximum() -> None:
    """Right after a fit θ̂ is the estimate's to 1e-4 deviations; between two, to .05."""
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
    """Steps are the exact posterior: θ̂ and both roots to 1e-11, and no fit ever runs."""
    learner, fits, X, y = learned(Gaussian(0.09), 300, ridge=1.0)
    assert fits == []
    precision = np.eye(4) + X.T @ X / 0.09
    theta = np.linalg.solve(precision, X.T @ y / 0.09)
    np.testing.assert_allclose(learner.model.theta, theta, rtol=0.0, atol=1e-11)
    assert_root(learner.model.observed, precision, 1e-10)
    assert learner.estimate.n == 300
    np.testing.assert_allclose(learner.estimate.theta, theta, rtol=0.0, atol=1e-11)


def test_gaussian_rewards_of_unknown_variance_are_fitted() -> None:
    """Fits come as often as for any family, and the model's φ is the variance, .09 here."""
    learner, fits, X, _ = learned(Gaussian("estimate"), 300, ridge=1.0)
    assert fits == fits_up_to(300, dim=4)
    assert learner.model.dispersion == pytest.approx(0.09, rel=0.15)
    precision = (np.eye(4) + X[: fits[-1]].T @ X[: fits[-1]]) / learner.model.dispersion
    more = X[fits[-1] :]
    assert_root(learner.model.observed, precision + more.T @ more / learner.model.dispersion)
    assert learner.estimate.dispersion == pytest.approx(0.09, rel=0.15)


@every_metric
def test_an_estimated_prior_is_no_reason_to_explore(metric: Metric) -> None:
    """Strong effects free θ̂ of the prior, and a direction never tried is as uncertain as before."""
    policy = DelayedUCB(2, Bernoulli(), ridge="auto", metric=metric)
    learner = Learner(policy)
    x, unseen = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    for _ in range(400):
        learner.add_pending(x, 0.25)
        learner.learn(x, 1.0, 0.25)
    learner.fit()
    prior = learner._estimate(polish=True).prior
    assert prior.precision[0, 0] < 0.5
    assert (
        learner.model.theta[0]
        > 1.2 * Laplace().fit(learner.observed, family=policy.family, prior=Prior.ridge(2)).theta[0]
    )
    spread = unseen @ learner.model.decided
    assert spread @ spread == pytest.approx(1.0)


def test_an_estimated_prior_is_fitted_even_for_gaussian_rewards() -> None:
    """ridge="auto" makes fits run, and strong effects make the prior weak."""
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
    """Expect and learn raise InvalidInput, and the next renewal knows nothing of the row."""
    told = story(Bernoulli(), share, metric)
    told.wander(60, np.random.default_rng(10))
    learner, bad = told.learner, np.array([0.1, value, 0.2, 0.3])
    counts = learner.model.n, learner.model.pending
    with pytest.raises(InvalidInput):
        learner.learn(bad, 1.0, 0.25)
    with pytest.raises(InvalidInput):
        learner.add_pending(bad, 0.25)
    learner.fit()
    assert (learner.model.n, learner.model.pending) == counts
    assert np.isfinite(learner.model.decided).all()


def test_a_reward_outside_the_support_is_refused() -> None:
    """The decision is still pending, and no observation was added."""
    told = story(Bernoulli(), 1.0, "hessian")
    told.wander(60, np.random.default_rng(11))
    learner, event = told.learner, told.pending[0]
    before = learner.model.theta.copy(), learner.model.n, learner.model.pending
    with pytest.raises(InvalidInput, match=r"1\.5"):
        learner.learn(event.x, 1.5, event.frozen)
    assert learner.model.theta.tolist() == before[0].tolist()
    assert (learner.model.n, learner.model.pending) == before[1:]
    assert learner.estimate.n == before[1]


def test_blind_learners_have_one_root() -> None:
    """Where pending decisions count nothing, one step moves what is observed and decided."""
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
    "ucb-spectral": DelayedUCB(6, Bernoulli(), spectral=True),
    "blind": BlindUCB(6, Bernoulli()),
    "randomized": DelayedUCB(6, Bernoulli(), randomized=True),
    "thompson": DelayedThompson(6, Bernoulli()),
    "gaussian": DelayedUCB(6, Gaussian("estimate")),
    "poisson": DelayedUCB(6, Poisson()),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("contexts", ["fixed", "fresh"])
def test_plain_and_compiled_kernels_decide_the_same(policy: Policy, contexts: str) -> None:
    """All 500 choices agree; propensities and θ̂ do to rounding."""
    family = Gaussian(0.1) if isinstance(policy.family, Gaussian) else policy.family
    world = getattr(environments, contexts)(2, dim=6, n_arms=8, norm=1.0, family=family)
    plain, compiled = (
        simulate(policy, world, delays.Geometric(mean=30), horizon=500, seed=1, kernels=which())
        for which in (kernels.plain, kernels.compiled)
    )
    assert plain.actions.tolist() == compiled.actions.tolist()
    np.testing.assert_allclose(plain.propensities, compiled.propensities, atol=1e-6)
    theta = compiled.learner.model.theta
    np.testing.assert_allclose(plain.learner.model.theta, theta, rtol=0.0, atol=1e-8)
    assert np.abs(theta).max() > 0.1
