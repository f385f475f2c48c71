"""The learner of one partition, which only maintains sums; the leader computes the model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from belated.core.inputs import Vector
from belated.core.rewards import ConversionsOnly, DefaultAfter, Rewards
from belated.core.tuning import USUAL, Tuning
from belated.exceptions import InvalidInput
from belated.fold.freezer import Freezer
from belated.fold.learner import Learner
from belated.fold.partitioned.center import Center
from belated.fold.refit import CHEAP
from belated.model.estimators import Laplace, Online, Ridge
from belated.model.families import Bernoulli, Gaussian
from belated.model.kernels import Kernels
from belated.model.statistics import FrozenSums, Information, RunningSums
from belated.policies.policy import Policy


def check_mergeable(policy: Policy, rewards: Rewards | None = None) -> None:
    """Reject policies and rewards whose model cannot be computed from the sums of partitions.

    Raises:
        InvalidInput: the model cannot be computed from sums.

    >>> from belated import Bernoulli, DelayedUCB
    >>> check_mergeable(DelayedUCB(2, Bernoulli()))
    >>> check_mergeable(DelayedUCB(2, Bernoulli(), learn_after=10))
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: several learners cannot share a bandit with a policy that \
learns at the end of a window of decisions: use learners = "one"
    """
    estimator = policy.estimator
    if isinstance(rewards, ConversionsOnly):
        obstacle = _unmergeable_conversions(policy, rewards)
    elif isinstance(rewards, DefaultAfter) and rewards.learn == "together":
        obstacle = "DefaultAfter(learn='together')"
    elif policy.half_life == "auto":
        obstacle = "half_life='auto', which compares predictions with outcomes"
    elif policy.half_life is not None and policy.family.dispersion is None:
        obstacle = "a half-life and rewards of unknown variance, which need all rows"
    elif policy.learns_after is not None:
        obstacle = "a policy that learns at the end of a window of decisions"
    elif not isinstance(estimator, Laplace | Ridge | Online):
        obstacle = f"the estimator {estimator!r}"
    elif isinstance(estimator, Laplace) and estimator.mean_correction:
        obstacle = "an estimator that corrects the mean, which needs all rows in one place"
    else:
        obstacle = None
    if obstacle is None:
        return
    message = f'several learners cannot share a bandit with {obstacle}: use learners = "one"'
    raise InvalidInput(message, policy)


def _unmergeable_conversions(policy: Policy, rewards: ConversionsOnly) -> str | None:
    size = math.prod(policy.shape) * policy.shape[-1] ** 2
    reasons = {
        "ConversionsOnly(delivery='batches'), because no partition sees whole deliveries": (
            rewards.delivery == "batches"
        ),
        "ConversionsOnly and values other than 0 and 1, whose spread needs all rows": (
            not isinstance(policy.family, Bernoulli)
        ),
        "ConversionsOnly and so many coefficients, because the sums would be too large": (
            size > CHEAP
        ),
    }
    return next((name for name, applies in reasons.items() if applies), None)


class PartitionLearner(Learner):
    """Maintains additive sums for one partition and does not update the model.

    The log-likelihood is expanded at the center that all partitions share. While this partition has
    more rewards than the center is based on, the log-likelihood is expanded at the partition's own
    estimate instead. Expansions at different points can be added.

    Args:
        policy: the policy whose model is trained.
        partitions: number of partitions of the journal.
        kernels: kernels to use instead of the fastest available.
        tuning: internal sizes; the limit on unfrozen rows is divided by the number of partitions.
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
        self.is_bulk = True  # permanently
        self._store = self.observations[0]
        self._freezer = Freezer([self._store], tuning.exact // partitions, self._limit)
        self._center = Center(self.model.theta.copy())
        self._next_own = 0.0  # number of rewards at which the partition's own estimate is updated
        self._running = RunningSums(self._store, policy.family, self._center.theta)
        #: The number of the center at which the sums are expanded; 0 for the partition's estimate.
        self.expanded_at = 0

    @property
    def theta(self) -> Vector:
        """The θ at which the log-likelihood is expanded."""
        return self._running.theta

    @property
    def pending_information(self) -> Information:
        """The information of pending decisions."""
        self.fold_in()
        return self.weighting.pending

    def adopt(self, center: Center) -> None:
        """Expand at this center, unless this partition has more rewards than it is based on."""
        self._center = center

    def sums(self) -> FrozenSums:
        """Return the sums of all rewards of this partition."""
        self.fold_in()
        self._compact()
        if not isinstance(self.policy.family, Gaussian):  # Gaussian sums do not depend on θ
            self._choose_theta()
        return self._running.total()

    def _choose_theta(self) -> None:
        n = self._store.n
        if n <= self._center.n:
            if self.expanded_at != self._center.number:
                self._expand_at(self._center.theta, self._center.number)
        elif self.expanded_at != 0 or n >= self._next_own:
            own = self._fitted_once()
            self.weighting.prior = own.prior
            self._next_own = Laplace().next_fit(n, self.policy.shape)
            self._expand_at(own.theta, 0)

    def _expand_at(self, theta: Vector, number: int) -> None:
        self._running.move(theta)
        self.expanded_at = number
        self.model.theta = theta.copy()  # the next fit starts here, even after loading a snapshot

    # --- methods with which other learners update the model --------------------------------------

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Do nothing: partition learners are always in bulk mode."""
        yield

    def refresh(self) -> None:
        """Do nothing: there is no model to update."""

    def fit(self) -> None:
        """Do nothing: there is no model to fit."""

    def revise(self, handle: int, y: float, recorded: int = 0, partition: int = 0) -> None:
        """Change a reward."""
        self.fold_in()
        _, before = self._store.get(handle)
        super().revise(handle, y, recorded, partition)
        self._running.revise(handle, before)

    def retract(self, handle: int, recorded: int = 0, partition: int = 0) -> Vector:
        """Remove a reward without making its decision pending again; return its row."""
        self.fold_in()
        row, y = self._store.get(handle)
        frozen = self._store.is_frozen(handle)
        x = super().retract(handle, recorded, partition)
        self._running.remove(handle, row, y, frozen)
        return x

    def _look_for_estimate(self) -> None:
        if self._store.n <= self._center.n:
            self.model.theta = np.array(self._center.theta)
        else:
            super()._look_for_estimate()
        self._running.clear()
