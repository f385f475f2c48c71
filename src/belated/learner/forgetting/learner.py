"""A learner that forgets: the model in use, and beside it those it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from belated.learner.forgetting.evidence import Evidence
from belated.learner.forgetting.pace import Pace, Packed
from belated.learner.forgetting.rivals import Rivals
from belated.learner.forgetting.tracks import USED, Track
from belated.learner.learner import Learner
from belated.learner.refit import Refit
from belated.policies.policy import Policy
from belated.statistics import Information, Seen
from belated.tuning import USUAL, Tuning

#: The half-lives of "auto", in decisions, after the one that forgets nothing.
COMPARED = (2000, 500, 150)
#: The half-life of a reward as evidence, in decisions; doubled until it is the mean delay.
EVIDENCE = 300
#: Rewards after which it is looked which half-life is best; they are learned together.
TOGETHER = 16
#: A half-life must be at least this share of the mean delay: else all is forgotten as it comes.
LEAST_DELAY = 0.5

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

    def __init__(
        self,
        policy: Policy,
        *,
        partitions: int = 1,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
        interval: float | None = None,
    ) -> None:
        self.compares = policy.half_life == "auto"
        spans = (None, *COMPARED) if self.compares else (policy.half_life_us,)
        self.tracks = [Track(policy, None if self.compares else one, partitions) for one in spans]
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
        self._told: list[tuple[Vector, float, int, Sequence[float]]] = []
        rivals = len(spans) if self.compares else 0
        self._unknown = (np.nan,) * rivals
        self.arrivals = [Arrivals(rivals) for _ in range(partitions)]
        self.evidence = Evidence(policy.family, rivals, 1)
        super().__init__(policy, partitions=partitions, kernels=kernels, tuning=tuning)
        self._rivals = Rivals(policy, self.tracks, self.model) if self.compares else None
        if self._rivals is None:
            self.model.effective_n = 0.0
        else:
            self._rescale()

    # --- what it is told -----------------------------------------------------------------------

    def see(self, recorded: int) -> None:
        """A record is about to be folded; called before anything that it changes."""
        self._stamp = recorded
        if recorded > self.now:
            self.now = recorded
        if self.pace.moved:
            self._rescale()
            if not self._bulk:
                self.fit()

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
        if self.compares:
            self._compare(x, y, made, partition)
        else:
            self.arrivals[partition].append(made, y, None)
        if model.n >= self._next_fit or track.has_faded(self.now, USED):
            self._fit_now()
        if len(rows) >= self._limit:
            self._renew()
        return handle

    def _compare(self, x: Vector, y: float, made: int, partition: int) -> None:
        """Keep what was predicted for a reward; now and then, look which half-life is best."""
        means = self._means if len(self._means) == len(self.tracks) else None
        self.arrivals[partition].append(made, y, means)
        self.pace.rewarded(self._stamp, max(0, self._stamp - made), partition)
        self._told.append((x, y, made, self._unknown if means is None else means))
        self.learned += 1
        if self.learned % TOGETHER == 0:
            self._learn_told()
            self._pick()
            if not self._bulk:
                self._fit_compared()

    def _learn_told(self) -> None:
        """Count what was predicted for the last rewards, and let all models learn these."""
        if not self._told or self._rivals is None:
            return
        rows, y, made, means = (np.array(column) for column in zip(*self._told, strict=True))
        self._told.clear()
        self.evidence.add(made, y, means)
        if not self._bulk:
            self._rivals.learn(rows, y, made)

    def revise(self, handle: int, y: float, partition: int = 0) -> None:
        """The reward under a handle is another one."""
        self._fold()
        store, its = self.observations[partition], self.arrivals[partition]
        row, _ = store.get(handle)
        before = store.revise(handle, y)
        if self._refit is not None and handle < self._refit.upto[partition]:
            self._refit.amended += (y - before) * row.astype(np.float64)
        self._learn_told()
        made, line = int(its.made[handle]), slice(handle, handle + 1)
        if self.compares:
            self.evidence.add(its.made[line], its.y[line], its.means[line], -1.0)
        its.y[handle] = y
        if self.compares:
            self.evidence.add(its.made[line], its.y[line], its.means[line])
        if not self._bulk:  # in the models that are compared, the next fit mends it
            share = min(1.0, self.tracks[self.picked].share(made))
            self.model.revise(row, before, before + share * (y - before))

    def retract(self, handle: int, partition: int = 0) -> Vector:
        """The reward under a handle never came, and nor is it waited for; returns its row."""
        self._fold()
        store, its = self.observations[partition], self.arrivals[partition]
        x = store.get(handle)[0].astype(np.float64)
        store.remove(handle)
        self._learn_told()
        line = slice(handle, handle + 1)
        if self.compares:
            self.evidence.add(its.made[line], its.y[line], its.means[line], -1.0)
        its.made[handle], its.means[handle] = REMOVED, np.nan
        self.model.n -= 1
        if not self._bulk:
            self.fit()
        return x

    # --- fits ----------------------------------------------------------------------------------

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Many changes at once: the model stands still, and is fitted anew at the end."""
        self._bulk = True
        try:
            yield
        finally:
            self._bulk = False
            self._catch_up()

    def refresh(self) -> None:
        """Bring the model up to date, also within :meth:`bulk`."""
        if self._bulk:
            self._bulk = False
            self._catch_up()
            self._bulk = True

    def _catch_up(self) -> None:
        self.pace.measure()  # partitions were read one after the other
        if self._is_new or self.pace.moved:
            self._rescale()
        self._learn_told()
        for n in range(len(self.tracks)):
            if n != self.picked:
                self._fit_rival(n)
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

    def _fit_compared(self) -> None:
        for n, track in enumerate(self.tracks):
            if n != self.picked and track.is_due(self.now, self.model.n):
                self._fit_rival(n)

    def _fit_rival(self, n: int) -> None:
        assert self._rivals is not None
        self._fold()
        self._learn_told()
        track = self.tracks[n]
        estimate = self._fit_of(self._data(track), track, self._rivals.start_of(n), False)
        self._rivals.go_on_from(n, estimate)
        track.prior = estimate.prior
        track.fitted_at, track.fitted_n = self.now, self.model.n

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
        if self._rivals is not None:
            self._rivals.go_on_from(self.picked, estimate)
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

    def _outstanding(self) -> Matrix:
        track = self.tracks[self.picked]
        if track.pending is None:
            return self._pending.matrix + self._held.matrix
        return track.pending.at(track.fitted_at) + self._held.matrix

    # --- which half-life -----------------------------------------------------------------------

    @property
    def half_life(self) -> int | None:
        """The half-life in use, in microseconds; None: nothing is forgotten."""
        return self.tracks[self.picked].half_life

    @property
    def scores(self) -> list[float]:
        """How well each half-life has predicted: log-likelihoods, but for a common constant."""
        self._learn_told()
        return self.evidence.scores

    def _rescale(self) -> None:
        """Half-lives that are given in decisions are another time now; and all sums anew."""
        self._fold()
        self._learn_told()
        self.pace.moved = False
        if self.compares:
            interval = self.pace.interval
            for track, decisions in zip(self.tracks[1:], COMPARED, strict=True):
                track.last_as(None if interval is None else max(1, round(decisions * interval)))
        else:
            self.tracks[0].last_as(self.policy.half_life_us)
        for times, rows, weights in self.outstanding():
            for track in self.tracks:
                if track.pending is not None:
                    plain = np.ones(len(times)) if self._unscaled else weights
                    track.pending.add_rows(times, rows, plain)
        self._is_new = False
        if self.compares:
            self._weigh()

    def _weigh(self) -> None:
        """Weigh all evidence anew, by another half-life."""
        half_life = self._evidence_half_life
        self.evidence = Evidence(self.policy.family, len(self.tracks), half_life)
        for one in self.arrivals:
            self.evidence.add(one.made, one.y, one.means)

    @property
    def _evidence_half_life(self) -> int:
        half_life = EVIDENCE * (self.pace.interval or 1e6)
        while half_life < self.pace.delay:
            half_life *= 2.0
        return max(1, round(half_life))

    def _pick(self) -> None:
        """Use the longest half-life that predicts nearly as well as the best."""
        if self._evidence_half_life != self.evidence.half_life:
            self._weigh()
        least = LEAST_DELAY * self.pace.delay
        allowed = [
            n == 0 or (track.half_life is not None and track.half_life >= least)
            for n, track in enumerate(self.tracks)
        ]
        picked = self.evidence.best(allowed)
        if picked != self.picked:
            self._use(picked)

    def _use(self, picked: int) -> None:
        self.picked = self.model.picked = picked
        self.since = self._stamp
        if not self._bulk:
            self.fit()

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
