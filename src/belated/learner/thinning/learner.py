"""A learner of conversions: every decision counts at once, for what should be seen by its age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from belated.estimators import Estimate
from belated.estimators.conversion_law import Conversions
from belated.estimators.thinned import AgedDecisions, Thinned, ThinnedEstimate, prior_precision
from belated.inputs import Matrix, Vector
from belated.kernels import Kernels
from belated.kernels.lapack import dposv
from belated.kernels.roots import root_of
from belated.learner.forgetting.tracks import USED
from belated.learner.learner import Learner
from belated.learner.thinning.blocks import AgeBlocks
from belated.learner.thinning.deliveries import AgeClock, Delivery
from belated.learner.thinning.known import TICK, Fading, Outstanding, decided, told_in
from belated.learner.thinning.times import REMOVED, SILENT, ConversionTimes
from belated.policies.policy import Policy
from belated.statistics import Information
from belated.tuning import USUAL, Tuning

#: The longest step from the last fit.
LONGEST = 2.0
#: Growth in decisions after which θ̂ makes a step though nothing was reported, and after which it
#: is fitted anew; and the least number of decisions between two fits.
STEP, GROWTH, SOONEST = 0.01, 0.05, 20
#: What has faded is fitted anew by its growth from so many conversions on, however few still count.
MANY = 30

#: A piece of a snapshot.
_NOW = "thinned at"


class ThinnedLearner(Learner):
    """Keeps the model of a policy where only conversions are reported.

    Whoever tells it of a decision says before when that took effect, see :meth:`tell`; one that is
    told without a time counts as explored, until it is told to leave. Ages are measured up to the
    latest record that :meth:`see` was told, or up to the last delivery where conversions come in
    batches. With a half-life a decision, its conversion and what that says of delays count for
    2^(-age/h) by that record. The model moves when a record is folded: see :meth:`finish`.

    Args:
        policy: whose model is learned.
        window: within which conversions come, in microseconds.
        delivery: whether conversions come in batches; "auto" finds out.
        partitions: of the journal.
        kernels: to use instead of the best available.
        tuning: sizes.

    Attributes:
        half_life: of the policy, in microseconds, if it has one.
        outstanding: gives all pending decisions, by partition.

    >>> from belated import Bernoulli, DelayedUCB
    >>> learner = ThinnedLearner(DelayedUCB(1, Bernoulli(), ridge=1.0), window=1_000)
    >>> x = np.array([1.0])
    >>> for time in (0, 10):
    ...     learner.see(time)
    ...     learner.tell(time)
    ...     learner.add_pending(x, 0.25)
    ...     learner.finish()
    >>> learner.see(500)
    >>> learner.tell(10)
    >>> handle = learner.learn(x, 1.0, 0.25)
    >>> learner.finish()
    >>> learner.model.n, learner.model.pending
    (1, 1)
    """

    freezes = False

    def __init__(
        self,
        policy: Policy,
        *,
        window: int,
        delivery: Delivery = "auto",
        partitions: int = 1,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        self.window = window
        self.half_life = policy.half_life_us
        self.outstanding: Callable[[], Sequence[Outstanding]] = tuple
        self.times = [ConversionTimes() for _ in range(partitions)]
        #: Conversions that were learned.
        self.converted = 0
        given: object = policy.estimator
        self._estimator = given if isinstance(given, Thinned) else Thinned()
        self._stamp = 0
        self._began: int | None = None
        self._asked_at: list[int] = []
        self._held = Information.zero(policy.dim)
        nothing = AgedDecisions(policy.dim, (), Conversions.none(), TICK / window)
        law = self._estimator.law(nothing)
        self._clock = AgeClock(window, delivery)
        self._work: Literal["", "step", "fit"] = ""
        self._is_fitting = False  # beside the fold
        # With so many decisions θ̂ makes its next step, and is fitted anew.
        self._step_due, self._fit_due = 1.0, float(SOONEST)
        self._fitted_at = 0
        self._blocks = AgeBlocks(window, policy.family, policy.start.mean, law, 0, self.half_life)
        super().__init__(policy, partitions=partitions, kernels=kernels, tuning=tuning)
        self.model.effective_n = 0.0

    @property
    def now(self) -> int:
        """The stamp of the latest record."""
        return self._clock.now

    # --- what it is told -----------------------------------------------------------------------

    def see(self, recorded: int) -> None:
        """A record is about to be folded; called before anything that it changes."""
        self._stamp = recorded
        clock = self._clock
        if recorded > clock.now:
            clock.now = recorded
        if clock.has_delivered or self._has_faded:
            self._work = "fit"

    def tell(self, began: int) -> None:
        """What is told next is of a decision that took effect then."""
        self._began = began

    def add_pending(self, x: Vector, weight: float) -> None:
        """A decision was made; its reward is out."""
        began, self._began = self._began, None
        if self._bulk:
            self.model.pending += 1
            self.model.decisions += 1
        elif self._share == 0.0:
            self.model.note(x)
        else:
            self.model.add_pending(x, self._share * weight)
        if began is None:
            self._held = self._held + Information.of(x[None, :], [weight])
            return
        self._ask(began, x)
        decisions = self.model.decisions
        if decisions >= self._fit_due:
            self._work = "fit"
        elif decisions >= self._step_due and not self._work:
            self._work = "step"

    def _ask(self, began: int, x: Vector) -> None:
        if self._bulk:
            return  # a fit at its end counts them all
        self._waiting.asked[0].append(x)
        self._asked_at.append(began)
        if len(self._asked_at) == self._limit:
            self._fold()

    def remove_pending(self, x: Vector, weight: float) -> None:
        """A decision left without a reward: it no longer counts at all."""
        began, self._began = self._began, None
        if self._share == 0.0 or self._bulk:
            self.model.pending -= 1
        elif not self.model.remove_pending(x, self._share * weight) and not self._work:
            self._work = "step"
        if began is None:
            self._held = self._held - Information.of(x[None, :], [weight])
        else:
            self._drop(began, x)

    def _drop(self, began: int, x: Vector) -> None:
        if self._bulk:
            return
        self._fold()
        if not self._blocks.remove(began, x):
            self._work = "fit"

    def move(self, x: Vector, began: int, to: int) -> None:
        """A pending decision took effect at another time."""
        self._drop(began, x)
        self._ask(to, x)

    def learn(self, x: Vector, y: float, weight: float, partition: int = 0) -> int:
        """A conversion came, or the window has ended without one."""
        assert self._began is not None
        began, self._began = self._began, None
        self.model.pending -= 1
        self.model.n += 1
        waiting = self._waiting.came[partition]
        waiting.rows.append(x)
        waiting.rewards.append(y)
        self.times[partition].append(began, self._stamp if y else SILENT)
        if y:
            self._convert(began, x, y, 1)
        handle = self._given[partition]
        self._given[partition] = handle + 1
        if len(waiting.rows) == self._limit:
            self._fold()
        return handle

    def _convert(self, began: int, x: Vector, change: float, count: int) -> None:
        """The value of a decision has changed, and the number of conversions."""
        if not self._bulk:
            self._blocks.fade(self.now)
            self._blocks.convert(np.array([began]), x[None, :], np.array([change]))
        self.converted += count
        self._clock.told(self._stamp)
        in_batches = self._clock.in_batches
        if count < 0 or (self.converted >= self._next_fit and not in_batches):
            self._work = "fit"
        elif not self._work and not in_batches:
            self._work = "step"

    def revise(self, handle: int, y: float, partition: int = 0) -> None:
        """The reward under a handle is another one."""
        self._fold()
        store, times = self.observations[partition], self.times[partition]
        row, _ = store.get(handle)
        before = store.revise(handle, y)
        if bool(y) != bool(before):
            times.told[handle] = self._stamp if y else SILENT
        began, count = int(times.began[handle]), bool(y) - bool(before)
        self._convert(began, row.astype(np.float64), y - before, count)

    def retract(self, handle: int, partition: int = 0) -> Vector:
        """The reward under a handle never came, and nor is it waited for; returns its row."""
        self._fold()
        store, times = self.observations[partition], self.times[partition]
        row, y = store.get(handle)
        x = row.astype(np.float64)
        store.remove(handle)
        began = int(times.began[handle])
        self._drop(began, x)
        times.began[handle], times.told[handle] = REMOVED, SILENT
        self.model.n -= 1
        if y:
            self._convert(began, x, -y, -1)
        return x

    def restart(self, handle: int, began: int, partition: int) -> None:
        """A decision that was learned took effect at another time."""
        self.times[partition].restart(handle, began)
        self._work = "fit"

    def forget(self, handle: int, partition: int = 0) -> None:
        """Nothing more comes for a handle; its row is kept, for every fit is of all rows."""

    def finish(self) -> None:
        """A record is folded: let the model move, if it is to."""
        work, self._work = self._work, ""
        if self._bulk or not work:
            return
        if work == "fit" and not self.defers:
            self.fit()
        elif work == "fit":
            self._work = work
            self._step()
        else:
            self._step()

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Many decisions were made whose rewards are out; within :meth:`bulk`."""
        self.model.pending += len(rows)
        self.model.decisions += len(rows)

    # --- fits and steps ------------------------------------------------------------------------

    def fit(self) -> None:
        """Fit all decisions, and let the model go on from there."""
        self._is_fitting = False
        data = self._data()
        self._restart(self._fit_of(data, polish=False), data)

    def fit_is_due(self) -> bool:
        """Whether there is enough that is new."""
        return not self._is_fitting and self._work == "fit"

    def begin_fit(self) -> Callable[[], Estimate]:
        """Start a fit of what is known by now, as :meth:`Learner.begin_fit`."""
        data, self._work = self._data(), ""
        self._is_fitting, self._fitted_at = True, self.now
        return partial(
            self._estimator.fit,
            data,
            family=self.policy.family,
            prior=self._prior,
            start=self.model.theta.copy(),
            polish=False,
        )

    def finish_fit(self, estimate: Estimate) -> bool:
        """Go on from a fit; returns False if it is of no use: all was fitted anew since."""
        was_fitting, self._is_fitting = self._is_fitting, False
        if not was_fitting or not isinstance(estimate, ThinnedEstimate):
            return False
        self._restart(estimate, self._data())
        self._step()  # for what has come since it began
        return True

    def _estimate(self, polish: bool) -> Estimate:
        return replace(self._fit_of(self._data(), polish), half_life_us=self.half_life)

    def _fit_of(self, data: AgedDecisions, polish: bool) -> ThinnedEstimate:
        prior = self.policy.start if polish else self._prior
        family, start = self.policy.family, self.model.theta
        return self._estimator.fit(data, family=family, prior=prior, start=start, polish=polish)

    def _restart(self, estimate: ThinnedEstimate, data: AgedDecisions) -> None:
        """Go on from an estimate, all sums taken at it."""
        self._prior = estimate.prior
        self.model.restart(estimate.mean, estimate.dispersion)
        family, theta, until = self.policy.family, self.model.theta.copy(), self._clock.until
        self._blocks = AgeBlocks(self.window, family, theta, estimate.law, until, self.half_life)
        self._blocks.fade(self.now)
        self._blocks.add_all(data, until)
        self._waiting.asked[0].clear()
        self._asked_at.clear()
        self._work = ""
        self._fitted_at = self.now
        self.model.observed = root_of(estimate.precision)
        self._fit_due = self.model.decisions + max(SOONEST, GROWTH * self._step(moves=False))
        known = self.converted
        if self.half_life is not None:  # what has faded need not grow
            known = min(known, max(round(data.conversions.counts.sum()), MANY))
        self._next_fit = self.converted - known + self._estimator.next_fit(known, self.policy.dim)

    def _step(self, moves: bool = True) -> float:
        """Make θ̂ and the root of all decisions anew from the sums; returns how many count."""
        self._fold()
        family, phi = self.policy.family, self.model.dispersion
        sums = self._blocks.sums(self._clock.until)
        if moves and not self._clock.in_batches:
            prior = prior_precision(self._prior, family, phi)
            away = self._blocks.theta - self._prior.mean
            gradient = (self._blocks.converted - sums.mean) / phi - prior @ away
            _, step, failed = dposv(prior + sums.seen / phi, gradient)
            if not failed:
                length = float(np.linalg.norm(step))
                self.model.theta = self._blocks.theta + min(1.0, LONGEST / (length or 1.0)) * step
        share = self._share
        counted = (share * sums.all + (1.0 - share) * sums.seen) / phi
        own = prior_precision(self.policy.start, family, phi)
        self.model.decided = root_of(own + counted + share * self._held.matrix)
        self.model.effective_n = sums.n
        count = float(self.model.decisions) if self.half_life is None else sums.decisions
        self._step_due = self.model.decisions + STEP * count + 1
        return count

    def _renew(self) -> None:
        self._step()

    def _compact(self) -> None:
        """Nothing is frozen: what a row counts for changes with its age."""

    def _fold(self, *, refit: bool = False) -> None:
        """Put what waits into the stores and the sums by age."""
        rows = self._waiting.asked[0]
        self._blocks.fade(self.now)
        if rows:
            self._blocks.add(np.array(self._asked_at), np.array(rows), self._clock.until)
        rows.clear()
        self._asked_at.clear()
        for store, one in zip(self.observations, self._waiting.came, strict=True):
            if one.rows:
                store.extend(np.array(one.rows), one.rewards)
                one.rows.clear()
                one.rewards.clear()

    # --- what a fit is of ----------------------------------------------------------------------

    @property
    def _has_faded(self) -> bool:
        """Whether decisions count for noticeably less than they did in the last fit."""
        return self.half_life is not None and self.now - self._fitted_at >= USED * self.half_life

    def _data(self) -> AgedDecisions:
        """All decisions as they are known."""
        self._fold()
        batches = self._clock.look(*told_in(self.times))
        learned = list(zip(self.observations, self.times, strict=True))
        fading = None if self.half_life is None else Fading(self.now, self.half_life)
        until = self._clock.until
        return decided(learned, self.outstanding(), self.window, until, batches, fading)

    # --- snapshots -----------------------------------------------------------------------------

    def pack_times(self, partition: int) -> dict[str, bytes]:
        """What a snapshot needs beside the observations of a partition."""
        return self.times[partition].pack() | {_NOW: self.now.to_bytes(8)}

    def unpack_times(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack_times` gave, within :meth:`bulk`."""
        self.times[partition].unpack(pieces)
        told = self.times[partition].told
        self.converted += int((told != SILENT).sum())
        self._clock.told(int(told.max(initial=SILENT)))
        self._clock.now = max(self.now, int.from_bytes(pieces[_NOW]))
