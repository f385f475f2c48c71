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

#: A row with more information than this has left nothing of its direction but rounding.
HEAVY = 1e8
#: A reward that counts for less than this is not learned.
LEAST_SHARE = 1e-9
#: Numbers that are scored at a time: as float64 a quarter of a megabyte, which stays in cache.
AT_ONCE = 1 << 15
#: How far one step may move a linear predictor when a reward is taken back.
STEP = 3.0


class Model:
    """θ̂ with both roots. Every row that is learned was expected before.

    Attributes:
        theta: θ̂, on the scale of the linear predictor; one row for each block, if there are blocks.
        observed: a root S of the covariance of what has arrived: S Sᵀ = H⁻¹.
        decided: a root that counts pending decisions too.
        n: rewards counted.
        pending: decisions whose reward is out, G_t.
        decisions: made so far, those that left without a reward too.
        dispersion: φ.
        effective_n: rewards by what they still count for; None if all count in full.
        rivals: θ̂ by each half-life that is compared, a row each; None if none are.
        picked: which of them this model is; its row of ``rivals`` may be old.
        derived: what policies derive from the model and use again, under keys of theirs; thrown
            away when the estimate is made anew.

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
        known = family.dispersion if dispersion is None else dispersion
        self.dispersion = 1.0 if known is None else known
        self.effective_n: float | None = None
        self.rivals: Matrix | None = None
        self.picked = 0
        self.derived: dict[Hashable, Any] = {}
        # Taking a Gaussian reward back is exact; for others it is a step, and a step has a limit.
        self._cap = math.inf if isinstance(family, Gaussian) else STEP
        self._least = max(family.support.lower, -MAX_REWARD)
        self._most = min(family.support.upper, MAX_REWARD)
        # Kernels know the built-in families by number; any other runs in plain Python.
        self._kernels = plain() if family.number is None else kernels or best()
        self._family = family if family.number is None else family.number

    @property
    def dim(self) -> int:
        """How many coefficients there are."""
        return self.theta.size

    def renew(self, observed: Matrix, decided: Matrix) -> None:
        """Make both roots anew from their precisions, so that the rounding of steps ends.

        Whoever keeps the sums calls this every max(1000, 10 d) steps.
        """
        self.observed = root_of(observed)
        self.decided = self.observed.copy() if decided is observed else root_of(decided)

    def restart(self, theta: Vector, dispersion: float) -> None:
        """Go on from an estimate; whatever was derived from the old one is thrown away."""
        self.theta = np.array(theta, dtype=np.float64)
        self.dispersion = dispersion
        self.derived.clear()

    def refitted(self, estimate: Estimate, observed: Matrix, decided: Matrix) -> Model:
        """Return a model of an estimate, of all coefficients or of one block, with these roots."""
        model = copy(self)
        model.derived = {}
        model._width = width_of(estimate.mean.shape)
        model.restart(estimate.mean, estimate.dispersion)
        model.renew(observed, decided)
        return model

    def replace(self, model: Model, block: int | None) -> None:
        """Take over estimate and roots of a model that :meth:`refitted` has made.

        Args:
            model: of all coefficients, or of a block.
            block: that it is of; None: all of them.
        """
        if block is None:
            self.theta, self.observed, self.decided = model.theta, model.observed, model.decided
        else:
            self.theta[block] = model.theta
            self.observed[block], self.decided[block] = model.observed, model.decided
        self.dispersion = model.dispersion
        self.derived.clear()

    def score(self, rows: Any) -> tuple[Vector, Vector]:
        """Linear predictors and standard deviations of rows, pending decisions counted."""
        table = self._table(rows)
        found = []
        for numbers, blocks in self._pieces(table):
            if not finite(numbers.ravel()):
                raise not_finite(rows)
            found.append(self._kernels.score(numbers, blocks, *self.stacked()))
        if len(found) == 1:
            return found[0]
        means, deviations = zip(*found, strict=True)
        return np.concatenate(means), np.concatenate(deviations)

    def argmax_ucb(self, rows: Any, width: float, u: float = 0.0) -> tuple[int, int, float, float]:
        """The row with the greatest xᵀθ̂ + width · sd (Alg. 1, l. 6).

        Returns its index, how many rows tied for it, its mean, and the weight g'(η)/φ with which
        it is to be expected.

        Args:
            rows: one row per action.
            width: the β_t of the paper.
            u: a uniform number in [0, 1) that draws among ties.
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
        """Do :meth:`argmax_ucb` for one table after the other, each choice pending for the next.

        Args:
            rows: of all tables, one after the other.
            ends: where each table ends.
            width: the β_t of the paper, for all of them.
            us: a uniform number in [0, 1) for each table.
            counted: whether each choice is pending from now on.
            share: how much of its weight it counts for then.
            gram: whether that weight is 1 instead of its information.

        Raises:
            InvalidInput: a row is not finite; the choices before it are counted in ``decided``.
        """
        found = np.empty((len(ends), 4))
        shares = share * np.array(counted, dtype=np.float64)
        numbers, blocks = self._split(rows)
        done = self._kernels.argmax_ucb_all(
            numbers, blocks, np.asarray(ends), *self.stacked(), width, us, shares, gram,
            self.dispersion, self._family, found,
        )  # fmt: skip
        if done < len(ends):
            raise not_finite(rows)
        pending = sum(counted)
        self.pending += pending
        self.decisions += pending
        return [
            (int(index), int(ties), mean, weight) for index, ties, mean, weight in found.tolist()
        ]

    def sampled(self, rows: Any, pools: Row, u: float) -> tuple[int, float, float, float]:
        """The best row of θ̂ plus one column of a pool of deviations (Alg. 2, l. 11).

        The column is that at ``u``, a number in [0, 1), among equally many. Each block has a pool.
        Returns the index of the row, its share of all columns, which equal rows divide evenly, its
        mean and its weight.
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
        """The best row for each column of the pools."""
        numbers, blocks = self._split(table)
        theta, _ = self.stacked()
        return winners(numbers, blocks, predictors(numbers, blocks, theta), pools)

    def predict(self, x: Any) -> tuple[float, float]:
        """The mean and the weight of one row."""
        numbers, theta = self._part(x, self.theta)
        eta = float(numbers @ theta)
        if not math.isfinite(eta):
            raise not_finite(x)
        mean, slope = self.family.mean_and_slope(eta)
        return mean, min(slope / self.dispersion, MAX_WEIGHT)

    def weight_at(self, mean: float) -> float:
        """The weight of a row whose mean was predicted."""
        weight = self.family.slope_at(mean) / self.dispersion
        return MAX_WEIGHT if weight > MAX_WEIGHT else weight

    def add_pending(self, x: Any, weight: float) -> None:
        """A decision for this row is pending; its weight was frozen at the choice."""
        self.count(x, weight)
        self.pending += 1
        self.decisions += 1

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """The same for many decisions, one after the other."""
        before, self.decided = self.decided, self.decided.copy()
        _, roots = self.stacked()
        if self._kernels.count_all(roots, *self._split(rows), weights) < len(rows):
            self.decided = before
            raise not_finite(rows)
        self.pending += len(rows)
        self.decisions += len(rows)

    def note(self, x: Any) -> None:
        """A decision for this row is pending, and does not count as explored."""
        if not finite(self._part(x)[0]):
            raise not_finite(x)
        self.pending += 1
        self.decisions += 1

    def count(self, x: Any, weight: float) -> float:
        """``decided`` counts this row with this much more weight; returns xᵀH⁻¹x before."""
        numbers, root = self._part(x, self.decided)
        q = self._kernels.count(root, numbers, weight)
        if q != q:
            raise not_finite(x)
        return q

    def remove_pending(self, x: Any, weight: float) -> bool:
        """A pending decision left without a reward.

        Returns False if next to nothing but this row was known of its direction: a step cannot
        take it out, and ``decided`` must be renewed from its sum.
        """
        q = math.inf if _heavy(self._part(x)[0], weight) else self.count(x, -weight)
        self.pending -= 1
        return 1.0 - weight * q > LEFT

    def learn(self, x: Any, y: float, share: float = 1.0) -> float:
        """The reward of a pending decision came; returns the weight its row now has.

        Args:
            x: the row.
            y: the reward.
            share: of a whole reward, for which it counts.
        """
        if not self._least <= y <= self._most:
            self.family.support.check(as_reward(y))
        numbers, root, theta = self._part(x, self.observed, self.theta)
        weight = 0.0
        if share >= LEAST_SHARE:
            # A likelihood to the power of a share is that of so much more dispersion.
            weight = self._kernels.learn(
                root, theta, numbers, y, self._family, self.dispersion / share
            )
            if weight != weight:
                raise not_finite(x)
        self.n += 1
        self.pending -= 1
        return weight

    def means_of(self, x: Vector | Row, mean: float) -> tuple[float, ...]:
        """The mean of a row by each half-life that is compared; by this model it is ``mean``."""
        assert self.rivals is not None
        link = self.family.mean_and_slope
        numbers, rivals = self._part(x, self.rivals.swapaxes(0, -2))
        means = [link(eta)[0] for eta in (rivals @ numbers).tolist()]
        means[self.picked] = mean
        return tuple(means)

    def retract(self, x: Any, y: float, weight: float) -> bool:
        """A reward that was learned is taken back, and its decision is pending again.

        One that is to be forgotten altogether is then withdrawn. Returns False if next to nothing
        but this row was known of its direction: a step cannot take it out, nothing but the counts
        has changed, and the model must be fitted anew.

        Args:
            x: the row.
            y: the reward.
            weight: that the row has: what :meth:`learn` gave, or that of the last fit.
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
        """The reward of a row was ``old`` and is ``new``; its weight stays.

        Exact for Gaussian rewards; for others one Newton step, mended at the next fit.
        """
        for y in (old, new):
            self.family.support.check(as_reward(y))
        step = (new - old) / self.dispersion
        numbers, root, theta = self._part(x, self.observed, self.theta)
        if not self._kernels.amend(root, theta, numbers, step, self._cap):
            raise not_finite(x)

    def _part(self, x: Any, *arrays: Vector | Matrix) -> tuple[Any, ...]:
        """The numbers of a row, and the parts of arrays that its block has."""
        row = np.asarray(x, np.float64, order="C")
        if row.shape != (self._width,):
            message = f"the row has shape {row.shape}: {self._width} numbers were expected"
            raise InvalidInput(message, x)
        if self.theta.ndim == 1:
            return row, *arrays
        block = int(row[0])
        self._check_blocks(block, block)
        return row[1:], *(array[block] for array in arrays)

    def _split(self, table: Row | Matrix) -> tuple[Matrix, Blocks]:
        """The numbers and the blocks of rows."""
        if self.theta.ndim == 1:
            numbers, blocks = table, np.zeros(len(table), dtype=np.int64)
        else:
            blocks, numbers = split(table)
            if blocks.view(np.uint64).max() >= len(self.theta):  # -1 is the greatest of these
                self._check_blocks(int(blocks.min()), int(blocks.max()))
        return np.asarray(numbers, np.float64, order="C"), blocks

    def _pieces(self, table: Row | Matrix) -> Iterator[tuple[Matrix, Blocks]]:
        """Yield some rows at a time: converting many to float64 at once takes longer than BLAS."""
        step = max(1, AT_ONCE // self._width)
        for start in range(0, len(table), step):
            yield self._split(table[start : start + step])

    def _check_blocks(self, least: int, most: int) -> None:
        if least < 0 or most >= len(self.theta):
            message = f"a row is of block {least if least < 0 else most}"
            raise InvalidInput(f"{message}: there are {len(self.theta)}, from 0 on", most)

    def stacked(self) -> tuple[Matrix, Matrix]:
        """θ̂ and the root that counts pending decisions, with an axis for blocks."""
        if self.theta.ndim == 2:
            return self.theta, self.decided
        return self.theta[None], self.decided[None]

    def table(self, rows: Any) -> Matrix:
        """Rows as float64, if every one of them is a row of this model."""
        table = np.asarray(self._table(rows), np.float64, order="C")
        if not finite(table.ravel()):
            raise not_finite(rows)
        return table

    def _table(self, rows: Any) -> Row | Matrix:
        single = type(rows) is np.ndarray and rows.dtype == np.float32
        table = rows if single else np.asarray(rows, np.float64, order="C")
        if table.ndim != 2 or table.shape[1] != self._width or len(table) == 0:
            message = f"rows has shape {table.shape}: at least one row of {self._width} numbers"
            raise InvalidInput(message, rows)
        return table


def _heavy(row: Vector, weight: float) -> bool:
    size = weight * ddot(row, row)
    if not math.isfinite(size):
        raise not_finite(row)
    return bool(size > HEAVY)


def not_finite(rows: Any) -> InvalidInput:
    """What is to be said of a row that no kernel took."""
    return InvalidInput("a row, or its weight, holds a number that is not finite", rows)
