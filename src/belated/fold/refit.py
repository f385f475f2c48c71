"""A fit beside the fold: what it is of, and what has happened to that since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from belated.core.inputs import Row, Vector
from belated.model.blocks import add_gram, cross, predictors, solve
from belated.model.estimators import Estimate
from belated.model.families import Family
from belated.model.kernels import MAX_WEIGHT
from belated.model.statistics import Joined


@dataclass(eq=False)
class Refit:
    """A fit that is under way.

    Attributes:
        seen: what it is of.
        upto: by partition, the first handle that it does not know.
        amended: Σ (new - old) x of rewards that were revised.
        removed: rows and rewards that were retracted.
    """

    seen: Joined
    upto: list[int]
    amended: Vector
    removed: list[tuple[Vector, float]]

    def finished(
        self, estimate: Estimate, since: Sequence[tuple[Row, Vector]], family: Family
    ) -> Estimate:
        """Return the fit with what has changed since it began: one Newton step for that.

        Args:
            estimate: what the fit came to.
            since: rows and rewards that have come.
            family: of the rewards.
        """
        score, precision = self.amended, estimate.precision.copy()
        removed = [(x[None, :], np.array([y])) for x, y in self.removed]
        for sign, changes in ((1.0, since), (-1.0, removed)):
            for rows, y in changes:
                table = rows.astype(np.float64)
                _, mean, slope = family.cumulant_mean_slope(predictors(table, estimate.mean))
                score = score + cross(sign * (y - mean), table, score.shape)
                add_gram(
                    precision, table, sign * np.minimum(slope / estimate.dispersion, MAX_WEIGHT)
                )
        step = solve(precision, score / estimate.dispersion)
        return replace(estimate, precision=precision, mean=estimate.mean + step)
