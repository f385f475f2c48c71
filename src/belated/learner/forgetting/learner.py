"""A learner that forgets: its sums and its fits count each decision by its age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.estimators import Estimate, Laplace
from belated.estimators.weighted import Weighted
from belated.inputs import Matrix, Vector
from belated.kernels import Kernels
from belated.learner.forgetting.arrivals import REMOVED, Arrivals
from belated.learner.forgetting.pace import Pace, Packed
from belated.learner.forgetting.tracks import USED, Track
from belated.learner.learner import Learner
from belated.learner.refit import Refit
from belated.policies.policy import Policy
from belated.statistics import Information, Seen
from belated.tuning import USUAL, Tuning

#: Pending decisions: when they were made, their rows and weights.
Outstanding = tuple[NDArray[np.int64], Matrix, Vector]


class _State(msgspec.Struct, array_like=True):
    """What a snapshot of a partition has, beside the columns of its rewards."""

    now: int
    picked: int
    since: int
    learned: int
    pace: Packed


_read_state = msgspec.msgpack.Decoder(_State).decode


class ForgettingLearner(Learner):
    """Keeps the model of a policy with a half-life.

    Whoever tells it of a decision says before when that was made, see :meth:`tell`; one that is
    told without a time counts in full, until it is told to leave. The time by which ages are
    measured is the latest that :meth:`see` was told.

    Args:
        policy: whose model is learned.
        partitions: of the journal.
        kernels: to use instead of the best available.
        tuning: sizes.
        interval: microseconds between two decisions, if that is known.

    Attributes:
        now: the stamp of the latest record.
        picked: which of the tracks is in use.
        since: the stamp of the record by which it was picked; 0 if there was no other.
        outstanding: gives all pending decisions, by partition.

    >>> from belated import Bernoulli, DelayedUCB
    >>> learner = ForgettingLearner(DelayedUCB(1, Bernoulli(), half_life="10s"))
    >>> x = np.array([1.0])
    >>> for second, y in ((100, 0.0), (110, 1.0)):
    ...     learner.see(second * 1_000_000)
    ...     learner.tell(second * 1_000_000)
    ...     learner.add_pending(x, 0.25)
    ...     learner.tell(second * 1_000_000)
    ...     handle = learner.learn(x, y, 0.25)
    >>> learner.estimate.effective_n
    1.5
    """

    freezes = False

    def __init__(
        self,
        policy: Policy,
        *,
        partitions: int = 1,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
        interval: float | None = None,
    ) -> None:
        self.tracks = self._tracks_of(policy, partitions)
        self.picked = self.since = self.now = 0
        self.outstanding: Callable[[], Sequence[Outstanding]] = tuple
        self.pace = Pace(interval)
        self._stamp = 0
        self._made: int | None = None
        self._means: Sequence[float] = ()
        self._asked_at: list[int] = []
        self._left_at: list[int] = []
        self._came_at: list[list[int]] = [[] for _ in range(partitions)]
        self._held = Information.zero(policy.dim)
        self._is_new = False  # pending information is to be summed anew
        #: Rewards that were ever learned.
        self.learned = 0
        self.arrivals = [Arrivals(self.rivals) for _ in range(partitions)]
        super().__init__(policy, partitions=partitions, kernels=kernels, tuning=tuning)
        if self.half_life is not None:
            self.model.effective_n = 0.0

    def _tracks_of(self, policy: Policy, partitions: int) -> list[Track]:
        """The half-lives that there are."""
        return [Track(policy, policy.half_life_us, partitions)]

    @property
    def rivals(self) -> int:
        """Predictions that a decision has, to compare them."""
        return 0

    @property
    def half_life(self) -> int | None:
        """The half-life in use, in microseconds; None: nothing is forgotten."""
        return self.tracks[self.picked].half_life

    # --- what it is told -----------------------------------------------------------------------

    def see(self, recorded: int) -> None:
        """A record is about to be folded; called before anything that it changes."""
        self._stamp = recorded
        if recorded > self.now:
            self.now = recorded

    def tell(self, made: int, means: Sequence[float] = ()) -> None:
        """What is told next is of a decision of that time, for which these means were predicted."""
        self._made, self._means = made, means

    def add_pending(self, x: Vector, weight: float) -> None:
        """A decision was made; its reward is out."""
        made, self._made = self._made, None
        if made is None:
            self._hold(x, weight, 1)
            return
        self._asked_at.append(made)
        super().add_pending(x, weight)
        if self.tracks[self.picked].has_faded(self.now, USED):
            self._fit_now()

    def remove_pending(self, x: Vector, weight: float) -> None:
        """A decision left without a reward: it no longer counts as explored."""
        made, self._made = self._made, None
        if made is None:
            self._hold(x, weight, -1)
            return
        self._left_at.append(made)
        super().remove_pending(x, weight)

    def _hold(self, x: Vector, weight: float, sign: int) -> None:
        """Count a decision that has no record yet."""
        one = Information.of(x[None, :], [1.0 if self._unscaled else weight])
        self._held = self._held + one if sign > 0 else self._held - one
        if sign > 0 and self._share == 0.0:
            self.model.note(x)
        elif sign > 0:
            self.model.add_pending(x, self._share * weight)
        elif self._share == 0.0:
            self.model.pending -= 1
        elif not self.model.remove_pending(x, self._share * weight):
            self._renew()

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Many decisions were made whose rewards are out; within :meth:`bulk`."""
        super().add_all_pending(rows, weights)
        self._is_new = True

    def learn(self, x: Vector, y: float, weight: float, partition: int = 0) -> int:
        """The reward of a decision came; ``weight`` is what it was expected with."""
        assert self._made is not None
        made, self._made = self._made, None
        model, track = self.model, self.tracks[self.picked]
        learned = weight
        if not self._bulk:
            share = track.share(made)
            learned = model.learn_share(x, y, share)
            if model.effective_n is not None:
                model.effective_n += share
            if 0.0 < self._share < 1.0:
                model.count(x, (1.0 - self._share) * weight * share)
        model.pending -= 1
        model.n += 1
        rows, rewards, before, after = self._waiting.came[partition]
        rows.append(x)
        rewards.append(y)
        before.append(1.0 if self._unscaled else weight)
        after.append(learned)
        self._came_at[partition].append(made)
        handle = self._given[partition]
        self._given[partition] = handle + 1
        self._arrived(x, y, made, partition)
        if model.n >= self._next_fit or track.has_faded(self.now, USED):
            self._fit_now()
        if len(rows) >= self._limit:
            self._renew()
        return handle

    def _arrived(self, x: Vector, y: float, made: int, partition: int) -> None:
        """Keep what a fit needs to know of a reward beside its row."""
        self.arrivals[partition].append(made, y, None)

    def _count_evidence(self, handle: int, partition: int, sign: float) -> None:
        """A reward is about to change, with a sign of -1, or has changed."""

    def revise(self, handle: int, y: float, partition: int = 0) -> None:
        """The reward under a handle is another one."""
        self._fold()
        store, its = self.observations[partition], self.arrivals[partition]
        row, _ = store.get(handle)
        before = store.revise(handle, y)
        if self._refit is not None and handle < self._refit.upto[partition]:
            self._refit.amended += (y - before) * row.astype(np.float64)
        self._count_evidence(handle, partition, -1.0)
        its.y[handle] = y
        self._count_evidence(handle, partition, 1.0)
        if not self._bulk:
            share = min(1.0, self.tracks[self.picked].share(int(its.made[handle])))
            self.model.revise(row, before, before + share * (y - before))

    def retract(self, handle: int, partition: int = 0) -> Vector:
        """The reward under a handle never came, and nor is it waited for; returns its row."""
        self._fold()
        store, its = self.observations[partition], self.arrivals[partition]
        x = store.get(handle)[0].astype(np.float64)
        store.remove(handle)
        self._count_evidence(handle, partition, -1.0)
        its.made[handle], its.means[handle] = REMOVED, np.nan
        self.model.n -= 1
        if not self._bulk:
            self.fit()
        return x

    # --- fits ----------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        if self._is_new:
            self._sum_outstanding()
        self.fit()

    def fit(self) -> None:
        """Fit what counts now, and let the model go on from there."""
        self._refit = None
        self._fold(refit=True)
        self.tracks[self.picked].fitted_at = self.now
        self._go_on_from(self._estimate(polish=False))

    def fit_is_due(self) -> bool:
        """Whether there is enough that is new, or enough has faded."""
        track = self.tracks[self.picked]
        return super().fit_is_due() or (
            self._refit is None and self.model.n > 0 and track.has_faded(self.now, USED)
        )

    def begin_fit(self) -> Callable[[], Estimate]:
        """Start a fit of what has arrived by now, as :meth:`Learner.begin_fit`."""
        track = self.tracks[self.picked]
        if track.half_life is None:
            return super().begin_fit()
        self._fold()
        data = self._data(track)
        track.fitted_at = self.now
        assert isinstance(data, Weighted)
        upto = [store.next_handle for store in self.observations]
        self._refit = Refit(data, upto, np.zeros(self.policy.dim), [])
        return partial(self._fit_of, data, track, self.model.theta.copy(), False)

    def finish_fit(self, estimate: Estimate) -> bool:
        """Go on from a fit; returns False if it is of no use: all was fitted anew since."""
        refit = self._refit
        if refit is not None and isinstance(refit.seen, Weighted):
            estimate = replace(estimate, n=refit.seen.n)
        return super().finish_fit(estimate)

    def _fit_now(self) -> None:
        if not self._bulk and not self.defers:
            self.fit()

    def _data(self, track: Track) -> Seen:
        if track.half_life is None:
            return self.observed
        return track.data(self.observations, self.arrivals, self.now)

    def _fit_of(self, data: Seen, track: Track, start: Vector, polish: bool) -> Estimate:
        estimator = self.policy.estimator if self._fits else Laplace()
        prior = self.policy.start if polish else track.prior
        found = estimator.fit(
            data, family=self.policy.family, prior=prior, start=start, polish=polish
        )
        effective = data.effective_n if isinstance(data, Weighted) else None
        return replace(found, n=data.n, effective_n=effective)

    def _estimate(self, polish: bool) -> Estimate:
        self._fold()
        track = self.tracks[self.picked]
        found = self._fit_of(self._data(track), track, self.model.theta, polish)
        return replace(found, half_life_us=track.half_life, half_life_since_us=self.since or None)

    def _go_on_from(self, estimate: Estimate) -> None:
        track, n = self.tracks[self.picked], self.model.n
        track.prior, track.fitted_n = estimate.prior, n
        super()._go_on_from(estimate)
        self.model.effective_n = estimate.effective_n
        if estimate.effective_n is not None and self._fits:
            known = estimate.effective_n
            more = self.policy.estimator.next_fit(int(known), self.policy.dim) - int(known)
            self._next_fit = n + more

    def _compact(self) -> None:
        """Nothing is frozen: what a row counts for changes with time."""

    def _fold(self, *, refit: bool = False) -> None:
        """Fold what waits into the sums, into those that decay too."""
        if self._asked_at or self._left_at or any(self._came_at):
            self._sum_decaying()
        super()._fold(refit=refit)

    def _sum_decaying(self) -> None:
        waiting = self._waiting
        times, rows, weights = [*self._asked_at], [*waiting.asked[0]], [*waiting.asked[1]]
        ended = [(self._left_at, *waiting.left)]
        for at, one in zip(self._came_at, waiting.came, strict=True):
            ended.append((at, one.rows, one.before))
        for at, its_rows, its_weights in ended:
            times += at
            rows += its_rows
            weights += [-weight for weight in its_weights]
            at.clear()
        self._asked_at.clear()
        made, table, signed = np.array(times), np.array(rows), np.array(weights)
        nothing = self.model.pending == self._held.count  # what is left is rounding
        for track in self.tracks:
            if track.pending is not None:
                track.pending.add_rows(made, table, signed)
                if nothing:
                    track.pending.clear()

    def _sum_outstanding(self) -> None:
        """Sum what is pending anew."""
        self._fold()
        for track in self.tracks:
            track.last_as(track.half_life)
        for times, rows, weights in self.outstanding():
            for track in self.tracks:
                if track.pending is not None:
                    plain = np.ones(len(times)) if self._unscaled else weights
                    track.pending.add_rows(times, rows, plain)
        self._is_new = False

    def _outstanding(self) -> Matrix:
        track = self.tracks[self.picked]
        if track.pending is None:
            return self._pending.matrix + self._held.matrix
        return track.pending.at(track.fitted_at) + self._held.matrix

    # --- snapshots -----------------------------------------------------------------------------

    def pack_forgetting(self, partition: int, decisions: int) -> dict[str, bytes]:
        """What a snapshot needs beside the observations of a partition."""
        self._fold()
        pace = self.pace.pack(partition, decisions)
        state = _State(self.now, self.picked, self.since, self.learned, pace)
        return self.arrivals[partition].pack() | {"forgetting": msgspec.msgpack.encode(state)}

    def unpack_forgetting(self, partition: int, pieces: dict[str, bytes]) -> int:
        """Take what :meth:`pack_forgetting` gave, within :meth:`bulk`; returns the decisions."""
        state = _read_state(pieces["forgetting"])
        self.arrivals[partition].unpack(pieces)
        self.pace.unpack(partition, state.pace)
        if state.now >= self.now:
            self.picked = self.model.picked = state.picked
            self.since, self.learned = state.since, state.learned
        self.now = max(self.now, state.now)
        self._is_new = True
        return state.pace.count
