"""Every reward counts in full, for ever."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import Rewards
from belated.fold.refit import Refit
from belated.model.blocks import is_positive
from belated.model.estimators import Estimate, Laplace
from belated.model.families import Gaussian
from belated.model.priors import Prior
from belated.model.statistics import Information, Joined, Observations

if TYPE_CHECKING:
    from belated.fold.learner import Learner, Waiting

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
        # Precisions: of what arrived, the same in the policy's metric, and of what is pending.
        self.observed: Matrix = policy.start.precision
        self.counted: Matrix = policy.start.precision
        self.pending = Information.zero(policy.shape)
        #: Of decisions that are not recorded yet.
        self.held = Information.zero(policy.shape)
        self._share_roots()

    # --- what has changed ----------------------------------------------------------------------

    def entered(self, recorded: int, partition: int) -> None:
        """A decision was recorded."""

    def share(self, began: int) -> float:
        """What a reward counts for beside those in the last fit."""
        return 1.0

    def learn(self, x: Vector, y: float, weight: float, began: int) -> float:
        """Move the model by a reward; returns the weight that its row has from now on."""
        model, pending, share = self.learner.model, self.share_of_pending, self.share(began)
        learned = model.learn(x, y, share)
        if model.effective_n is not None:
            model.effective_n += share
        if pending < 1.0 and (self.gram or pending > 0.0):
            model.count(x, (1.0 - pending) * weight * share)
        return learned

    def learned(self, x: Vector, y: float, handle: int, recorded: int, partition: int) -> None:
        """A reward is kept, in bulk or not."""

    def learned_page(self, rows: Row, y: Vector, recorded: NDArray[np.int64]) -> None:
        """Many are, in bulk."""
        if self.gram:
            self.counted = self.counted + self._information(rows, np.ones(len(rows))).matrix

    def before_change(self, handle: int, partition: int) -> None:
        """A reward is about to be revised or retracted."""

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Move the model by a reward that was ``before`` and is ``y``."""
        if not self.learner.is_bulk:
            self.learner.model.revise(row, before, y)

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
        self.observed = self.observed - self._information(x[None, :], [weight]).matrix
        done = model.retract(x, y, weight)
        if self.share_of_pending == 0.0 and not self.gram:  # one root, and it was taken out of it
            model.pending -= 1
        else:
            done = model.remove_pending(x, 1.0 if self.gram else weight) and done
        if not done:
            learner.fit()

    def restart(self, handle: int, began: int, partition: int) -> None:
        """The decision of a reward took effect at another time."""

    def take(self, waiting: Waiting, *, refit: bool) -> None:
        """Add what waits to the sums; a fit makes those of rewards anew if one follows."""
        self._take_pending(*waiting.pending_changes())
        for arrived in waiting.came:
            if arrived.rows and not refit:
                self.observed = (
                    self.observed + self._information(arrived.rows, arrived.after).matrix
                )
            if arrived.rows and self.gram:
                self.counted = (
                    self.counted + self._information(arrived.rows, arrived.weights).matrix
                )

    def _take_pending(self, began: NDArray[np.int64], rows: Matrix, weights: Vector) -> None:
        count = self.learner.model.pending - self.held.count
        if count == 0:  # what is left is rounding
            self.pending = Information.zero(self.policy.shape)
        else:
            change = self._information(rows, weights)
            self.pending = Information(count, self.pending.matrix + change.matrix)

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
        return self.learner.model.n >= self.next_fit

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

    def go_on_from(self, estimate: Estimate, data: object) -> None:
        """Let the model go on from a fit."""
        self.prior = estimate.prior
        # An estimated prior is weaker than the policy's. It lets θ̂ be large; it is not a reason to
        # explore more, so the roots keep counting from the policy's own.
        weaker = self.policy.start.precision - estimate.prior.precision
        if self.policy.family.dispersion is None and self.policy.start.is_ridge:
            weaker /= estimate.dispersion  # a ridge is of θ/√φ
        self.observed = estimate.precision + weaker
        if self.fits:
            self.next_fit = self.policy.estimator.next_fit(estimate.n, self.policy.shape)
        self.learner.model.restart(estimate.mean, estimate.dispersion)
        self.learner.renew()

    def finish_fit(
        self, refit: Refit, estimate: Estimate, since: Sequence[tuple[Row, Vector]]
    ) -> None:
        """Go on from a fit beside the fold, and from what has come since it began."""
        self.go_on_from(refit.finished(estimate, since, self.policy.family), refit.seen)

    def renew(self) -> None:
        """Make the roots of the model anew from the sums."""
        model, share = self.learner.model, self.share_of_pending
        counted = self.counted if self.gram else self.observed
        share = share / model.dispersion if self.unscaled else share
        decided = counted + share * (self._outstanding() + self.held.matrix)
        if not is_positive(decided):  # long rows have left, and their rounding outweighs the others
            decided = counted
        model.renew(self.observed, decided)
        self._share_roots()

    def _outstanding(self) -> Matrix:
        """The information of what is pending and recorded."""
        return self.pending.matrix

    def _share_roots(self) -> None:
        # Where pending decisions do not count there is one root, and one step moves it.
        if self.share_of_pending == 0.0 and not self.gram:
            self.learner.model.decided = self.learner.model.observed

    # --- snapshots -----------------------------------------------------------------------------

    def pack(self, partition: int) -> dict[str, bytes]:
        """What a snapshot needs beside rows, times and lines."""
        return {}

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, in bulk."""
