"""A learner of one partition: it keeps sums, and leaves the model to whoever has those of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from belated.core.inputs import Vector
from belated.core.rewards import ConversionsOnly, DefaultAfter, Rewards
from belated.core.tuning import USUAL, Tuning
from belated.exceptions import InvalidInput
from belated.fold.freezer import Freezer
from belated.fold.learner import Learner
from belated.model.estimators import Laplace, Online, Ridge
from belated.model.families import Gaussian
from belated.model.kernels import Kernels
from belated.model.statistics import FrozenSums, Information, RunningSums
from belated.policies.policy import Policy


def check_mergeable(policy: Policy, rewards: Rewards | None = None) -> None:
    """Refuse a policy, or rewards, whose model cannot be made of the sums of partitions.

    Raises:
        InvalidInput: it cannot.

    >>> from belated import Bernoulli, DelayedUCB
    >>> check_mergeable(DelayedUCB(2, Bernoulli()))
    >>> check_mergeable(DelayedUCB(2, Bernoulli(), half_life="7d"))
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: several learners cannot share a policy with a half-life: \
use learners = "one"
    """
    estimator = policy.estimator
    if isinstance(rewards, ConversionsOnly):
        what = "ConversionsOnly, which counts decisions by their age"
    elif isinstance(rewards, DefaultAfter) and rewards.learn == "together":
        what = "DefaultAfter(learn='together')"
    elif policy.half_life is not None:
        what = "a policy with a half-life"
    elif policy.learns_after is not None:
        what = "a policy that learns at the end of a window of decisions"
    elif not isinstance(estimator, Laplace | Ridge | Online):
        what = f"the estimator {estimator!r}"
    elif isinstance(estimator, Laplace) and estimator.mean_correction:
        what = "an estimator that corrects the mean, which needs all rows in one place"
    else:
        return
    raise InvalidInput(f'several learners cannot share {what}: use learners = "one"', policy)


class PartitionLearner(Learner):
    """Keeps what adds, of one partition: the model stands still.

    The log-likelihood is expanded at the :meth:`center` that all partitions share. Until there is
    one that knows as many rewards as this partition, its own estimate serves: sums add, whatever
    they were taken at.

    Args:
        policy: whose model is learned.
        partitions: of the journal.
        kernels: to use instead of the best available.
        tuning: sizes; of the rewards that may be kept row by row each partition has its share.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        partitions: int,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        check_mergeable(policy)
        super().__init__(policy, kernels=kernels, tuning=tuning)
        self.is_bulk = True  # and stays so
        self._store = self.observations[0]
        self._freezer = Freezer([self._store], tuning.exact // partitions, self._limit)
        self._center: Vector = self.model.theta.copy()
        self._center_n = 0
        self._next_own = 0.0  # rewards that call for an estimate of this partition's own
        self._running = RunningSums(self._store, policy.family, self._center)
        #: The number of the center that the sums are expanded at; 0: an estimate of its own.
        self.expanded_at = 0
        self._number = 0

    @property
    def theta(self) -> Vector:
        """Where the log-likelihood is expanded."""
        return self._running.theta

    @property
    def pending_information(self) -> Information:
        """Of the decisions whose rewards are out."""
        self.fold_in()
        return self.weighting.pending

    def center(self, theta: Vector, number: int, n: int) -> None:
        """Expand at θ from now on, if it knows enough.

        Args:
            theta: the last estimate of all partitions.
            number: of it.
            n: rewards it was estimated from.
        """
        self._center, self._number, self._center_n = theta, number, n

    def sums(self) -> FrozenSums:
        """Return what all rewards of this partition come to."""
        self.fold_in()
        self._compact()
        if not isinstance(self.policy.family, Gaussian):  # whose sums are the same at any θ
            self._choose_theta()
        return self._running.total()

    def _choose_theta(self) -> None:
        n = self._store.n
        if n <= self._center_n:
            if self.expanded_at != self._number:
                self._expand_at(self._center, self._number)
        elif self.expanded_at != 0 or n >= self._next_own:
            own = self._fitted_once()
            self.weighting.prior = own.prior
            self._next_own = Laplace().next_fit(n, self.policy.shape)
            self._expand_at(own.theta, 0)

    def _expand_at(self, theta: Vector, number: int) -> None:
        self._running.move(theta)
        self.expanded_at = number
        self.model.theta = theta.copy()  # where the next fit starts, also from a snapshot

    # --- what another learner does with its model ------------------------------------------------

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """It always is."""
        yield

    def refresh(self) -> None:
        """There is no model to bring up to date."""

    def fit(self) -> None:
        """There is no model to fit."""

    def revise(self, handle: int, y: float, recorded: int = 0, partition: int = 0) -> None:
        """The reward under a handle is another one."""
        self.fold_in()
        _, before = self._store.get(handle)
        super().revise(handle, y, recorded, partition)
        self._running.revise(handle, before)

    def retract(self, handle: int, recorded: int = 0, partition: int = 0) -> Vector:
        """The reward under a handle never came, and nor is it waited for; returns its row."""
        self.fold_in()
        row, y = self._store.get(handle)
        frozen = self._store.is_frozen(handle)
        x = super().retract(handle, recorded, partition)
        self._running.remove(handle, row, y, frozen)
        return x

    def _look_for_estimate(self) -> None:
        if self._store.n <= self._center_n:
            self.model.theta = np.array(self._center)
        else:
            super()._look_for_estimate()
        self._running.clear()
