import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.blocks import root_of
from belated.model.estimators import Estimator, Laplace, Online, Ridge
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Observations

# Rows near zero length and prior are out of scale, rightly; it is not what is tested here.

FAMILIES: list[Family] = [Gaussian(), Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


@st.composite
def priors(draw: st.DrawFn) -> Prior:
    """Ridges, weak and strong, and full matrices with a mean."""
    dim = draw(st.integers(1, 4))
    ridge = draw(st.sampled_from([0.1, 1.0, 10.0]))
    if draw(st.booleans()):
        return Prior.ridge(dim, ridge)
    entries = st.floats(-2.0, 2.0)
    data = draw(arrays.arrays(np.float64, (dim, dim), elements=entries))
    mean = draw(arrays.arrays(np.float64, dim, elements=entries))
    return Prior.normal(mean, ridge * np.eye(dim) + data @ data.T)


def _inverse(precision: Matrix, covariance: Matrix, close: float) -> None:
    """The product is I, to rounding of the condition of the precision."""
    condition = float(np.linalg.cond(precision))
    residual = np.abs(precision @ covariance - np.eye(len(precision))).max()
    assert residual <= close * max(condition, 1.0)
    assert np.allclose(covariance, covariance.T, rtol=1e-9)
    assert (np.diag(covariance) > 0.0).all()


@given(priors())
def test_a_prior_and_its_root_are_inverse(prior: Prior) -> None:
    """Before any reward: the prior's precision times S Sᵀ is I."""
    root = root_of(prior.precision)
    _inverse(prior.precision, root @ root.T, 1e-14)
    model = Model(prior, Bernoulli())
    _inverse(prior.precision, model.observed @ model.observed.T, 1e-14)
    _inverse(prior.precision, model.decided @ model.decided.T, 1e-14)


# Rewards without noise, all zeros for one, may leave H too ill-conditioned: it says so, rightly.
@pytest.mark.filterwarnings("ignore::belated.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("estimator", "family"),
    [
        *((Ridge(), family) for family in (Gaussian(), Gaussian(0.25), Gaussian("estimate"))),
        *((way, family) for way in (Laplace(), Online()) for family in FAMILIES),
    ],
    ids=repr,
)
@given(data=st.data())
def test_precision_and_covariance_of_an_estimate_are_inverse(
    estimator: Estimator, family: Family, data: st.DataObject
) -> None:
    """For each estimator and family, also without any observation."""
    prior = data.draw(priors())
    n = data.draw(st.integers(0, 12))
    entries = st.floats(-2.0, 2.0, width=32)
    rows = data.draw(arrays.arrays(np.float32, (n, prior.dim), elements=entries))
    observations = Observations(prior.dim)
    observations.extend(
        rows, data.draw(arrays.arrays(np.float64, n, elements=st.sampled_from([0.0, 1.0])))
    )
    estimate = estimator.fit(observations, family=family, prior=prior)
    _inverse(estimate.precision, estimate.covariance, 1e-14)
    # Where the variance is estimated, a ridge is told in units of it.
    unit = estimate.dispersion if family.dispersion is None and prior.is_ridge else 1.0
    eigenvalues = np.linalg.eigvalsh(estimate.precision - prior.precision / unit)
    size = np.linalg.eigvalsh(estimate.precision)[-1]
    assert eigenvalues[0] >= -1e-14 * max(1.0, size)


class Ledger:
    """A model, and the sums that whoever drives it would keep."""

    def __init__(self, prior: Prior, family: Family, using: kernels.Kernels) -> None:
        self.model = Model(prior, family, kernels=using)
        self.observed = prior.precision.copy()
        self.decided = prior.precision.copy()
        self.pending: list[tuple[Vector, float]] = []
        self.learned: list[tuple[Vector, float, float, float]] = []
        self.steps = 0
        self.least, self.most = math.inf, 0.0

    def add_pending(self, x: Vector, _: float, __: int) -> None:
        """A row is chosen."""
        weight = self.model.argmax_ucb([x], 1.0)[3]
        self.model.add_pending(x, weight)
        self.pending.append((x, weight))
        self.decided += weight * np.outer(x, x)

    def learn(self, _: Vector, y: float, at: int) -> None:
        """A reward comes for something pending."""
        if self.pending:
            x, weight = self.pending.pop(at % len(self.pending))
            gained = self.model.learn(x, y)
            self.observed += gained * np.outer(x, x)
            self.learned.append((x, y, weight, gained))

    def remove_pending(self, _: Vector, __: float, at: int) -> None:
        """Something pending leaves without a reward."""
        if self.pending:
            x, weight = self.pending.pop(at % len(self.pending))
            self.decided -= weight * np.outer(x, x)
            if not self.model.remove_pending(x, weight):
                self.model.renew(self.observed, self.decided)

    def retract(self, _: Vector, __: float, at: int) -> None:
        """A reward is taken back."""
        if self.learned:
            x, y, weight, gained = self.learned.pop(at % len(self.learned))
            self.observed -= gained * np.outer(x, x)
            if not self.model.retract(x, y, gained):
                self.model.renew(self.observed, self.decided)
            self.pending.append((x, weight))

    def check(self) -> None:
        """Both roots are those of both sums, and the counters those of both lists."""
        self.steps += 1
        for precision, root in (
            (self.observed, self.model.observed),
            (self.decided, self.model.decided),
        ):
            values = np.linalg.eigvalsh(precision)
            self.least = min(self.least, float(values[0]))
            self.most = max(self.most, float(values[-1]))
            residual = np.abs(precision @ (root @ root.T) - np.eye(self.model.dim)).max()
            # H takes eigenvalues from least to most; a step's rounding grows with their ratio and,
            # where it takes information away, with the root of it once more.
            assert residual <= 1e-14 * self.steps * (self.most / self.least) ** 1.5
        assert self.model.n == len(self.learned)
        assert self.model.pending == len(self.pending)


verbs = st.sampled_from(["add_pending", "add_pending", "learn", "remove_pending", "retract"])


@pytest.mark.parametrize("using", [kernels.plain, kernels.compiled], ids=["plain", "compiled"])
@every_family
@given(data=st.data())
def test_both_roots_follow_any_sequence_of_events(
    family: Family, using: Any, data: st.DataObject
) -> None:
    """After each expectation, reward, withdrawal and retraction, roots and sums are inverse."""
    prior = data.draw(priors())
    ledger = Ledger(prior, family, using())
    rows = arrays.arrays(np.float64, prior.dim, elements=st.floats(-1.5, 1.5))
    rewards = st.sampled_from([0.0, 1.0])
    steps = st.lists(st.tuples(verbs, rows, rewards, st.integers(0, 50)), max_size=30)
    for verb, x, y, at in data.draw(steps):
        getattr(ledger, verb)(x, y, at)
        ledger.check()
