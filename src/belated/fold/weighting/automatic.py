"""The automatic half-life: the longest half-life that predicts nearly as well as the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import Rewards
from belated.fold.times import REMOVED
from belated.fold.weighting.half_life import GONE, NEWEST, DecayedSum, HalfLife, Track, shares_at
from belated.model.blocks import add_gram, cross, predictors, solve
from belated.model.estimators import Estimate
from belated.model.families import Family
from belated.model.kernels import MAX_WEIGHT
from belated.model.model import STEP, Model
from belated.policies.policy import Policy

if TYPE_CHECKING:
    from belated.fold.learner import Learner


#: Number of decisions, or rewards, from which the pace is measured.
RECENT = 2048
#: Number of bits for a partition and for a delay in microseconds, in an integer that packs several
#: values. Integers compare faster than tuples, and the garbage collector does not track them.
_PARTITION, _DELAY = 12, 52
_PARTITIONS, _LONGEST = (1 << _PARTITION) - 1, (1 << _DELAY) - 1


class Latest:
    """The largest numbers added so far, regardless of the order in which they were added.

    Args:
        most: maximum number of items to keep.

    >>> latest = Latest(2)
    >>> [latest.add(item) for item in (5, 9, 7)]
    [None, None, 5]
    >>> sorted(latest.items)
    [7, 9]
    """

    def __init__(self, most: int) -> None:
        self.items: list[int] = []
        self._most = most

    def add(self, item: int) -> int | None:
        """Add a number; return the number dropped, if any."""
        if len(self.items) < self._most:
            heappush(self.items, item)
            return None
        return heappushpop(self.items, item)


class Packed(msgspec.Struct, array_like=True):
    """The part of the pace that is stored in a partition's snapshot."""

    count: int
    stamps: list[int]
    delays: list[tuple[int, int]]


class Pace:
    """The mean time between two decisions, and the mean delay of a reward.

    The time between decisions is measured at the 2nd, 4th, 8th … decision, and from the 2,048th
    decision, after every further 2,048. It is the mean over all decisions at first, and later over
    the last 2,048. It depends only on timestamps and rarely changes. The delay is the mean over the
    last 2,048 rewards.

    Attributes:
        interval: mean time between two decisions, in microseconds; None before the second decision,
            or if all decisions were made at the same time.
        moved: whether the interval has changed; reset by the caller.

    >>> pace = Pace()
    >>> for second in range(4):
    ...     pace.decided(second * 1_000_000)
    >>> pace.interval
    1000000.0
    """

    def __init__(self) -> None:
        self.interval: float | None = None
        self.moved = False
        self.count = 0
        self._next = 2
        self._stamps = Latest(2 * RECENT)  # timestamps, each packed with its partition
        self._delays = Latest(RECENT)
        self._sum = 0

    def decided(self, stamp: int, partition: int = 0) -> None:
        """Add a decision."""
        self.count += 1
        self._stamps.add(stamp << _PARTITION | partition)
        if self.count >= self._next:
            self.measure()

    def rewarded(self, stamp: int, delay: int, partition: int = 0) -> None:
        """Add a reward with its delay."""
        delay = min(delay, _LONGEST)
        self._sum += delay
        dropped = self._delays.add((stamp << _DELAY | delay) << _PARTITION | partition)
        if dropped is not None:
            self._sum -= dropped >> _PARTITION & _LONGEST

    @property
    def delay(self) -> float:
        """The mean delay in microseconds; 0 before the first reward."""
        return self._sum / len(self._delays.items) if self._sum else 0.0

    def measure(self) -> None:
        """Measure the time between decisions, as of the last decision at which it was due."""
        if self.count < 2:
            return
        block = min(1 << self.count.bit_length() - 1, RECENT)
        last = self.count // block * block  # the count at that decision
        self._next = last + block
        stamps = sorted(item >> _PARTITION for item in self._stamps.items)
        end = len(stamps) - 1 - (self.count - last)
        first = max(0, end - (RECENT if last > RECENT else last - 1))
        span = stamps[end] - stamps[first]
        interval = span / (end - first) if span > 0 else None
        if interval != self.interval:
            self.interval, self.moved = interval, True

    def pack(self, partition: int, count: int) -> Packed:
        """Return the part of the pace that belongs to a partition with ``count`` decisions."""
        stamps, delays = (
            sorted(item >> _PARTITION for item in latest.items if item & _PARTITIONS == partition)
            for latest in (self._stamps, self._delays)
        )
        return Packed(count, stamps, [(item >> _DELAY, item & _LONGEST) for item in delays])

    def unpack(self, partition: int, packed: Packed) -> None:
        """Restore a partition's result of :meth:`pack`; call :meth:`measure` after the last one."""
        for stamp in packed.stamps:
            self._stamps.add(stamp << _PARTITION | partition)
        for stamp, delay in packed.delays:
            self.rewarded(stamp, delay, partition)
        self.count += packed.count
        self._next = self.count + 1


#: Times in microseconds since 1970.
Times = NDArray[np.int64]
#: Largest deficit, in nats, at which a longer half-life is preferred to the best one.
MARGIN = 2.0
#: Predicted probabilities are clipped to LEAST … 1 - LEAST, and means of counts to at least LEAST.
LEAST = 1e-6


class Evidence:
    """Log-likelihoods of rewards under several predictions, with lower weights for old rewards.

    Ages are relative to the newest decision that has a reward.

    Args:
        family: the reward family.
        rivals: number of predictions per reward.
        half_life: half-life of the weights, in microseconds.

    >>> from belated import Bernoulli
    >>> evidence = Evidence(Bernoulli(), 2, half_life=1000)
    >>> evidence.add(np.arange(5), np.ones(5), np.tile([0.2, 0.8], (5, 1)))
    >>> evidence.best([True, True])
    1
    """

    def __init__(self, family: Family, rivals: int, half_life: int) -> None:
        self.family = family
        self.rivals = rivals
        self.newest: int | None = None
        self._sum = DecayedSum(half_life, (rivals + 1,))

    @property
    def half_life(self) -> int:
        """The half-life of the weights, in microseconds."""
        return self._sum.half_life

    def add(self, made: Times, y: Vector, means: Matrix, sign: float = 1.0) -> None:
        """Add rewards with their predictions, or subtract them if ``sign`` is -1.

        Rewards without predictions, whose means are NaN, are ignored.
        """
        predicted = means[:, 0] == means[:, 0]
        if not predicted.all():
            made, y, means = made[predicted], y[predicted], means[predicted]
        if not len(made):
            return
        newest = int(made.max())
        shares = shares_at(np.maximum(made, newest - GONE * self.half_life), newest, self.half_life)
        sums = shares @ self._logs(y[:, None], means)
        self._sum.add(newest, np.array([shares.sum(), *sums]), sign)
        self.newest = newest if self.newest is None else max(self.newest, newest)

    @property
    def scores(self) -> list[float]:
        """The log-likelihood of each prediction, up to a common constant."""
        if self.newest is None:
            return [0.0] * self.rivals
        weight, *sums = self._sum.at(self.newest).tolist()
        if self.family.dispersion is not None:
            return list(sums)
        # If the variance is unknown, maximize the likelihood over the variance.
        if weight <= 0.0:
            return [0.0] * self.rivals
        return [-0.5 * weight * math.log(max(-2.0 * term / weight, LEAST**2)) for term in sums]

    def best(self, allowed: Sequence[bool]) -> int:
        """Return the first allowed prediction that is nearly as good as the best allowed."""
        scores = self.scores
        candidates = [n for n, is_allowed in enumerate(allowed) if is_allowed]
        best = max(scores[n] for n in candidates)
        return next(n for n in candidates if scores[n] >= best - MARGIN)

    def _logs(self, y: Matrix, means: Matrix) -> Matrix:
        number = self.family.number
        if number == 1:
            p = np.clip(means, LEAST, 1.0 - LEAST)
            return y * np.log(p) + (1.0 - y) * np.log1p(-p)
        if number == 2:
            return y * np.log(np.maximum(means, LEAST)) - means
        errors = np.square(y - means) / (self.family.dispersion or 1.0)
        if number == 0:
            return -0.5 * errors
        slope_at = np.vectorize(self.family.slope_at, otypes=[np.float64])
        slopes = np.maximum(slope_at(means), LEAST)
        return np.asarray(-0.5 * (errors / slopes + np.log(slopes)))


class Rivals:
    """θ̂ and its precision for each half-life, updated by Newton steps between two fits.

    These estimates are only used to compare predictions, so they may lag slightly.

    Args:
        policy: the policy.
        tracks: the tracks of all half-lives.
        model: the model in use, which predicts with all θ̂.
    """

    def __init__(self, policy: Policy, tracks: list[Track], model: Model) -> None:
        self._family = policy.family
        self._tracks = tracks
        self._thetas = np.array([policy.start.mean] * len(tracks))
        self._precisions = np.array([policy.start.precision] * len(tracks))
        self._dispersions = np.full(len(tracks), model.dispersion)
        model.rivals = self._thetas  # shared: steps modify the array in place

    def start_of(self, track: int) -> Vector:
        """Return the starting point of the next fit of a track."""
        start: Vector = self._thetas[track].copy()
        return start

    def go_on_from(self, track: int, estimate: Estimate) -> None:
        """Continue from a fit of a track."""
        self._thetas[track] = estimate.mean
        self._precisions[track] = estimate.precision
        self._dispersions[track] = estimate.dispersion

    def learn(self, rows: Matrix, y: Vector, made: Times) -> None:
        """Update all tracks with rewards that have not been in any fit."""
        shares = self._shares(made) / self._dispersions
        for n, counts in enumerate(shares.T):
            theta, precision = self._thetas[n], self._precisions[n]
            _, mean, slope = self._family.cumulant_mean_slope(predictors(rows, theta))
            add_gram(precision, rows, np.minimum(counts * slope, MAX_WEIGHT))
            step = solve(precision, cross(counts * (y - mean), rows, theta.shape))
            if self._family.number != 0:  # for Gaussian rewards, steps are exact
                largest = float(np.abs(predictors(rows, step)).max())
                step *= min(1.0, STEP / max(largest, STEP))
            if np.isfinite(step).all():
                self._thetas[n] += step

    def _shares(self, made: Times) -> Matrix:
        """Return the weight of each reward for each half-life."""
        shares = np.ones((len(made), len(self._tracks)))
        for n, track in enumerate(self._tracks):
            if track.half_life is not None:
                age = (made - track.fitted_at) / track.half_life
                shares[:, n] = np.exp2(np.minimum(age, NEWEST))
        return shares


#: The half-lives to compare, in decisions, in addition to no decay.
COMPARED = (2000, 500, 150)
#: The half-life of the evidence, in decisions; doubled until it reaches the mean delay.
EVIDENCE = 300
#: Number of rewards after which half-lives are compared and the candidate models are updated.
TOGETHER = 16
#: A half-life must be at least this fraction of the mean delay; otherwise rewards would have
#: decayed by the time they arrive.
LEAST_DELAY = 0.5


class _State(msgspec.Struct, array_like=True):
    """The state that is stored in a partition's snapshot."""

    now: int
    picked: int
    since: int
    learned: int
    pace: Packed


_read_state = msgspec.msgpack.Decoder(_State).decode


class AutomaticHalfLife(HalfLife):
    """The weighting for the half-life "auto", which also maintains models with other half-lives.

    Attributes:
        learned_ever: number of rewards ever received.

    >>> from belated import Bernoulli, DelayedUCB
    >>> from belated.fold.learner import Learner
    >>> learner = Learner(DelayedUCB(1, Bernoulli(), half_life="auto"))
    >>> for second in range(2):
    ...     learner.weighting.entered(1_000_000 * second, 0)
    >>> learner.finish(1_000_000)
    >>> [track.half_life for track in learner.weighting.tracks]
    [None, 2000000000, 500000000, 150000000]
    >>> learner.weighting.half_life is None  # no decay, until another half-life predicts better
    True
    """

    takes_pages: ClassVar[bool] = False
    rivals: ClassVar[int] = 1 + len(COMPARED)

    def __init__(self, learner: Learner, rewards: Rewards | None = None) -> None:
        self.pace = Pace()
        self.learned_ever = 0
        # Row, value, time and predictions of each reward that is not in the rivals' models yet.
        self._new: list[tuple[Vector, float, int, Vector]] = []
        self._entered = [0] * len(learner.times)
        self.evidence = Evidence(learner.policy.family, self.rivals, 1)
        super().__init__(learner)
        self._rivals = Rivals(learner.policy, self.tracks, learner.model)
        self._rescale()

    def _tracks_of(self, policy: Policy) -> list[Track]:
        """Return tracks without decay, because the time between decisions is not known yet."""
        return [Track(policy, None) for _ in range(self.rivals)]

    @property
    def scores(self) -> list[float]:
        """Log-likelihood of each half-life's predictions, up to a common constant."""
        self._learn_new()
        return self.evidence.scores

    # --- changes -------------------------------------------------------------------------------

    def entered(self, recorded: int, partition: int) -> None:
        """Handle the record of a decision."""
        self._entered[partition] += 1
        self.pace.decided(recorded, partition)

    def learned(self, x: Vector, y: float, handle: int, recorded: int, partition: int) -> None:
        """Handle a stored reward; every few rewards, choose the half-life again."""
        times = self.learner.times[partition]
        began, predicted = int(times.began[handle]), times.predicted[handle].copy()
        self.pace.rewarded(recorded, max(0, recorded - began), partition)
        self._new.append((x, y, began, predicted))
        self.learned_ever += 1
        if self.learned_ever % TOGETHER == 0:
            self._learn_new()
            self._pick(recorded)
            if not self.learner.is_bulk:
                self._fit_compared()

    def _learn_new(self) -> None:
        """Add the latest rewards to the evidence and update all models with them."""
        if not self._new:
            return
        rows, y, began, predicted = (np.array(column) for column in zip(*self._new, strict=True))
        self._new.clear()
        self.evidence.add(began, y, predicted)
        if not self.learner.is_bulk:
            self._rivals.learn(rows, y, began)

    def _line(self, handle: int, partition: int) -> tuple[NDArray[np.int64], Vector, Matrix]:
        """Return the time, the value and the predictions of a reward."""
        times, line = self.learner.times[partition], slice(handle, handle + 1)
        y = self.learner.observations[partition].get(handle)[1]
        return times.began[line], np.array([y]), times.predicted[line]

    def before_change(self, handle: int, partition: int) -> None:
        """Remove a reward from the evidence before it changes."""
        self._learn_new()
        self.evidence.add(*self._line(handle, partition), -1.0)

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Update the model in use after a reward changed; rivals are updated by their next fit."""
        self.evidence.add(*self._line(handle, partition))
        super().revise(handle, row, before, y, partition)

    def retract(self, handle: int, x: Vector, y: float, partition: int) -> None:
        """Update the model after a reward and its decision were removed."""
        self.learner.times[partition].predicted[handle] = np.nan
        super().retract(handle, x, y, partition)

    def restart(self, handle: int, began: int, partition: int) -> None:
        """Update the model after the time of an observed decision has changed."""
        self.before_change(handle, partition)
        self.learner.times[partition].restart(handle, began)
        self.evidence.add(*self._line(handle, partition))
        super().restart(handle, began, partition)

    # --- fits ----------------------------------------------------------------------------------

    def finish(self, recorded: int) -> None:
        """Finish a record: rescale the half-lives if the pace has changed."""
        if self.pace.moved:
            self._rescale()
            if not self.learner.is_bulk:
                self.learner.fit()
        super().finish(recorded)

    def catch_up(self) -> None:
        """Fit all models after many records were folded in bulk mode."""
        self.pace.measure()  # partitions were folded one after the other
        if self._is_new or self.pace.moved:
            self._rescale()
        self._learn_new()
        for n in range(len(self.tracks)):
            if n != self.picked:
                self._fit_rival(n)
        super().catch_up()

    def _fit_compared(self) -> None:
        for n, track in enumerate(self.tracks):
            if n != self.picked and track.is_due(self.learner.now, self.learner.model.n):
                self._fit_rival(n)

    def _fit_rival(self, n: int) -> None:
        self.learner.fold_in()
        self._learn_new()
        track = self.tracks[n]
        start = self._rivals.start_of(n)
        estimate = self.fit(self._data_of(track), track.prior, start, polish=False)
        self._rivals.go_on_from(n, estimate)
        track.prior = estimate.prior
        track.fitted_at, track.fitted_n = self.learner.now, self.learner.model.n

    def settle(self, estimate: Estimate, data: object, block: int | None = None) -> None:
        """Store the prior of a fit, and schedule the next fit."""
        self._rivals.go_on_from(self.picked, estimate)
        super().settle(estimate, data)

    # --- choice of the half-life ---------------------------------------------------------------

    def _rescale(self) -> None:
        """Reconvert the half-lives from decisions to time, and recompute all sums."""
        self.learner.fold_in()
        self._learn_new()
        self.pace.moved = False
        interval = self.pace.interval
        for track, decisions in zip(self.tracks[1:], COMPARED, strict=True):
            track.half_life = None if interval is None else max(1, round(decisions * interval))
        self._sum_outstanding()
        self._weigh()

    def _weigh(self) -> None:
        """Recompute all evidence with its current half-life."""
        half_life = self._evidence_half_life
        self.evidence = Evidence(self.policy.family, len(self.tracks), half_life)
        self.learner.fold_in()
        for store, times in zip(self.learner.observations, self.learner.times, strict=True):
            counts = times.began != REMOVED
            _, y = store.since(0)
            self.evidence.add(times.began[counts], y, times.predicted[counts])

    @property
    def _evidence_half_life(self) -> int:
        half_life = EVIDENCE * (self.pace.interval or 1e6)
        while half_life < self.pace.delay:
            half_life *= 2.0
        return max(1, round(half_life))

    def _pick(self, recorded: int) -> None:
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
            self.picked = self.learner.model.picked = picked
            self.since = recorded
            if not self.learner.is_bulk:
                self.learner.fit()

    # --- snapshots -----------------------------------------------------------------------------

    def pack(self, partition: int) -> dict[str, bytes]:
        """Serialize the state that a snapshot needs in addition to rows, times and entries."""
        pace = self.pace.pack(partition, self._entered[partition])
        state = _State(self.learner.now, self.picked, self.since, self.learned_ever, pace)
        return {"automatic": msgspec.msgpack.encode(state)}

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Restore the result of :meth:`pack`, in bulk mode."""
        super().unpack(partition, pieces)
        state = _read_state(pieces["automatic"])
        self._entered[partition] = state.pace.count
        self.pace.unpack(partition, state.pace)
        if state.now >= self.learner.now:
            self.picked = self.learner.model.picked = state.picked
            self.since, self.learned_ever = state.since, state.learned
