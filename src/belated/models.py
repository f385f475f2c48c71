r"""The model a policy reads: θ̂ and two roots, kept up to date one rank-one step at a time.

``observed`` is a root of the covariance of what has arrived: S Sᵀ = (prior + Σ w x xᵀ)⁻¹ over the
rewards seen. ``decided`` counts the pending decisions too, with their weights frozen at the
choice: what has been asked already need not be asked again, though the answer is still out.

Between two fits of an estimator the model moves by one step per event. For Gaussian rewards these
steps are exact. For others a step solves the reward's own likelihood exactly along one direction
and leaves the weights of older rows where they were; the next fit mends that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dtrtri

from belated import kernels
from belated.exceptions import InvalidInput
from belated.families import Family, Gaussian
from belated.inputs import Matrix, Vector
from belated.priors import Prior
from belated.statistics import Information

#: How far one step may move a linear predictor when a reward is taken back.
STEP = 3.0


def root_of(precision: Matrix) -> Matrix:
    """A root S of the inverse: S Sᵀ = H⁻¹, in C order.

    >>> root_of(np.array([[4.0]]))
    array([[0.5]])
    """
    factor, failed = dpotrf(precision, lower=1, clean=1)
    if not failed:
        inverse, failed = dtrtri(factor, lower=1)
    if not failed:
        return np.ascontiguousarray(inverse.T)
    # Rounding has made a direction of H vanish. Equal scales first, then the spectrum's floor.
    scale = 1.0 / np.sqrt(np.maximum(np.diag(precision), np.finfo(float).tiny))
    values, vectors = eigh(precision * scale[:, None] * scale)
    values = np.maximum(values, np.finfo(float).eps * len(values) * values[-1])
    return np.ascontiguousarray(scale[:, None] * vectors / np.sqrt(values))


class Model:
    """θ̂ with both roots. Every row that is learned was expected before.

    Attributes:
        theta: θ̂, on the scale of the linear predictor.
        observed: a root S of the covariance of what has arrived: S Sᵀ = H⁻¹.
        decided: a root that counts pending decisions too.
        n: rewards counted.
        pending: decisions whose reward is out, G_t.
        dispersion: φ.

    >>> from belated import Bernoulli
    >>> model = Model(Prior.ridge(2), Bernoulli())
    >>> x = np.array([0.5, 1.0])
    >>> index, ties, mean, weight = model.upper([x], width=2.0)
    >>> model.expect(x, weight)
    >>> model.pending, model.n
    (1, 0)
    >>> weight = model.learn(x, 1.0)
    >>> model.pending, model.n
    (0, 1)
    >>> model.theta.round(3)
    array([0.191, 0.383])
    """

    def __init__(
        self,
        prior: Prior,
        family: Family,
        *,
        theta: Vector | None = None,
        precision: Matrix | None = None,
        pending: Information | None = None,
        n: int = 0,
        dispersion: float | None = None,
        using: kernels.Kernels | None = None,
    ) -> None:
        self.family = family
        self.theta: Vector = np.array(prior.mean if theta is None else theta, dtype=np.float64)
        observed = prior.precision if precision is None else precision
        self.renew(observed, observed if pending is None else observed + pending.matrix)
        self.n = n
        self.pending = 0 if pending is None else pending.count
        known = family.dispersion if dispersion is None else dispersion
        self.dispersion = 1.0 if known is None else known
        self._least, self._most = family.support.lower, family.support.upper
        # Compiled kernels know the built-in families by number; any other runs in plain Python.
        self._kernels = kernels.plain() if family.number is None else using or kernels.best()
        self._family = family if self._kernels is kernels.plain() else family.number

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.theta)

    def renew(self, observed: Matrix, decided: Matrix) -> None:
        """Make both roots anew from their precisions, so that the rounding of steps ends.

        Whoever keeps the sums calls this every max(1000, 10 d) steps.
        """
        self.observed = root_of(observed)
        self.decided = self.observed.copy() if decided is observed else root_of(decided)

    def score(self, rows: Any) -> tuple[Vector, Vector]:
        """Linear predictors and standard deviations of rows, pending decisions counted."""
        return self._kernels.score(np.asarray(rows, np.float64), self.theta, self.decided)

    def upper(self, rows: Any, width: float, u: float = 0.0) -> tuple[int, int, float, float]:
        """The row with the greatest xᵀθ̂ + width · sd (Alg. 1, l. 6).

        Returns its index, how many rows tied for it, its mean, and the weight g'(η)/φ with which
        it is to be expected.

        Args:
            rows: one row per action.
            width: the β_t of the paper.
            u: a uniform number in [0, 1) that draws among ties.
        """
        index, ties, mean, slope = self._kernels.upper(
            np.asarray(rows, np.float64), self.theta, self.decided, width, u, self._family
        )
        if mean != mean:
            raise _not_finite(rows)
        return index, ties, mean, slope / self.dispersion

    def expect(self, x: Any, weight: float) -> None:
        """A decision for this row is pending; its weight was frozen at the choice."""
        if not self._kernels.count(self.decided, np.asarray(x, np.float64), weight) < math.inf:
            raise _not_finite(x)
        self.pending += 1

    def withdraw(self, x: Any, weight: float) -> bool:
        """A pending decision left without a reward.

        Returns False if next to nothing but this row was known of its direction: a step cannot
        take it out, and ``decided`` must be renewed from its sum.
        """
        q = self._kernels.count(self.decided, np.asarray(x, np.float64), -weight)
        if not q < math.inf:
            raise _not_finite(x)
        self.pending -= 1
        return 1.0 - weight * q > kernels.LEFT

    def learn(self, x: Any, y: float) -> float:
        """The reward of a pending decision came; returns the weight its row now has."""
        if not self._least <= y <= self._most:
            self.family.support.check(y)
        weight = self._kernels.learn(
            self.observed, self.theta, np.asarray(x, np.float64), y, self._family, self.dispersion
        )
        if weight != weight:
            raise _not_finite(x)
        self.n += 1
        self.pending -= 1
        return weight

    def retract(self, x: Any, y: float) -> float:
        """A reward that was learned is taken back, and its decision is pending again.

        One that is to be forgotten altogether is then withdrawn. Returns the weight taken out.
        """
        cap = math.inf if isinstance(self.family, Gaussian) else STEP
        row = np.asarray(x, np.float64)
        weight = self._kernels.unlearn(
            self.observed, self.theta, row, y, self._family, self.dispersion, cap
        )
        if weight != weight:
            raise _not_finite(x)
        self.n -= 1
        self.pending += 1
        return weight

    def revise(self, x: Any, old: float, new: float) -> float:
        """The reward of a row was ``old`` and is ``new``: taken back and learned again.

        Returns by how much the weight of the row has grown.
        """
        self.family.support.check(new)
        return -self.retract(x, old) + self.learn(x, new)


def _not_finite(rows: Any) -> InvalidInput:
    return InvalidInput("a row holds a number that is not finite", rows)
