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
from belated.statistics import BATCH, Information

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


class Root(Information):
    """A root of an inverse precision, and the precision as the sum it comes from.

    The root moves by rank-one steps; every max(1000, 10 d) of them it is made anew from the sum,
    so rounding does not pile up.
    """

    def __init__(self, precision: Matrix) -> None:
        super().__init__(len(precision), precision)
        self.matrix = root_of(precision)
        self._steps = 0

    @property
    def precision(self) -> Matrix:
        """H, the sum."""
        return self.total

    @property
    def covariance(self) -> Matrix:
        """H⁻¹ = S Sᵀ."""
        return self.matrix @ self.matrix.T

    def renew(self) -> None:
        """Make the root anew from the sum."""
        self.matrix = root_of(self.total)
        self._steps = 0

    def fold(self) -> None:
        """Fold in the rows that wait, and make the root anew if it has taken enough steps."""
        self._steps += self.waiting
        super().fold()
        if self._steps >= max(1000, 10 * self.dim):
            self.renew()


class Model:
    """θ̂ with both roots. Every row that is learned was expected before.

    Attributes:
        theta: θ̂, on the scale of the linear predictor.
        observed: root of the covariance of what has arrived.
        decided: root that counts pending decisions too.
        n: rewards counted.
        pending: decisions whose reward is out, G_t.
        dispersion: φ.

    >>> from belated import Bernoulli
    >>> model = Model(Prior.ridge(2), Bernoulli())
    >>> x = np.array([0.5, 1.0])
    >>> model.expect(x, model.weight(0.0))
    >>> model.pending, model.n
    (1, 0)
    >>> model.learn(x, 1.0)
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
        outstanding: int = 0,
        dispersion: float | None = None,
        using: kernels.Kernels | None = None,
    ) -> None:
        self.family = family
        self.theta: Vector = np.array(prior.mean if theta is None else theta, dtype=np.float64)
        observed = prior.precision if precision is None else precision
        self.observed = Root(observed)
        self.decided = Root(observed if pending is None else observed + pending.total)
        self.n = n
        self.pending = outstanding
        known = family.dispersion if dispersion is None else dispersion
        self.dispersion = 1.0 if known is None else known
        self._link = family.mean_and_slope
        self._least, self._most = family.support.lower, family.support.upper
        # Compiled kernels know the built-in families by number; any other runs in plain Python.
        self._kernels = kernels.plain() if family.number is None else using or kernels.best()
        self._family = family if self._kernels is kernels.plain() else family.number

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.theta)

    def score(self, rows: Any) -> tuple[Vector, Vector]:
        """Linear predictors and standard deviations of rows, pending decisions counted."""
        table = np.asarray(rows, np.float64)
        return self._kernels.score(table, self.theta, self.decided.matrix)

    def upper(self, rows: Any, width: float, u: float = 0.0) -> tuple[int, int, float]:
        """The row with the greatest xᵀθ̂ + width · sd (Alg. 1, l. 6).

        Returns its index, how many rows tied for it, and its linear predictor.

        Args:
            rows: one row per action.
            width: the β_t of the paper.
            u: a uniform number in [0, 1) that draws among ties.
        """
        table = np.asarray(rows, np.float64)
        choice = self._kernels.upper(table, self.theta, self.decided.matrix, width, u)
        if choice[2] != choice[2]:
            raise _not_finite(rows)
        return choice

    def weight(self, eta: float) -> float:
        """The information g'(η)/φ of a row with this linear predictor."""
        return self._link(eta)[1] / self.dispersion

    def expect(self, x: Any, weight: float) -> None:
        """A decision for this row is pending; its :meth:`weight` was frozen at the choice."""
        self._count(np.asarray(x, np.float64), weight)
        self.pending += 1

    def withdraw(self, x: Any, weight: float) -> None:
        """A pending decision left without a reward."""
        self._count(np.asarray(x, np.float64), -weight)
        self.pending -= 1

    def learn(self, x: Any, y: float) -> None:
        """The reward of a pending decision came."""
        if not self._least <= y <= self._most:
            self.family.support.check(y)
        root = self.observed
        if not self._kernels.learn(
            root.matrix,
            np.asarray(x, np.float64),
            y,
            self.theta,
            self._family,
            self.dispersion,
            root.rows,
            root.weights,
            root.waiting,
        ):
            raise _not_finite(x)
        root.waiting += 1
        if root.waiting == BATCH:
            root.fold()
        self.n += 1
        self.pending -= 1

    def retract(self, x: Any, y: float) -> None:
        """A reward that was learned is taken back, and its decision is pending again.

        One that is to be forgotten altogether is then withdrawn.
        """
        root = self.observed
        if not self._kernels.unlearn(
            root.matrix,
            np.asarray(x, np.float64),
            y,
            self.theta,
            self._family,
            self.dispersion,
            root.rows,
            root.weights,
            root.waiting,
            math.inf if isinstance(self.family, Gaussian) else STEP,
        ):
            raise _not_finite(x)
        root.waiting += 1
        if root.waiting == BATCH:
            root.fold()
        self.n -= 1
        self.pending += 1

    def revise(self, x: Any, old: float, new: float) -> None:
        """The reward of a row was ``old`` and is ``new``: taken back and learned again."""
        self.family.support.check(new)
        self.retract(x, old)
        self.learn(x, new)

    def _count(self, row: Vector, weight: float) -> None:
        root = self.decided
        q = self._kernels.count(root.matrix, row, weight, root.rows, root.weights, root.waiting)
        if not q < math.inf:
            raise _not_finite(row)
        root.waiting += 1
        if root.waiting == BATCH:
            root.fold()
        if 1.0 + weight * q <= kernels.LEFT:
            root.renew()  # nearly all that was known of this direction came from the row


def _not_finite(rows: Any) -> InvalidInput:
    return InvalidInput("a row holds a number that is not finite", rows)
