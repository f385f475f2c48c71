"""Every reward counts in full, for ever."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import Rewards
from belated.fold.refit import Fitted, Refit
from belated.model.blocks import add_gram, is_positive, precision_of, root_of
from belated.model.estimators import Estimate, Laplace
from belated.model.estimators.estimate import WIDE
from belated.model.families import Gaussian
from belated.model.priors import Prior
from belated.model.statistics import Information, Joined, Observations

if TYPE_CHECKING:
    from belated.fold.learner import Learner
    from belated.fold.waiting import Waiting

#: When pending decisions took effect, their rows and the weights they are pending with.
Outstanding = tuple[NDArray[np.int64], Row, Vector]


class Constant:
    """How much decisions and rewards count: here all in full, whatever their age.

    A weighting keeps the sums behind a model, moves the model by each change, and says what a fit
    is of and when the next is due. The learner keeps the rows. Other weightings are subclasses.

    Args:
        learner: whose model it moves.
        rewards: what a missing reward means; None if every reward comes.
    """

    #: Whether the times of decisions and rewards are needed.
    keeps_times: ClassVar[bool] = False
    #: Whether rows may be frozen, and several learners may share the work: only where a row counts
    #: for the same at all times.
    adds: ClassVar[bool] = True
    #: Whether many records may be folded as columns.
    takes_pages: ClassVar[bool] = True
    #: Predictions that are kept of a decision, to compare them.
    rivals: ClassVar[int] = 0

    def __init__(self, learner: Learner, rewards: Rewards | None = None) -> None:
        self.learner, policy = learner, learner.policy
        self.policy = policy
        self.prior = policy.start
        self.share_of_pending = policy.pending_weight
        self.gram = policy.metric == "gram"
        # Where φ is estimated the sum holds slopes, which are 1, and is divided by φ when it is
        # used: weights that were added under one φ could not be taken out under another.
        self.unscaled = policy.family.dispersion is None and not self.gram
        #: Whether each row has the weight 1 in the sums of what is pending.
        self.counts_rows = self.gram or self.unscaled
        # Steps of Gaussian rewards are exact: only an estimated variance or prior needs fits.
        exact = isinstance(policy.family, Gaussian) and policy.family.dispersion is not None
        self.fits = not exact or policy.start.adaptive
        self.next_fit = 1.0 if self.fits else math.inf
        #: Whether rows may wait until a fit adds them to the sums: where that takes long.
        wide = self.adds and self.fits and policy.shape[-1] > WIDE
        self.sums_late = wide and isinstance(policy.estimator, Laplace)
        # Rewards of each block, how many call for its next fit, and the blocks that are due: where
        # a block is fitted by itself.
        self.by_block = (
            self.sums_late and policy.blocks is not None and not isinstance(policy.family, Gaussian)
        )
        self.n_by_block, self.next_fits = np.zeros((2, policy.blocks or 0))
        self.due: deque[int] = deque()
        # What each block adds to the estimate of an adaptive prior.
        self.known = np.zeros((policy.blocks or 0, 2))
        # Precisions: of what arrived, the same in the policy's metric, and of what is pending.
        # Where rows are wide each takes megabytes, and the model's root says what has arrived.
        start = policy.start.precision
        self.observed: Matrix | None = None if self.sums_late else start.copy()
        self.counted: Matrix = start.copy() if self.gram else start
        self.pending = Information(0, np.zeros(start.shape))
        #: Of decisions that are not recorded yet.
        self.held = Information.zero(policy.shape)
        self._share_roots()

    # --- what has changed ----------------------------------------------------------------------

    def entered(self, recorded: int, partition: int) -> None:
        """A decision was recorded."""

    def share(self, began: int, data: object = None) -> float:
        """What a reward counts for beside those in a fit.

        Args:
            began: when its decision took effect.
            data: what is fitted; None: the last fit.
        """
        return 1.0

    def learn(self, x: Vector, y: float, weight: float, began: int) -> float:
        """Move the model by a reward; returns the weight that its row has from now on."""
        model, pending, share = self.learner.model, self.share_of_pending, self.share(began)
        again = y, self.share(began, self.learner.data_under_fit)
        learned: float = self.learner.step("learn", x, y, share, again=again)
        if model.effective_n is not None:
            model.effective_n += share
        if pending < 1.0 and (self.gram or pending > 0.0):
            self.learner.step("count", x, (1.0 - pending) * weight * share)
        return learned

    def learned(self, x: Vector, y: float, handle: int, recorded: int, partition: int) -> None:
        """A reward is kept, in bulk or not."""
        if self.by_block:
            block = int(x[0])
            self.n_by_block[block] += 1
            if self.n_by_block[block] >= self.next_fits[block] and block not in self.due:
                self.due.append(block)

    def learned_page(self, rows: Row, y: Vector, recorded: NDArray[np.int64]) -> None:
        """Many are, in bulk."""
        if self.gram:
            self.counted = self.counted + self._information(rows, np.ones(len(rows))).matrix

    def before_change(self, handle: int, partition: int) -> None:
        """A reward is about to be revised or retracted."""

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Move the model by a reward that was ``before`` and is ``y``."""
        if not self.learner.is_bulk:
            self.learner.step("revise", row, before, y)

    def retract(self, handle: int, x: Vector, y: float, partition: int) -> None:
        """Move the model by a reward that is gone, and its decision with it."""
        learner, model = self.learner, self.learner.model
        if self.gram:
            self.counted = self.counted - self._information(x[None, :], [1.0]).matrix
        if learner.is_bulk:
            model.n -= 1
            return
        # What its row has in the sums is what it had in the last fit: nearly what it would have.
        _, weight = model.predict(x)
        if self.observed is not None:
            add_gram(self.observed, x[None, :], np.array([-weight]))
        done = learner.step("retract", x, y, weight)
        if self._has_one_root:  # and it was taken out of it
            model.pending -= 1
        else:
            done = learner.step("remove_pending", x, 1.0 if self.gram else weight) and done
        if not done:
            learner.fit()

    def restart(self, handle: int, began: int, partition: int) -> None:
        """The decision of a reward took effect at another time."""

    def take(self, waiting: Waiting) -> None:
        """Add what waits to the sums."""
        self._take_pending(waiting.pending, *waiting.pending_changes())
        self._take_arrived(waiting)
        for arrived in waiting.came if self.gram else ():
            if arrived.rows:
                add_gram(self.counted, np.array(arrived.rows), np.array(arrived.weights))

    def _take_arrived(self, waiting: Waiting) -> None:
        for arrived in waiting.came:
            if arrived.rows and self.observed is not None:
                add_gram(self.observed, np.array(arrived.rows), np.array(arrived.after))

    def _take_pending(
        self, count: int, began: NDArray[np.int64], rows: Matrix, weights: Vector
    ) -> None:
        matrix = self.pending.matrix
        if count == 0:  # what is left is rounding
            matrix[:] = 0.0
        else:
            add_gram(matrix, rows.astype(np.float64, copy=False), weights)
        self.pending = Information(count, matrix)

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Many decisions are pending; in bulk."""
        self.pending += self._information(rows, self.in_sums(weights))

    def in_sums(self, weights: Vector) -> Vector:
        """The weights that pending decisions have in the sums."""
        return np.ones_like(weights) if self.counts_rows else weights

    def _information(self, rows: Any, weights: Any) -> Information:
        return Information.of(rows, weights, self.policy.shape)

    # --- fits ----------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether there is enough that is new for a fit."""
        return bool(self.due) if self.by_block else self.learner.model.n >= self.next_fit

    @property
    def has_due_block(self) -> bool:
        """Whether a block is to be fitted by itself."""
        return bool(self.due)

    @property
    def fit_cost(self) -> float:
        """About how many floating-point operations the fit takes that is due."""
        *blocks, size = self.policy.shape
        n = self.learner.model.n
        if self.due:
            blocks, n = [1], self.n_by_block[self.due[0]]
        return float(math.prod(blocks) * size**3 + n * size**2)

    def next_block(self) -> int | None:
        """Return the block to be fitted next, which is not due again soon; None: fit them all."""
        if not self.due:
            return None
        block = self.due.popleft()
        self.next_fits[block] = self._next_fit_of(block)
        return block

    def _next_fit_of(self, block: int) -> float:
        n = int(self.n_by_block[block])
        return self.policy.estimator.next_fit(n, self.policy.shape[1:])

    def put_off_fit(self) -> None:
        """A fit has failed: the next one is due after further rewards."""
        n = self.learner.model.n
        self.next_fit = n + max(1, n / 4)

    def finish(self, recorded: int) -> None:
        """A record was folded."""

    def refresh(self) -> None:
        """Make the step that is outstanding; here there is none, steps are made at once."""

    def catch_up(self) -> None:
        """Many records were."""
        self.learner.fit()

    def data(self, *, copy: bool = False) -> Any:
        """Return what a fit is of; ``copy`` if it is made while rewards are learned."""
        if not copy:
            return self.learner.observed
        return Joined([store + Observations(store.shape) for store in self.learner.observations])

    def fit(self, data: Any, prior: Prior, start: Vector, polish: bool) -> Estimate:
        """Fit; in any thread.

        Args:
            data: what it is of.
            prior: of the last fit, or the policy's.
            start: where to begin.
            polish: whether to converge.
        """
        # Exact steps need no fits of their own, whatever the policy's estimator says.
        estimator = self.policy.estimator if self.fits else Laplace()
        return estimator.fit(
            data, family=self.policy.family, prior=prior, start=start, polish=polish
        )

    def begin_fit(self, refit: Refit) -> Callable[[], Fitted]:
        """Return what makes a fit of now, and the roots to go on from; in any thread.

        Args:
            refit: which block is fitted, if not all of them.
        """
        learner, block = self.learner, refit.block
        refit.data = data = self.data(copy=True)
        part: Any = ... if block is None else block
        prior, start = self._prior_of(block), learner.model.theta[part].copy()
        held, unsummed = self.held.matrix[part], refit.before

        def sums() -> tuple[Matrix, Matrix]:
            return self.counted[part].copy(), self._outstanding(data)[part] + held

        now = None if self.sums_late else sums()

        def fit() -> Fitted:
            learner.sum_up(unsummed)
            counted, pending = now or sums()
            seen = data if block is None else data.of_block(block)
            estimate = self.fit(seen, prior, start, polish=False)
            observed = self._explored(estimate, part)
            decided = self._decided(observed, counted, pending, estimate.dispersion)
            model = learner.model.refitted(estimate, observed, decided)
            if self._has_one_root:
                model.decided = model.observed
            return Fitted(refit, estimate, model, None if self.sums_late else observed)

        return fit

    def finish_fit(self, fitted: Fitted) -> None:
        """Go on from a fit beside the fold, on which all steps since it began are repeated."""
        refit, block = fitted.refit, fitted.refit.block
        assert fitted.model is not None
        self.observed = fitted.observed
        for waiting in refit.since:
            self._take_arrived(waiting)
        self.settle(fitted.estimate, refit.data, block)
        self.learner.model.replace(fitted.model, block)
        self._share_roots()

    def go_on_from(self, estimate: Estimate, data: object) -> None:
        """Let the model go on from a fit of all coefficients."""
        self.settle(estimate, data)
        self.observed = self._explored(estimate, ...)
        self.learner.model.restart(estimate.mean, estimate.dispersion)
        self.learner.renew()
        if self.sums_late:
            self.observed = None

    def settle(self, estimate: Estimate, data: object, block: int | None = None) -> None:
        """Note the prior of a fit, and when the next one is due.

        Args:
            estimate: of all coefficients, or of a block.
            data: what was fitted.
            block: that was fitted by itself.
        """
        if block is not None:
            size = self.policy.shape[-1]
            assert estimate.trace is not None
            strength = estimate.prior.strength
            self.known[block] = (
                size - strength * estimate.trace,
                float(estimate.theta @ estimate.theta),
            )
            if self.prior.adaptive:
                self.prior = self.prior.with_ridge(strength)
            return
        self.prior = estimate.prior
        if self.fits:
            self.next_fit = self.policy.estimator.next_fit(estimate.n, self.policy.shape)
        if self.by_block:
            self._settle_blocks(estimate)

    def _settle_blocks(self, estimate: Estimate) -> None:
        """Count the rewards of each block, and what it adds to the estimate of the prior."""
        shape = self.policy.shape
        stores = self.learner.observations
        self.n_by_block = np.sum([store.n_by_block() for store in stores], axis=0)
        self.next_fits = np.array([self._next_fit_of(block) for block in range(shape[0])])
        self.due.clear()
        if estimate.n:
            traces = np.square(root_of(estimate.precision)).sum(axis=(1, 2))
            self.known[:, 0] = shape[1] - estimate.prior.strength * traces
            self.known[:, 1] = np.square(estimate.theta).sum(axis=1)

    def _prior_of(self, block: int | None) -> Prior:
        """The prior of the next fit, of a block or of all coefficients."""
        prior = self.prior
        if block is None:
            return prior
        determined, square = self.known.sum(axis=0) - self.known[block]
        others = float(determined), float(square)
        return Prior(prior.mean[block], prior.precision[block], prior.adaptive, others)

    def _explored(self, estimate: Estimate, part: Any) -> Matrix:
        """The precision of an estimate, counted from the policy's own prior.

        An estimated prior is weaker. It lets θ̂ be large; it is not a reason to explore more.
        """
        start = self.policy.start
        weaker = start.precision[part] - estimate.prior.precision
        if self.policy.family.dispersion is None and start.is_ridge:
            weaker = weaker / estimate.dispersion  # a ridge is of θ/√φ
        observed: Matrix = estimate.precision + weaker
        return observed

    def _decided(
        self, observed: Matrix, counted: Matrix, pending: Matrix, dispersion: float
    ) -> Matrix:
        """The precision that counts pending decisions too."""
        share = self.share_of_pending
        share = share / dispersion if self.unscaled else share
        counted = counted if self.gram else observed
        decided = counted + share * pending
        # Long rows have left, and their rounding outweighs the others.
        return decided if is_positive(decided) else counted

    def renew(self) -> None:
        """Make the roots of the model anew from the sums."""
        model = self.learner.model
        observed = precision_of(model.observed) if self.observed is None else self.observed
        pending = self._outstanding() + self.held.matrix
        decided = self._decided(observed, self.counted, pending, model.dispersion)
        model.renew(observed, decided)
        self._share_roots()

    def _outstanding(self, data: object = None) -> Matrix:
        """The information of what is pending and recorded.

        Args:
            data: of the fit that it is for; None: of the last one.
        """
        return self.pending.matrix

    @property
    def _has_one_root(self) -> bool:
        """Whether pending decisions do not count: then one step moves both roots."""
        return self.share_of_pending == 0.0 and not self.gram

    def _share_roots(self) -> None:
        if self._has_one_root:
            self.learner.model.decided = self.learner.model.observed

    # --- snapshots -----------------------------------------------------------------------------

    def pack(self, partition: int) -> dict[str, bytes]:
        """What a snapshot needs beside rows, times and lines."""
        return {}

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, in bulk."""
