"""What an estimator returns, and what it is."""

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

#: Two-sided 95 % of a normal law, in standard deviations.
Z = 1.959964
#: Rewards that the prior of one coefficient is worth, when a fit is due.
PRIOR_WORTH = 4
#: Coefficients of one block beyond which fits are fewer.
WIDE = 128
#: Rewards that call for the first fit of a wide block.
FIRST = 8


@dataclass(frozen=True, eq=False)
class Estimate(Result):
    """The posterior of θ given what has arrived, as a normal distribution.

    Attributes:
        theta: the maximum of the posterior.
        mean: its mean, over all that the prior's precision may be if that was estimated; otherwise
            theta, unless the estimator corrects for skewness.
        precision: the inverse covariance given the prior, of observed rewards and the prior only.
        n: rewards counted.
        converged: False if theta is not the maximum; it is finite all the same.
        iterations: passes over the observations.
        prior: the prior used, with its estimated precision if it was adaptive.
        dispersion: φ, estimated where the family asks for it.
        doubt: what the covariance has beyond the inverse of the precision, for the prior's own
            precision was estimated; None if it was given.
        trace: of the covariance, as of the last step of a fit; None if it is not known.
        names: what the coefficients belong to, if features say it.
        effective_n: rewards by what they still count for; None if all count in full.
        half_life_us: the half-life by which they do, in microseconds; None: nothing is forgotten.
        half_life_since_us: when it was picked, in microseconds since 1970; None if there was no
            other before.
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
        """The half-life in use; None: nothing is forgotten."""
        return None if self.half_life_us is None else timedelta(microseconds=self.half_life_us)

    @property
    def half_life_since(self) -> datetime | None:
        """Since when, by the clock of the journal; None if no other was in use before."""
        since = self.half_life_since_us
        return None if since is None else as_datetime(since)

    @cached_property
    def covariance(self) -> Matrix:
        """Of θ: the inverse of the precision, and the doubt about the prior."""
        inverse = inverse_of(self.precision)
        return inverse if self.doubt is None else inverse + self.doubt

    def over(self, mixed: Mixed | None) -> Estimate:
        """Return it with the mean and the covariance over all precisions of the prior."""
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
        """Return the coefficients as a DataFrame of pandas, by name."""
        return frame_of(self.coefficients(), "name")

    def to_dict(self) -> dict[str, Any]:
        """Return the coefficients and how they came about as plain data."""
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
        rows: list[list[object]] = [list(one.values()) for one in self.coefficients()]
        title = f"Estimate from {self.n:,} rewards"
        return html_table(title, ["name", "mean", "sd", "low", "high"], rows)

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


def next_fit(n: int, shape: Shape, growth: float) -> float:
    """How many rewards call for a fit once all that is known has grown by a factor.

    What is known before any reward counts too: a prior of precision 1 is worth four rewards of a
    Bernoulli for each coefficient, so the first rewards of many coefficients say little. But a
    quarter more rewards always call for a fit. Where a block is wide, a fit takes long and steps
    are good for longer: twice as many rewards call for one, or as many as ten for each coefficient.

    >>> [next_fit(n, (20,), growth=1.05) for n in (0, 20, 100, 10_000)]
    [1, 25.0, 109.0, 10504.0]
    >>> next_fit(100, (10, 384), growth=1.05)
    200
    """
    if shape[-1] > WIDE and growth > 1.0:
        return n + max(FIRST, n / 4, min(n, 10 * shape[-1]))
    known = n + PRIOR_WORTH * math.prod(shape)
    return n + max(1, min((growth - 1.0) * known, n / 4))


class Estimator(Protocol):
    """A way to estimate θ."""

    def next_fit(self, n: int, shape: Shape) -> float:
        """After a fit of ``n`` rewards: how many call for the next one. Never is infinite.

        Args:
            n: rewards in the fit.
            shape: of θ.
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
        """The estimate of these observations; unpolished is good enough to choose by."""
