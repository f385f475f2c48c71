"""The weighting that ignores age: every decision and reward always has full weight."""

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

#: The times at which pending decisions took effect, their rows and their weights.
Outstanding = tuple[NDArray[np.int64], Row, Vector]


class Constant:
    """Gives decisions and rewards full weight, regardless of their age.

    A weighting maintains the sums behind a model, updates the model after each change, and
    determines the data of a fit and when the next fit is due. The learner stores the rows. All
    other weightings are subclasses.

    Args:
        learner: the learner whose model is updated.
        rewards: what a missing reward means; None if every reward is reported.
    """

    #: Whether the times of decisions and rewards are needed.
    keeps_times: ClassVar[bool] = False
    #: Whether sums are additive, because the weight of a row does not change with time. Only then
    #: can rows be frozen.
    adds: ClassVar[bool] = True
    #: Whether pages of records can be folded in columnar form.
    takes_pages: ClassVar[bool] = True
    #: Number of predictions stored per decision for comparing half-lives.
    rivals: ClassVar[int] = 0

    def __init__(self, learner: Learner, rewards: Rewards | None = None) -> None:
        self.learner, policy = learner, learner.policy
        self.policy = policy
        self.prior = policy.start
        self.share_of_pending = policy.pending_weight
        self.gram = policy.metric == "gram"
        # If φ is estimated, the sum is built from slopes, which are 1, and is divided by φ when it
        # is used. Weights that were added under one φ could not be subtracted under another.
        self.unscaled = policy.family.dispersion is None and not self.gram
        #: Whether each row has weight 1 in the sums of pending decisions.
        self.counts_rows = self.gram or self.unscaled
        # Updates with Gaussian rewards are exact; only an estimated variance or prior needs fits.
        exact = isinstance(policy.family, Gaussian) and policy.family.dispersion is not None
        self.fits = not exact or policy.start.adaptive
        self.next_fit = 1.0 if self.fits else math.inf
        #: Whether sums are only updated for fits, because rows are wide.
        wide = self.adds and self.fits and policy.shape[-1] > WIDE
        self.sums_late = wide and isinstance(policy.estimator, Laplace)
        # If blocks are fitted separately, the number of rewards in each block, the number at which
        # the block's next fit is due, and the blocks that are due.
        self.by_block = (
            self.sums_late and policy.blocks is not None and not isinstance(policy.family, Gaussian)
        )
        self.n_by_block, self.next_fits = np.zeros((2, policy.blocks or 0))
        self.due: deque[int] = deque()
        # The contribution of each block to the estimate of an adaptive prior.
        self.contributions = np.zeros((policy.blocks or 0, 2))
        # The precision of arrived rewards, the same precision in the policy's metric, and the
        # information of pending decisions. With wide rows, each of these takes megabytes, so the
        # first is stored only as the model's root.
        start = policy.start.precision
        self.observed: Matrix | None = None if self.sums_late else start.copy()
        self.counted: Matrix = start.copy() if self.gram else start
        self.pending = Information(0, np.zeros(start.shape))
        #: Information of decisions that have not been recorded yet.
        self.held = Information.zero(policy.shape)
        self._share_roots()

    # --- changes -------------------------------------------------------------------------------

    def entered(self, recorded: int, partition: int) -> None:
        """Handle the record of a decision."""

    def share(self, began: int, data: object = None) -> float:
        """Return the weight of a reward relative to the rewards in a fit.

        Args:
            began: when the reward's decision took effect.
            data: the data of the fit; None for the last fit.
        """
        return 1.0

    def learn(self, x: Vector, y: float, weight: float, began: int) -> float:
        """Update the model with a reward; return the new weight of its row."""
        model, pending, share = self.learner.model, self.share_of_pending, self.share(began)
        repeat = y, self.share(began, self.learner.data_under_fit)
        learned: float = self.learner.step("learn", x, y, share, again=repeat)
        if model.effective_n is not None:
            model.effective_n += share
        if pending < 1.0 and (self.gram or pending > 0.0):
            self.learner.step("count", x, (1.0 - pending) * weight * share)
        return learned

    def learned(self, x: Vector, y: float, handle: int, recorded: int, partition: int) -> None:
        """Handle a stored reward, whether or not in bulk mode."""
        if self.by_block:
            block = int(x[0])
            self.n_by_block[block] += 1
            if self.n_by_block[block] >= self.next_fits[block] and block not in self.due:
                self.due.append(block)

    def learned_page(self, rows: Row, y: Vector, recorded: NDArray[np.int64]) -> None:
        """Handle many stored rewards in bulk mode."""
        if self.gram:
            self.counted = self.counted + self._information(rows, np.ones(len(rows))).matrix

    def before_change(self, handle: int, partition: int) -> None:
        """Prepare for changing or retracting a reward."""

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Update the model after a reward changed from ``before`` to ``y``."""
        if not self.learner.is_bulk:
            self.learner.step("revise", row, before, y)

    def retract(self, handle: int, x: Vector, y: float, partition: int) -> None:
        """Update the model after a reward and its decision were removed."""
        learner, model = self.learner, self.learner.model
        if self.gram:
            self.counted = self.counted - self._information(x[None, :], [1.0]).matrix
        if learner.is_bulk:
            model.n -= 1
            return
        # The sums contain the row with its weight from the last fit, which is close to this weight.
        _, weight = model.predict(x)
        if self.observed is not None:
            add_gram(self.observed, x[None, :], np.array([-weight]))
        success = learner.step("retract", x, y, weight)
        if self._has_one_root:  # the retraction has already updated it
            model.pending -= 1
        else:
            success = learner.step("remove_pending", x, 1.0 if self.gram else weight) and success
        if not success:
            learner.fit()

    def restart(self, handle: int, began: int, partition: int) -> None:
        """Update the model after the time of an observed decision has changed."""

    def take(self, waiting: Waiting) -> None:
        """Add pending changes to the sums."""
        self._take_pending(waiting.pending, *waiting.pending_changes())
        self._take_arrived(waiting)
        for arrived in waiting.arrived if self.gram else ():
            if arrived.rows:
                add_gram(self.counted, np.array(arrived.rows), np.array(arrived.weights))

    def _take_arrived(self, waiting: Waiting) -> None:
        for arrived in waiting.arrived:
            if arrived.rows and self.observed is not None:
                add_gram(self.observed, np.array(arrived.rows), np.array(arrived.after))

    def _take_pending(
        self, count: int, began: NDArray[np.int64], rows: Matrix, weights: Vector
    ) -> None:
        matrix = self.pending.matrix
        if count == 0:  # only rounding errors remain
            matrix[:] = 0.0
        else:
            add_gram(matrix, rows.astype(np.float64, copy=False), weights)
        self.pending = Information(count, matrix)

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Add many pending decisions in bulk mode."""
        self.pending += self._information(rows, self.in_sums(weights))

    def in_sums(self, weights: Vector) -> Vector:
        """Convert the weights of pending decisions to their weights in the sums."""
        return np.ones_like(weights) if self.counts_rows else weights

    def _information(self, rows: Any, weights: Any) -> Information:
        return Information.of(rows, weights, self.policy.shape)

    # --- fits ----------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether there are enough new rewards for a fit."""
        return bool(self.due) if self.by_block else self.learner.model.n >= self.next_fit

    @property
    def has_due_block(self) -> bool:
        """Whether the fit of a single block is due."""
        return bool(self.due)

    @property
    def fit_cost(self) -> float:
        """Approximate number of floating-point operations of the fit that is due."""
        *blocks, size = self.policy.shape
        n = self.learner.model.n
        if self.due:
            blocks, n = [1], self.n_by_block[self.due[0]]
        return float(math.prod(blocks) * size**3 + n * size**2)

    def next_block(self) -> int | None:
        """Return the block to fit next and schedule its following fit; None to fit all blocks."""
        if not self.due:
            return None
        block = self.due.popleft()
        self.next_fits[block] = self._next_fit_of(block)
        return block

    def _next_fit_of(self, block: int) -> float:
        n = int(self.n_by_block[block])
        return self.policy.estimator.next_fit(n, self.policy.shape[1:])

    def put_off_fit(self) -> None:
        """Schedule the next fit after a failed fit."""
        n = self.learner.model.n
        self.next_fit = n + max(1, n / 4)

    def finish(self, recorded: int) -> None:
        """Finish a record."""

    def refresh(self) -> None:
        """Apply deferred updates, of which this weighting has none."""

    def catch_up(self) -> None:
        """Fit the model after many records were folded in bulk mode."""
        self.learner.fit()

    def data(self, *, copy: bool = False) -> Any:
        """Return the data to fit. Pass ``copy=True`` if rewards may arrive during the fit."""
        if not copy:
            return self.learner.observed
        return Joined([store + Observations(store.shape) for store in self.learner.observations])

    def fit(self, data: Any, prior: Prior, start: Vector, polish: bool) -> Estimate:
        """Return an estimate; can be called from any thread.

        Args:
            data: the data to fit.
            prior: the prior of the last fit, or the policy's prior.
            start: the starting point θ.
            polish: whether to iterate until convergence.
        """
        # If updates are exact, the policy's estimator is not needed.
        estimator = self.policy.estimator if self.fits else Laplace()
        return estimator.fit(
            data, family=self.policy.family, prior=prior, start=start, polish=polish
        )

    def begin_fit(self, refit: Refit) -> Callable[[], Fitted]:
        """Return a function that fits the current data; it can be called from any thread.

        Args:
            refit: the fit, which may be for a single block.
        """
        learner, block = self.learner, refit.block
        refit.data = data = self.data(copy=True)
        part: Any = ... if block is None else block
        prior, start = self._prior_of(block), learner.model.theta[part].copy()
        fixed, unsummed = self.held.matrix[part], refit.before

        def sums() -> tuple[Matrix, Matrix]:
            return self.counted[part].copy(), self._outstanding(data)[part] + fixed

        current_sums = None if self.sums_late else sums()

        def fit() -> Fitted:
            learner.sum_up(unsummed)
            counted, pending = current_sums or sums()
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
        """Continue from a background fit after all later updates have been replayed on it."""
        refit, block = fitted.refit, fitted.refit.block
        assert fitted.model is not None
        self.observed = fitted.observed
        for waiting in refit.since:
            self._take_arrived(waiting)
        self.settle(fitted.estimate, refit.data, block)
        self.learner.model.replace(fitted.model, block)
        self._share_roots()

    def go_on_from(self, estimate: Estimate, data: object) -> None:
        """Continue from a fit of all coefficients."""
        self.settle(estimate, data)
        self.observed = self._explored(estimate, ...)
        self.learner.model.restart(estimate.mean, estimate.dispersion)
        self.learner.renew()
        if self.sums_late:
            self.observed = None

    def settle(self, estimate: Estimate, data: object, block: int | None = None) -> None:
        """Store the prior of a fit, and schedule the next fit.

        Args:
            estimate: the estimate of all coefficients, or of a block.
            data: the data that was fitted.
            block: the block that was fitted; None for all coefficients.
        """
        if block is not None:
            size = self.policy.shape[-1]
            assert estimate.trace is not None
            strength = estimate.prior.strength
            self.contributions[block] = (
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
        """Compute each block's number of rewards and contribution to the estimate of the prior."""
        shape = self.policy.shape
        stores = self.learner.observations
        self.n_by_block = np.sum([store.n_by_block() for store in stores], axis=0)
        self.next_fits = np.array([self._next_fit_of(block) for block in range(shape[0])])
        self.due.clear()
        if estimate.n:
            traces = np.square(root_of(estimate.precision)).sum(axis=(1, 2))
            self.contributions[:, 0] = shape[1] - estimate.prior.strength * traces
            self.contributions[:, 1] = np.square(estimate.theta).sum(axis=1)

    def _prior_of(self, block: int | None) -> Prior:
        """Return the prior for the next fit of a block, or of all coefficients."""
        prior = self.prior
        if block is None:
            return prior
        determined, square = self.contributions.sum(axis=0) - self.contributions[block]
        evidence = float(determined), float(square)
        return Prior(prior.mean[block], prior.precision[block], prior.adaptive, evidence)

    def _explored(self, estimate: Estimate, part: Any) -> Matrix:
        """Return the precision of an estimate, with the estimated prior replaced by the policy's.

        An estimated prior may be weaker than the policy's; this must not increase exploration.
        """
        start = self.policy.start
        difference = start.precision[part] - estimate.prior.precision
        if self.policy.family.dispersion is None and start.is_ridge:
            difference = difference / estimate.dispersion  # the ridge applies to θ/√φ
        observed: Matrix = estimate.precision + difference
        return observed

    def _decided(
        self, observed: Matrix, counted: Matrix, pending: Matrix, dispersion: float
    ) -> Matrix:
        """Return the precision that also includes pending decisions."""
        share = self.share_of_pending
        share = share / dispersion if self.unscaled else share
        counted = counted if self.gram else observed
        decided = counted + share * pending
        # After rows with large entries are removed, rounding errors can dominate.
        return decided if is_positive(decided) else counted

    def renew(self) -> None:
        """Recompute the roots of the model from the sums."""
        model = self.learner.model
        observed = precision_of(model.observed) if self.observed is None else self.observed
        pending = self._outstanding() + self.held.matrix
        decided = self._decided(observed, self.counted, pending, model.dispersion)
        model.renew(observed, decided)
        self._share_roots()

    def _outstanding(self, data: object = None) -> Matrix:
        """Return the information of recorded pending decisions.

        Args:
            data: the data of the fit that needs the information; None for the last fit.
        """
        return self.pending.matrix

    @property
    def _has_one_root(self) -> bool:
        """Whether both roots are the same because pending decisions do not count."""
        return self.share_of_pending == 0.0 and not self.gram

    def _share_roots(self) -> None:
        if self._has_one_root:
            self.learner.model.decided = self.learner.model.observed

    # --- snapshots -----------------------------------------------------------------------------

    def pack(self, partition: int) -> dict[str, bytes]:
        """Serialize the state that a snapshot needs in addition to rows, times and entries."""
        return {}

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Restore the result of :meth:`pack`, in bulk mode."""
