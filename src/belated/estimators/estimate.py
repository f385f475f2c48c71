"""What an estimator returns, and what it is."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from belated.exceptions import ScaleWarning
from belated.families import Family
from belated.inputs import Matrix, Vector
from belated.models import Model, root_of
from belated.priors import Prior
from belated.statistics import Information, Seen

#: The lengths of rows, and the prior standard deviations of xᵀθ, that make sense.
SENSIBLE = (1e-3, 1e3)


@dataclass(frozen=True, eq=False)
class Estimate:
    """The posterior of θ given what has arrived, as a normal distribution.

    Attributes:
        theta: the maximum of the posterior.
        mean: its mean; theta unless the estimator corrects for skewness.
        precision: the inverse covariance, of observed rewards and the prior only.
        n: rewards counted.
        converged: False if theta is not the maximum; it is finite all the same.
        iterations: passes over the observations.
        prior: the prior used, with its estimated precision if it was adaptive.
        dispersion: φ, estimated where the family asks for it.
    """

    theta: Vector
    mean: Vector
    precision: Matrix
    n: int
    converged: bool
    iterations: int
    prior: Prior
    dispersion: float

    @cached_property
    def covariance(self) -> Matrix:
        """The inverse of the precision."""
        root = root_of(self.precision)
        return root @ root.T

    def model(self, family: Family, *, pending: Information | None = None) -> Model:
        """The model that starts from this estimate, with the information still outstanding."""
        return Model(
            self.prior,
            family,
            theta=self.mean,
            precision=self.precision,
            pending=pending,
            n=self.n,
            dispersion=self.dispersion,
        )


class Estimator(Protocol):
    """A way to estimate θ."""

    def next_fit(self, n: int) -> float:
        """After a fit of ``n`` rewards: how many call for the next one. Never is infinite."""

    def fit(
        self,
        data: Seen,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> Estimate:
        """The estimate of these observations; unpolished is good enough to choose by."""


def warn_of_scale(n: int, squared_length: float, prior: Prior) -> None:
    """Warn if the prior says nothing sensible of rows with this mean squared length."""
    if n == 0 or squared_length == 0.0 or prior.adaptive:
        return
    ridge = prior.precision.trace() / prior.dim
    length = math.sqrt(squared_length)
    deviation = length / math.sqrt(ridge)
    if any(SENSIBLE[0] <= size <= SENSIBLE[1] for size in (length, deviation)):
        return
    effect = "is no prior at all" if deviation > 1 else "drowns what the rewards say"
    warnings.warn(
        f"rows have a typical length of {length:.2g}: a prior precision of {ridge:.2g} {effect}."
        f" Scale the features to a length of about 1, or use ridge={1 / squared_length:.1g}",
        ScaleWarning,
        stacklevel=4,
    )
