r"""The model behind the policies: θ̂ and two covariance roots, updated by rank-one steps.

``observed`` is a root of the covariance given the arrived rewards: S Sᵀ = (prior + Σ w x xᵀ)⁻¹.
``decided`` also includes the pending decisions, because there is no need to explore again what a
pending reward will show. The weight of a decision is fixed when its action is chosen.

Between two fits of an estimator, the model takes one step per event. For Gaussian rewards these
steps are exact. For other rewards, a step maximizes the posterior for one new reward along one
direction, and leaves the weights of older rows unchanged until the next fit.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_REWARD, Matrix, Row, Vector, as_reward
from belated.exceptions import InvalidInput
from belated.model.blocks import root_of, split, width_of
from belated.model.families import Family, Gaussian
from belated.model.kernels import LEFT, MAX_WEIGHT, TINY, Kernels, best, finite, greatest, plain
from belated.model.kernels.lapack import ddot
from belated.model.kernels.source import Blocks, predictors, winners
from belated.model.priors import Prior
from belated.model.statistics import Information

if TYPE_CHECKING:
    from belated.model.estimators import Estimate

#: Removing a row with more information than this would leave only rounding errors in its direction.
HEAVY = 1e8
#: Rewards with a smaller weight do not update the estimate.
LEAST_SHARE = 1e-9
#: Number of values scored at a time; as float64 they take 256 KB, which fits into the CPU cache.
AT_ONCE = 1 << 15
#: Maximum change of a linear predictor when a reward is retracted.
STEP = 3.0


class Model:
    """The estimate θ̂ with both covariance roots.

    Add each decision as pending before passing its reward to :meth:`learn`.

    Attributes:
        theta: θ̂, on the scale of the linear predictor; one row per block, if there are blocks.
        observed: a root S of the covariance given the arrived rewards: S Sᵀ = H⁻¹.
        decided: the root that also includes pending decisions.
        n: number of rewards received.
        pending: number of decisions with a pending reward, G_t.
        decisions: number of decisions so far, including those that ended without a reward.
        dispersion: the dispersion φ of the reward family.
        effective_n: sum of the rewards' weights; None if all rewards have full weight.
        rivals: θ̂ for each half-life being compared, one row each; None if none are compared.
        picked: index of this model in ``rivals``, where its row may be outdated.
        derived: values that policies compute from the model and cache under their own keys; cleared
            when the estimate changes.

    >>> from belated import Bernoulli
    >>> model = Model(Prior.ridge(2), Bernoulli())
    >>> x = np.array([0.5, 1.0])
    >>> index, ties, mean, weight = model.argmax_ucb([x], width=2.0)
    >>> model.add_pending(x, weight)
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
        kernels: Kernels | None = None,
    ) -> None:
        self.family = family
        self.theta: Vector = np.array(prior.mean if theta is None else theta, dtype=np.float64)
        self._width = width_of(self.theta.shape)
        observed = prior.precision if precision is None else precision
        self.renew(observed, observed if pending is None else observed + pending.matrix)
        self.n = n
        self.pending = 0 if pending is None else pending.count
        self.decisions = self.n + self.pending
        fixed = family.dispersion if dispersion is None else dispersion
        self.dispersion = 1.0 if fixed is None else fixed
        self.effective_n: float | None = None
        self.rivals: Matrix | None = None
        self.picked = 0
        self.derived: dict[Hashable, Any] = {}
        # Retracting a Gaussian reward is exact; for other rewards, the size of the step is limited.
        self._cap = math.inf if isinstance(family, Gaussian) else STEP
        self._least = max(family.support.lower, -MAX_REWARD)
        self._most = min(family.support.upper, MAX_REWARD)
        # Kernels identify built-in families by number; other families run in plain Python.
        self._kernels = plain() if family.number is None else kernels or best()
        self._family = family if family.number is None else family.number

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return self.theta.size

    def renew(self, observed: Matrix, decided: Matrix) -> None:
        """Recompute both roots from their precisions, to remove accumulated rounding errors.

        The owner of the sums calls this method every max(1000, 10 d) steps.
        """
        self.observed = root_of(observed)
        self.decided = self.observed.copy() if decided is observed else root_of(decided)

    def restart(self, theta: Vector, dispersion: float) -> None:
        """Continue from a new estimate, and clear all values derived from the old one."""
        self.theta = np.array(theta, dtype=np.float64)
        self.dispersion = dispersion
        self.derived.clear()

    def refitted(self, estimate: Estimate, observed: Matrix, decided: Matrix) -> Model:
        """Return a model with this estimate and the roots of these precisions.

        The estimate can cover all coefficients or one block.
        """
        model = copy(self)
        model.derived = {}
        model._width = width_of(estimate.mean.shape)
        model.restart(estimate.mean, estimate.dispersion)
        model.renew(observed, decided)
        return model

    def replace(self, model: Model, block: int | None) -> None:
        """Replace the estimate and the roots with those of a model from :meth:`refitted`.

        Args:
            model: a model of all coefficients, or of one block.
            block: the block of the model; None if it covers all coefficients.
        """
        if block is None:
            self.theta, self.observed, self.decided = model.theta, model.observed, model.decided
        else:
            self.theta[block] = model.theta
            self.observed[block], self.decided[block] = model.observed, model.decided
        self.dispersion = model.dispersion
        self.derived.clear()

    def score(self, rows: Any) -> tuple[Vector, Vector]:
        """Return the linear predictor and its standard deviation for each row.

        Standard deviations include the information of pending decisions.
        """
        table = self._table(rows)
        pieces = []
        for numbers, blocks in self._pieces(table):
            if not finite(numbers.ravel()):
                raise not_finite(rows)
            pieces.append(self._kernels.score(numbers, blocks, *self.stacked()))
        if len(pieces) == 1:
            return pieces[0]
        means, deviations = zip(*pieces, strict=True)
        return np.concatenate(means), np.concatenate(deviations)

    def argmax_ucb(self, rows: Any, width: float, u: float = 0.0) -> tuple[int, int, float, float]:
        """Find the row with the largest xᵀθ̂ + width · sd (Alg. 1, l. 6).

        Returns its index, the number of tied rows, its mean, and its weight g'(η)/φ as a pending
        decision.

        Args:
            rows: one row per action.
            width: the β_t of the paper.
            u: a random number, uniform in [0, 1), that breaks ties.
        """
        table = self._table(rows)
        if table.size > AT_ONCE:
            means, scores = self.score(table)
            scores *= max(width, TINY)
            scores += means
            index, ties = greatest(scores, u)
            mean, slope = self.family.mean_and_slope(float(means[index]) if ties else math.nan)
        else:
            numbers, blocks = self._split(table)
            index, ties, mean, slope = self._kernels.upper(
                numbers, blocks, *self.stacked(), width, u, self._family
            )
        if mean != mean:
            raise not_finite(rows)
        weight = slope / self.dispersion
        return index, ties, mean, weight if weight < MAX_WEIGHT else MAX_WEIGHT

    def argmax_ucb_all(
        self,
        rows: Row | Matrix,
        ends: Sequence[int],
        width: float,
        us: Vector,
        counted: Sequence[bool],
        share: float,
        gram: bool,
    ) -> list[tuple[int, int, float, float]]:
        """Run :meth:`argmax_ucb` for several tables in turn, adding each choice as pending.

        Args:
            rows: the rows of all tables, concatenated.
            ends: the index after the last row of each table.
            width: the β_t of the paper, for all tables.
            us: a random number for each table, uniform in [0, 1).
            counted: for each table, whether to add its choice as pending.
            share: the fraction of its weight that each pending choice adds.
            gram: whether that weight is 1 instead of the row's information.

        Raises:
            InvalidInput: a row is not finite. ``decided`` then includes the choices made before it.
        """
        choices = np.empty((len(ends), 4))
        shares = share * np.array(counted, dtype=np.float64)
        numbers, blocks = self._split(rows)
        count = self._kernels.argmax_ucb_all(
            numbers, blocks, np.asarray(ends), *self.stacked(), width, us, shares, gram,
            self.dispersion, self._family, choices,
        )  # fmt: skip
        if count < len(ends):
            raise not_finite(rows)
        pending = sum(counted)
        self.pending += pending
        self.decisions += pending
        return [
            (int(index), int(ties), mean, weight) for index, ties, mean, weight in choices.tolist()
        ]

    def sampled(self, rows: Any, pools: Row, u: float) -> tuple[int, float, float, float]:
        """Find the best row for θ̂ plus one column of a pool of deviations (Alg. 2, l. 11).

        ``u``, a number in [0, 1), selects the column. Each block has a pool. Returns the index of
        the best row, the share of columns for which it is the best, its mean and its weight.
        Identical rows divide their share evenly.
        """
        numbers, blocks = self._split(self._table(rows))
        theta, _ = self.stacked()
        index, share, mean, slope = self._kernels.sampled(
            numbers, blocks, theta, pools, u, self._family
        )
        if mean != mean:
            raise not_finite(rows)
        weight = slope / self.dispersion
        return index, share, mean, weight if weight < MAX_WEIGHT else MAX_WEIGHT

    def winners(self, table: Matrix, pools: Row) -> NDArray[np.int64]:
        """Return the index of the best row for each column of the pools."""
        numbers, blocks = self._split(table)
        theta, _ = self.stacked()
        return winners(numbers, blocks, predictors(numbers, blocks, theta), pools)

    def predict(self, x: Any) -> tuple[float, float]:
        """Return the predicted mean and the weight of one row."""
        numbers, theta = self._part(x, self.theta)
        eta = float(numbers @ theta)
        if not math.isfinite(eta):
            raise not_finite(x)
        mean, slope = self.family.mean_and_slope(eta)
        return mean, min(slope / self.dispersion, MAX_WEIGHT)

    def weight_at(self, mean: float) -> float:
        """Return the weight of a row with a given predicted mean."""
        weight = self.family.slope_at(mean) / self.dispersion
        return MAX_WEIGHT if weight > MAX_WEIGHT else weight

    def add_pending(self, x: Any, weight: float) -> None:
        """Add a pending decision for a row, with the weight computed when the row was chosen."""
        self.count(x, weight)
        self.pending += 1
        self.decisions += 1

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Add several pending decisions; if a row is not finite, add none."""
        before, self.decided = self.decided, self.decided.copy()
        _, roots = self.stacked()
        if self._kernels.count_all(roots, *self._split(rows), weights) < len(rows):
            self.decided = before
            raise not_finite(rows)
        self.pending += len(rows)
        self.decisions += len(rows)

    def note(self, x: Any) -> None:
        """Add a pending decision for a row without counting the row as explored."""
        if not finite(self._part(x)[0]):
            raise not_finite(x)
        self.pending += 1
        self.decisions += 1

    def count(self, x: Any, weight: float) -> float:
        """Add weight to a row in ``decided``; return xᵀH⁻¹x from before the update."""
        numbers, root = self._part(x, self.decided)
        q = self._kernels.count(root, numbers, weight)
        if q != q:
            raise not_finite(x)
        return q

    def remove_pending(self, x: Any, weight: float) -> bool:
        """Remove a pending decision that ended without a reward.

        Returns False if nearly all information about the row's direction came from this row. A
        rank-one step cannot remove such a row, so the caller must recompute ``decided`` from its
        sum.
        """
        q = math.inf if _heavy(self._part(x)[0], weight) else self.count(x, -weight)
        self.pending -= 1
        return 1.0 - weight * q > LEFT

    def learn(self, x: Any, y: float, share: float = 1.0) -> float:
        """Update the estimate with the reward of a pending decision; return its row's new weight.

        Args:
            x: the row.
            y: the reward.
            share: weight of the reward; 1 for a full reward.
        """
        if not self._least <= y <= self._most:
            self.family.support.check(as_reward(y))
        numbers, root, theta = self._part(x, self.observed, self.theta)
        weight = 0.0
        if share >= LEAST_SHARE:
            # Raising a likelihood to the power of ``share`` divides its dispersion by ``share``.
            weight = self._kernels.learn(
                root, theta, numbers, y, self._family, self.dispersion / share
            )
            if weight != weight:
                raise not_finite(x)
        self.n += 1
        self.pending -= 1
        return weight

    def means_of(self, x: Vector | Row, mean: float) -> tuple[float, ...]:
        """Return the mean of a row for each half-life, with ``mean`` in the place of this model."""
        assert self.rivals is not None
        link = self.family.mean_and_slope
        numbers, rivals = self._part(x, self.rivals.swapaxes(0, -2))
        means = [link(eta)[0] for eta in (rivals @ numbers).tolist()]
        means[self.picked] = mean
        return tuple(means)

    def retract(self, x: Any, y: float, weight: float) -> bool:
        """Retract a reward from the estimate, so that its decision is pending again.

        To forget the decision, call :meth:`remove_pending` afterwards. Returns False if nearly all
        information about the row's direction came from this row. A rank-one step cannot remove such
        a row: only the counts change, and the caller must fit the model again.

        Args:
            x: the row.
            y: the reward.
            weight: weight of the row, from :meth:`learn` or from the last fit.
        """
        self.family.support.check(as_reward(y))
        numbers, root, theta = self._part(x, self.observed, self.theta)
        remains = 0.0
        if not _heavy(numbers, weight):
            remains = self._kernels.unlearn(
                root, theta, numbers, y, weight, self._family, self.dispersion, self._cap
            )
        if remains != remains:
            raise not_finite(x)
        self.n -= 1
        self.pending += 1
        return remains > LEFT

    def revise(self, x: Any, old: float, new: float) -> None:
        """Change the reward of a row from ``old`` to ``new``; the row's weight does not change.

        This is exact for Gaussian rewards. For other rewards it is one Newton step, which the next
        fit corrects.
        """
        for y in (old, new):
            self.family.support.check(as_reward(y))
        step = (new - old) / self.dispersion
        numbers, root, theta = self._part(x, self.observed, self.theta)
        if not self._kernels.amend(root, theta, numbers, step, self._cap):
            raise not_finite(x)

    def _part(self, x: Any, *arrays: Vector | Matrix) -> tuple[Any, ...]:
        """Return a row without its block number, and the part of each array for that block."""
        row = np.asarray(x, np.float64, order="C")
        if row.shape != (self._width,):
            message = f"the row must have {self._width} numbers, got shape {row.shape}"
            raise InvalidInput(message, x)
        if self.theta.ndim == 1:
            return row, *arrays
        block = int(row[0])
        self._check_blocks(block, block)
        return row[1:], *(array[block] for array in arrays)

    def _split(self, table: Row | Matrix) -> tuple[Matrix, Blocks]:
        """Return rows without their block numbers, and the block numbers."""
        if self.theta.ndim == 1:
            numbers, blocks = table, np.zeros(len(table), dtype=np.int64)
        else:
            blocks, numbers = split(table)
            if blocks.view(np.uint64).max() >= len(self.theta):  # negative numbers become large
                self._check_blocks(int(blocks.min()), int(blocks.max()))
        return np.asarray(numbers, np.float64, order="C"), blocks

    def _pieces(self, table: Row | Matrix) -> Iterator[tuple[Matrix, Blocks]]:
        """Split rows into pieces, because converting all to float64 at once is slower than BLAS."""
        step = max(1, AT_ONCE // self._width)
        for start in range(0, len(table), step):
            yield self._split(table[start : start + step])

    def _check_blocks(self, least: int, most: int) -> None:
        if least < 0 or most >= len(self.theta):
            block = least if least < 0 else most
            message = f"the block of a row must be from 0 to {len(self.theta) - 1}, got {block}"
            raise InvalidInput(message, block)

    def stacked(self) -> tuple[Matrix, Matrix]:
        """Return θ̂ and the root that includes pending decisions, each with an axis for blocks."""
        if self.theta.ndim == 2:
            return self.theta, self.decided
        return self.theta[None], self.decided[None]

    def table(self, rows: Any) -> Matrix:
        """Return rows as float64, or raise InvalidInput if they do not fit this model."""
        table = np.asarray(self._table(rows), np.float64, order="C")
        if not finite(table.ravel()):
            raise not_finite(rows)
        return table

    def _table(self, rows: Any) -> Row | Matrix:
        single = type(rows) is np.ndarray and rows.dtype == np.float32
        table = rows if single else np.asarray(rows, np.float64, order="C")
        if table.ndim != 2 or table.shape[1] != self._width or len(table) == 0:
            message = f"`rows` must have at least one row of {self._width} numbers"
            raise InvalidInput(f"{message}, got shape {table.shape}", rows)
        return table


def _heavy(row: Vector, weight: float) -> bool:
    size = weight * ddot(row, row)
    if not math.isfinite(size):
        raise not_finite(row)
    return bool(size > HEAVY)


def not_finite(rows: Any) -> InvalidInput:
    """Return the error for a row that a kernel rejected."""
    return InvalidInput("a row, or its weight, contains a number that is not finite", rows)
