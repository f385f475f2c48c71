"""From changes to sums, to an estimate, to the model.

The learner is told of each decision when it is made and of each reward when it comes. The model
moves by one step at once. The sums behind it are folded in batches, all rows of a batch in one BLAS
call, and the roots are made anew from them; a fit over all observations replaces θ̂ and the weights
when the estimator asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from belated.estimators import Estimate, Estimator, Laplace
from belated.exceptions import BelatedError
from belated.families import Gaussian
from belated.inputs import Matrix, Row, Vector
from belated.kernels import Kernels
from belated.kernels.lapack import dpotrf
from belated.learner.kept_rewards import KeptRewards
from belated.learner.refit import Refit
from belated.policies.policy import Policy
from belated.priors import Prior
from belated.statistics import Information, Joined, Observations
from belated.tuning import USUAL, Tuning


class Learner(KeptRewards):
    """Keeps the model of a policy.

    Rows given to a learner are kept for a while: they must not change afterwards. What has arrived
    is kept by the partitions of a journal; a reward is known there by the handle
    that :meth:`learn` gave.

    >>> from belated import Bernoulli
    >>> from belated.policies import DelayedUCB
    >>> learner = Learner(DelayedUCB(2, Bernoulli()))
    >>> x = np.array([0.5, 1.0])
    >>> learner.add_pending(x, 0.25)
    >>> handle = learner.learn(x, 1.0, 0.25)
    >>> learner.model.n, learner.model.pending
    (1, 0)
    >>> learner.estimate.theta.round(3)
    array([0.191, 0.383])
    """

    def __init__(
        self,
        policy: Policy,
        *,
        partitions: int = 1,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        super().__init__(policy, partitions, kernels, tuning)
        #: True if a fit that is due is left to whoever calls :meth:`begin_fit`.
        self.defers = False
        self._prior = policy.start
        self._share = policy.pending_weight
        self._gram = policy.metric == "gram"
        self._next_fit = 1.0 if self._fits else math.inf
        # Precisions: of what arrived, the same in the policy's metric, and of what is pending.
        self._observed: Matrix = policy.start.precision
        self._counted: Matrix = policy.start.precision
        self._pending = Information.zero(policy.dim)
        # Where φ is estimated the sum holds slopes, which are 1, and is divided by φ when it is
        # used: weights that were added under one φ could not be taken out under another.
        self._unscaled = policy.family.dispersion is None and not self._gram
        self._bulk = False
        self._refit: Refit | None = None
        self._share_roots()

    def add_pending(self, x: Vector, weight: float) -> None:
        """A decision was made; its reward is out."""
        if self._gram:
            weight = 1.0
        if self._bulk:
            self.model.pending += 1
            self.model.decisions += 1
        elif self._share == 0.0:
            self.model.note(x)
        else:
            self.model.add_pending(x, self._share * weight)
        rows, weights = self._waiting.asked
        rows.append(x)
        weights.append(1.0 if self._unscaled else weight)
        if len(rows) == self._limit:
            self._renew()

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Many decisions were made whose rewards are out; within :meth:`bulk`."""
        plain = self._gram or self._unscaled
        self._pending += Information.of(rows, np.ones(len(rows)) if plain else weights)
        self.model.pending += len(rows)
        self.model.decisions += len(rows)

    def take_page(
        self,
        decisions: int,
        asked: Row,
        weights: Vector,
        came: Row,
        learned: Matrix,
        partition: int,
    ) -> None:
        """Many decisions were made, and many rewards came; within :meth:`bulk`.

        Args:
            decisions: how many were made.
            asked: the rows of those whose rewards are still out.
            weights: with which they are.
            came: the rows of the rewards.
            learned: the rewards, the weights their decisions had, and 1 where the decision was made
                before these.
            partition: of the rewards.
        """
        assert self._bulk
        old = learned[:, 2] > 0.0
        before = learned[old, 1]
        if self._gram or self._unscaled:
            weights, before = np.ones(len(weights)), np.ones(len(before))
        waiting = self._waiting
        waiting.add_tables(asked, weights, came[old], before)
        if waiting.in_tables >= self._limit or waiting.came[partition].rows:
            self._fold()  # also because handles are given in order
        if len(came):
            if self._gram:
                self._counted = self._counted + Information.of(came, np.ones(len(came))).matrix
            self.observations[partition].extend(came, learned[:, 0])
            self._given[partition] += len(came)
        self.model.decisions += decisions
        self.model.pending += decisions - len(came)
        self.model.n += len(came)
        self._compact()

    def restore_pending(self, x: Vector, weight: float) -> None:
        """A decision that was withdrawn counts again: its reward has come after all."""
        self.add_pending(x, weight)
        self.model.decisions -= 1

    def learn(self, x: Vector, y: float, weight: float, partition: int = 0) -> int:
        """The reward of a decision came; ``weight`` is what it was expected with.

        Returns a handle, by which the reward can be revised or retracted.
        """
        model = self.model
        if self._bulk:
            learned = weight
            model.pending -= 1
            model.n += 1
        else:
            learned = model.learn(x, y)
        if self._gram:
            weight = 1.0
        if not self._bulk and self._share < 1.0 and (self._gram or self._share > 0.0):
            model.count(x, (1.0 - self._share) * weight)
        rows, rewards, before, after = self._waiting.came[partition]
        rows.append(x)
        rewards.append(y)
        before.append(1.0 if self._unscaled else weight)
        after.append(learned)
        handle = self._given[partition]
        self._given[partition] = handle + 1
        if model.n >= self._next_fit and not self._bulk and not self.defers:
            self.fit()
        elif len(rows) == self._limit:
            self._renew()
        return handle

    def remove_pending(self, x: Vector, weight: float) -> None:
        """A decision left without a reward: it no longer counts as explored."""
        if self._gram:
            weight = 1.0
        rows, weights = self._waiting.left
        rows.append(x)
        weights.append(1.0 if self._unscaled else weight)
        if self._share == 0.0 or self._bulk:
            self.model.pending -= 1
            if len(rows) == self._limit:
                self._renew()
        elif not self.model.remove_pending(x, self._share * weight) or len(rows) == self._limit:
            self._renew()

    def revise(self, handle: int, y: float, partition: int = 0) -> None:
        """The reward under a handle is another one."""
        self._fold()
        observations = self.observations[partition]
        row, _ = observations.get(handle)
        before = observations.revise(handle, y)
        if self._refit is not None and handle < self._refit.upto[partition]:
            self._refit.amended += (y - before) * row.astype(np.float64)
        if not self._bulk:
            self.model.revise(row, before, y)

    def retract(self, handle: int, partition: int = 0) -> Vector:
        """The reward under a handle never came, and nor is it waited for; returns its row."""
        self._fold()
        observations = self.observations[partition]
        row, y = observations.get(handle)
        x = row.astype(np.float64)
        observations.remove(handle)
        if self._refit is not None and handle < self._refit.upto[partition]:
            self._refit.removed.append((x, y))
        if self._gram:
            self._counted = self._counted - Information.of(x[None, :], [1.0]).matrix
        if self._bulk:
            self.model.n -= 1
            return x
        # What its row has in the sums is what it had in the last fit: nearly what it would have.
        _, weight = self.model.predict(x)
        one = Information.of(x[None, :], [weight])
        self._observed = self._observed - one.matrix
        done = self.model.retract(x, y, weight)
        if self._share == 0.0 and not self._gram:  # the same root, and it has been taken out
            self.model.pending -= 1
        else:
            done = self.model.remove_pending(x, 1.0 if self._gram else weight) and done
        if not done:
            self.fit()
        return x

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Many changes at once: the model stands still, and is fitted anew at the end."""
        self._bulk = True
        try:
            yield
        except BelatedError:  # all changes before it count; any other error leaves one half done
            self._end_bulk()
            raise
        self._end_bulk()

    def _end_bulk(self) -> None:
        self._bulk = False
        self._catch_up()

    def refresh(self) -> None:
        """Bring the model up to date, also within :meth:`bulk`."""
        if self._bulk:
            self._bulk = False
            self._catch_up()
            self._bulk = True

    def _catch_up(self) -> None:
        self.fit()

    @property
    def estimate(self) -> Estimate:
        """A converged fit of what has arrived: a function of the set of rewards alone.

        So it is while all rows are kept. Those that were frozen count as they were frozen.
        """
        return self._estimate(polish=True)

    def _estimate(self, polish: bool) -> Estimate:
        self._fold()
        # Exact steps need no fits of their own, whatever the policy's estimator says.
        estimator = self.policy.estimator if self._fits else Laplace()
        prior = self.policy.start if polish else self._prior
        return self._fitted(estimator, prior, polish=polish)

    def _fitted(self, estimator: Estimator, prior: Prior, *, polish: bool = False) -> Estimate:
        family, start = self.policy.family, self.model.theta
        return estimator.fit(self.observed, family=family, prior=prior, start=start, polish=polish)

    def fit(self) -> None:
        """Fit all observations, and let the model go on from there."""
        self._refit = None  # one that was under way is of no use any longer
        self._fold(refit=True)
        self._go_on_from(self._estimate(polish=False))

    # --- a fit beside the fold -----------------------------------------------------------------

    def fit_is_due(self) -> bool:
        """Whether observations have grown enough for a fit."""
        return self._refit is None and self.model.n >= self._next_fit

    def begin_fit(self) -> Callable[[], Estimate]:
        """Start a fit of what has arrived by now.

        What this returns may be called in another thread, while further rewards are learned here;
        give its result to :meth:`finish_fit`.
        """
        self._fold()
        seen = Joined([store + Observations(store.dim) for store in self.observations])
        upto = [store.next_handle for store in self.observations]
        self._refit = Refit(seen, upto, np.zeros(self.policy.dim), [])
        return partial(
            self.policy.estimator.fit,
            seen,
            family=self.policy.family,
            prior=self._prior,
            start=self.model.theta.copy(),
            polish=False,
        )

    def finish_fit(self, estimate: Estimate) -> bool:
        """Go on from a fit; returns False if it is of no use: all was fitted anew since."""
        refit, self._refit = self._refit, None
        if refit is None or estimate.n != refit.seen.n:
            return False
        self._fold()
        since = [store.since(at) for store, at in zip(self.observations, refit.upto, strict=True)]
        self._go_on_from(refit.finished(estimate, since, self.policy.family))
        return True

    def _go_on_from(self, estimate: Estimate) -> None:
        self._prior = estimate.prior
        # An estimated prior is weaker than the policy's. It lets θ̂ be large; it is not a reason to
        # explore more, so the roots keep counting from the policy's own.
        weaker = self.policy.start.precision - estimate.prior.precision
        if self.policy.family.dispersion is None and self.policy.start.is_ridge:
            weaker /= estimate.dispersion  # a ridge is of θ/√φ
        self._observed = estimate.precision + weaker
        if self._fits:
            self._next_fit = self.policy.estimator.next_fit(estimate.n, self.policy.dim)
        self.model.restart(estimate.mean, estimate.dispersion)
        self._renew()

    @property
    def _fits(self) -> bool:
        """Steps of Gaussian rewards are exact: only an estimated variance or prior needs fits."""
        family = self.policy.family
        exact = isinstance(family, Gaussian) and family.dispersion is not None
        return not exact or self.policy.start.adaptive

    def _fold(self, *, refit: bool = False) -> None:
        """Fold what waits into the sums; into those that a fit makes anew only if none follows."""
        self._pending = self._waiting.sum_into(self._pending)
        for store, one in zip(self.observations, self._waiting.came, strict=True):
            if not one.rows:
                continue
            arrived = np.array(one.rows)
            if not refit:
                self._observed = self._observed + Information.of(arrived, one.after).matrix
            if self._gram:
                self._counted = self._counted + Information.of(arrived, one.before).matrix
            store.extend(arrived, one.rewards)
            for column in one:
                column.clear()

    def _compact(self) -> None:
        """Freeze the oldest rows where there are too many, and let go of what nobody asks for."""
        freezer = self._freezer
        if self._refit is not None or not freezer.is_due:
            return  # a fit beside the fold still needs the rows that have come since
        self._fold()
        if freezer.is_full:
            if self._bulk:  # the model stands still, and the estimate of now is another
                self._look_for_estimate()
            freezer.freeze(self.model.theta, half=self._bulk)
        freezer.drop()

    def _look_for_estimate(self) -> None:
        """Have θ̂ of now in the model, to freeze rows at."""
        now = self._fitted(Laplace(), self._prior)
        self._prior, self.model.theta = now.prior, now.mean

    def _renew(self) -> None:
        """Make the roots anew from the sums."""
        self._fold()
        self._compact()
        if self._bulk:
            return
        counted = self._counted if self._gram else self._observed
        share = self._share / self.model.dispersion if self._unscaled else self._share
        decided = counted + share * self._outstanding()
        if dpotrf(decided)[1]:  # long rows have left, and their rounding outweighs the others
            decided = counted
        self.model.renew(self._observed, decided)
        self._share_roots()

    def _outstanding(self) -> Matrix:
        """The information of what is pending."""
        return self._pending.matrix

    def _share_roots(self) -> None:
        # Where pending decisions do not count there is one root, and one step moves it.
        if self._share == 0.0 and not self._gram:
            self.model.decided = self.model.observed
