"""What a bound on regret is for: the size of a problem, and the constants of its rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from belated.core.inputs import as_dim, as_positive
from belated.delays.whole import as_rounds
from belated.exceptions import InvalidInput
from belated.model.families import Family
from belated.theory.warmups import greatest_slope, least_slope, noise


@dataclass(frozen=True, kw_only=True)
class Setting:
    r"""A problem as the theorems on regret see it: rows of length at most 1, and rewards.

    Args:
        horizon: T, more rounds than features.
        dim: d, the number of features.
        sigma: σ̂, by which a reward is sub-Gaussian around its mean.
        kappa: κ, the least slope of the mean, see :func:`~belated.theory.least_slope`.
        steepest: L_g, its greatest slope.
        span: the most that one round can cost. The paper's rewards are in [0, 1], so that it is 1;
            linear rewards, which the paper treats with the same theorems, need not be.

    >>> from belated import Bernoulli
    >>> Setting.of(Bernoulli(), horizon=10_000, dim=10, norm_bound=3.0)
    Setting(horizon=10000, dim=10, sigma=0.5, kappa=0.0177, steepest=0.25, span=1.0)
    """

    horizon: int
    dim: int
    sigma: float
    kappa: float
    steepest: float
    span: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", as_rounds(self.horizon, "horizon", least=1))
        object.__setattr__(self, "dim", as_dim(self.dim))
        for name in ("sigma", "kappa", "steepest", "span"):
            object.__setattr__(self, name, as_positive(getattr(self, name), name))
        if self.horizon <= self.dim:
            message = f"horizon is {self.horizon}: more rounds than the {self.dim} features"
            raise InvalidInput(f"{message} were expected", self.horizon)

    @classmethod
    def of(cls, family: Family, *, horizon: int, dim: int, norm_bound: float) -> Setting:
        r"""The constants of a family, for \|θ*\| ≤ S.

        For Poisson rewards, which are not sub-Gaussian, what follows is a rule of thumb.

        Args:
            family: of the rewards.
            horizon: T, the number of rounds.
            dim: d, the number of features.
            norm_bound: S, at least \|θ*\|.
        """
        kappa = least_slope(family, norm_bound)
        low, high = family.mean(np.array([-norm_bound, norm_bound]))
        bounded = family.support.upper - family.support.lower
        return cls(
            horizon=horizon,
            dim=dim,
            sigma=noise(family, norm_bound),
            kappa=kappa,
            steepest=greatest_slope(family, norm_bound),
            span=bounded if np.isfinite(bounded) else float(high - low),
        )
