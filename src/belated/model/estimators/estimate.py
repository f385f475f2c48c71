"""Estimates, and the estimator interface."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.core.results import Result, frame_of, html_table
from belated.core.times import as_datetime
from belated.model.blocks import Shape, diagonal, inverse_of
from belated.model.estimators.integrated import Mixed
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Information, Seen

#: Two-sided 95 % quantile of the normal distribution, in standard deviations.
Z = 1.959964
#: Weight of the prior per coefficient, as a number of rewards; used to schedule fits.
PRIOR_WORTH = 4
#: Blocks with more coefficients than this are fitted less often.
WIDE = 128
#: Number of rewards before the first fit of a wide block.
FIRST = 8


@dataclass(frozen=True, eq=False)
class Estimate(Result):
    """The posterior of θ given the arrived rewards, as a normal distribution.

    Attributes:
        theta: maximum of the posterior.
        mean: mean of the posterior, integrated over the prior's precision if that is estimated;
            otherwise theta, unless the estimator corrects for skewness.
        precision: inverse covariance given the prior, from observed rewards and the prior only.
        n: number of rewards.
        converged: False if theta is not the maximum; theta is finite even then.
        iterations: number of passes over the observations.
        prior: the prior, with the estimated precision if it is adaptive.
        dispersion: the dispersion φ, estimated if the family requires it.
        doubt: the part of the covariance that is due to estimating the prior's precision; None if
            the precision was given.
        trace: trace of the covariance, from the last step of a fit; None if unknown.
        names: names of the coefficients, if features provide them.
        effective_n: sum of the rewards' weights; None if all rewards have full weight.
        half_life_us: half-life of the weights, in microseconds; None if nothing is forgotten.
        half_life_since_us: when the half-life was selected, in microseconds since 1970; None if it
            never changed.
    """

    theta: Vector
    mean: Vector
    precision: Matrix
    n: int
    converged: bool
    iterations: int
    prior: Prior
    dispersion: float
    doubt: Matrix | None = None
    trace: float | None = None
    names: tuple[str, ...] | None = None
    effective_n: float | None = None
    half_life_us: int | None = None
    half_life_since_us: int | None = None

    @property
    def half_life(self) -> timedelta | None:
        """The half-life in use; None if nothing is forgotten."""
        return None if self.half_life_us is None else timedelta(microseconds=self.half_life_us)

    @property
    def half_life_since(self) -> datetime | None:
        """When the half-life was selected, by the journal's clock; None if it never changed."""
        since = self.half_life_since_us
        return None if since is None else as_datetime(since)

    @cached_property
    def covariance(self) -> Matrix:
        """Covariance of θ: the inverse of the precision plus :attr:`doubt`."""
        inverse = inverse_of(self.precision)
        return inverse if self.doubt is None else inverse + self.doubt

    def over(self, mixed: Mixed | None) -> Estimate:
        """Return the estimate with mean and covariance integrated over the prior's precision."""
        if mixed is None:
            return self
        doubt = mixed.covariance - inverse_of(self.precision)
        return replace(self, mean=mixed.mean, doubt=doubt)

    def coefficients(self) -> list[dict[str, Any]]:
        """Return each coefficient with its name, standard deviation and 95 % interval."""
        mean = self.mean.ravel()
        names = self.names or tuple(f"x[{n}]" for n in range(len(mean)))
        deviations = np.sqrt(diagonal(self.covariance).ravel())
        return [
            {"name": name, "mean": mean, "sd": sd, "low": mean - Z * sd, "high": mean + Z * sd}
            for name, mean, sd in zip(names, mean.tolist(), deviations.tolist(), strict=True)
        ]

    def frame(self) -> Any:
        """Return the coefficients as a pandas DataFrame, indexed by name."""
        return frame_of(self.coefficients(), "name")

    def to_dict(self) -> dict[str, Any]:
        """Return the coefficients and a summary of the fit as plain data."""
        return {
            "n": self.n,
            "converged": self.converged,
            "dispersion": self.dispersion,
            "coefficients": self.coefficients(),
        }

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n={self.n}, dim={self.theta.size}, converged={self.converged})"
        )

    def _repr_html_(self) -> str:
        rows: list[list[object]] = [list(line.values()) for line in self.coefficients()]
        title = f"Estimate from {self.n:,} rewards"
        return html_table(title, ["name", "mean", "sd", "low", "high"], rows)

    def model(self, family: Family, *, pending: Information | None = None) -> Model:
        """Return a model with this estimate and the information of pending decisions."""
        return Model(
            self.prior,
            family,
            theta=self.mean,
            precision=self.precision,
            pending=pending,
            n=self.n,
            dispersion=self.dispersion,
        )


def next_fit(n: int, shape: Shape, growth: float) -> float:
    """Return the number of rewards at which the next fit is due.

    A fit is due when the information has grown by the factor ``growth``. This includes the prior: a
    precision of 1 is equivalent to four Bernoulli rewards per coefficient, so with many
    coefficients the first rewards change little. A fit is due at the latest when the number of
    rewards has grown by a quarter. For wide blocks, fits are slow and steps stay accurate for
    longer, so a fit is due when the number of rewards has doubled, or after ten more rewards per
    coefficient.

    >>> [next_fit(n, (20,), growth=1.05) for n in (0, 20, 100, 10_000)]
    [1, 25.0, 109.0, 10504.0]
    >>> next_fit(100, (10, 384), growth=1.05)
    200
    """
    if shape[-1] > WIDE and growth > 1.0:
        return n + max(FIRST, n / 4, min(n, 10 * shape[-1]))
    weight = n + PRIOR_WORTH * math.prod(shape)
    return n + max(1, min((growth - 1.0) * weight, n / 4))


class Estimator(Protocol):
    """The interface of an estimator of θ."""

    def next_fit(self, n: int, shape: Shape) -> float:
        """Return the number of rewards at which the next fit is due; infinity if it never is.

        Args:
            n: number of rewards in the last fit.
            shape: shape of θ.
        """

    def fit(
        self,
        data: Seen,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> Estimate:
        """Estimate θ; an unpolished estimate is accurate enough to choose actions."""
