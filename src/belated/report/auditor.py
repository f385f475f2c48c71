"""The auditor: a fit of all decisions, independent of what the bandit has learned.

A decision counts with the share of its reward that can have come by its age, so pending ones count
too: E[y] = F(age) μ(xᵀθ). Its covariance is the sandwich: it holds also where the model is not
quite right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.evaluation.values import fitted
from belated.model.families import Family

#: Precision of the prior.
RIDGE = 0.3
#: Features that are fitted, at most.
WIDEST = 400


@dataclass(frozen=True, eq=False)
class Auditor:
    """What was fitted.

    Attributes:
        theta: the coefficients.
        covariance: of them.
        family: of the rewards.
    """

    theta: Vector
    covariance: Matrix
    family: Family

    def means(self, rows: Matrix, theta: Vector | None = None) -> Vector:
        """What rows are worth."""
        return self.family.mean(rows @ (self.theta if theta is None else theta))

    def draws(self, count: int, seed: int = 0) -> Matrix:
        """Coefficients as they might be."""
        rng = np.random.default_rng(seed)
        return rng.multivariate_normal(self.theta, self.covariance, count, method="eigh")


def audit(
    rows: Matrix, outcome: Vector, exposure: Vector, base: float, family: Family
) -> Auditor | None:
    """Fit decisions; None if they have no rows, or too wide ones.

    Args:
        rows: of the decisions.
        outcome: what each has brought so far, beyond ``base``.
        exposure: how much of its reward each can have brought by its age.
        base: what a missing reward comes to.
        family: of the rewards.
    """
    if not len(rows) or rows.shape[1] > WIDEST:
        return None
    used = exposure > 0.0
    rows, exposure, outcome = rows[used], exposure[used], outcome[used]
    theta = fitted(rows, base + outcome / exposure, exposure, family, RIDGE)
    _, mean, slope = family.cumulant_mean_slope(rows @ theta)
    residual = np.square(outcome - exposure * (mean - base))
    ridge = RIDGE * np.eye(len(theta))
    inverse = np.linalg.inv((rows.T * (exposure * slope)) @ rows + ridge)
    covariance = inverse @ ((rows.T * residual) @ rows + ridge) @ inverse
    return Auditor(theta, (covariance + covariance.T) / 2, family)
