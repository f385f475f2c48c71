"""The weighting with a half-life: weights of decisions and rewards decay exponentially."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import Rewards
from belated.exceptions import InvalidInput
from belated.fold.times import REMOVED, Times
from belated.fold.weighting.constant import Constant
from belated.model.blocks import gram
from belated.model.estimators import Estimate
from belated.model.estimators.weighted import Weighted, WeightedRows
from belated.model.priors import Prior
from belated.model.statistics import Observations
from belated.policies.policy import Policy

if TYPE_CHECKING:
    from belated.fold.learner import Learner

#: Number of half-lives after which a weight is negligible.
GONE = 64


class DecayedSum:
    """Σ 2^(-age/h) v, stored relative to an epoch, so that each term can be added with its time.

    The epoch is the time of the latest term, rounded down to a whole number of half-lives. Moving
    the epoch multiplies the sum by a power of two, which is exact. Terms can therefore be added in
    any order, subtracted again, or summed separately and merged, with the same result up to
    rounding.

    Args:
        half_life: half-life in microseconds.
        shape: the shape of a term.

    >>> total = DecayedSum(10, (1,))
    >>> total.add(0, np.array([1.0]))
    >>> total.add(20, np.array([1.0]))
    >>> total.at(20), total.at(30)
    (array([1.25]), array([0.625]))
    """

    def __init__(self, half_life: int, shape: tuple[int, ...]) -> None:
        self.half_life = half_life
        self.epoch: int | None = None
        self._total: NDArray[np.float64] = np.zeros(shape)

    def add(self, time: int, term: Vector | Matrix, sign: float = 1.0) -> None:
        """Add a term with its time, or subtract it if ``sign`` is -1."""
        whole, remainder = divmod(time, self.half_life)
        self._move_to(whole)
        assert self.epoch is not None
        self._total += (
            math.ldexp(sign * 2.0 ** (remainder / self.half_life), whole - self.epoch) * term
        )

    def add_rows(self, times: NDArray[np.int64], rows: Matrix, weights: Vector) -> None:
        """Add Σ w x xᵀ; negative weights subtract rows."""
        if not len(times):
            return
        whole, remainder = np.divmod(times, self.half_life)
        self._move_to(int(whole.max()))
        shift = np.maximum(whole - self.epoch, -4 * GONE * GONE).astype(np.int32)
        factors = np.ldexp(np.exp2(remainder / self.half_life), shift)
        self._total += gram(rows, weights * factors, self._total.shape[:-1])

    def at(self, time: int) -> NDArray[np.float64]:
        """Return the sum with the weights at a given time."""
        if self.epoch is None:
            return self._total.copy()
        whole, remainder = divmod(time, self.half_life)
        scale = math.ldexp(2.0 ** (-remainder / self.half_life), min(self.epoch - whole, 1000))
        return scale * self._total

    def clear(self) -> None:
        """Remove all terms."""
        self._total[:] = 0.0
        self.epoch = None

    def __add__(self, other: DecayedSum) -> DecayedSum:
        if other.half_life != self.half_life:
            message = f"cannot add sums with half-lives {self.half_life} and {other.half_life}"
            raise InvalidInput(message, other.half_life)
        merged = DecayedSum(self.half_life, self._total.shape)
        for part in (self, other):
            if part.epoch is not None:
                merged._move_to(part.epoch)
                assert merged.epoch is not None
                merged._total += np.ldexp(part._total, _clipped(part.epoch - merged.epoch))
        return merged

    def _move_to(self, whole: int) -> None:
        if self.epoch is None:
            self.epoch = whole
        elif whole > self.epoch:
            self._total = np.ldexp(self._total, _clipped(self.epoch - whole))
            self.epoch = whole


def shares_at(times: NDArray[np.int64], now: int, half_life: int) -> Vector:
    """Return the current weights of decisions that were made at these times.

    >>> shares_at(np.array([0, 10, 20]), now=20, half_life=10)
    array([0.25, 0.5 , 1.  ])
    """
    return np.exp2((times - now) / half_life)


def _clipped(shift: int) -> int:
    """Limit an exponent to the range of ldexp; the result of ldexp is 0 in either case."""
    return max(shift, -100_000)


#: Number of half-lives after which a reward is left out of fits.
REACH = 12
#: Fraction of a half-life after which the model in use is refitted; weights decay by 1/30 in this
#: time.
USED = 1 / 20
#: For a model that is only compared, the fraction of a half-life and the growth in rewards after
#: which it is refitted.
COMPARED, GROWTH = 1.0, 1.5
#: Binary logarithm of the maximum weight of a decision, relative to the decisions in the last fit.
NEWEST = 4.0


class Track:
    """The state of a model with a given half-life.

    Args:
        policy: the policy of the model.
        half_life: half-life in microseconds; None if weights do not decay.

    Attributes:
        prior: the prior of the last fit.
        fitted_at: the reference time of the weights in the last fit.
        fitted_n: number of rewards in the last fit.
        pending: the information of pending decisions; None if it does not decay.
    """

    def __init__(self, policy: Policy, half_life: int | None) -> None:
        self.prior = policy.start
        self.fitted_at = 0
        self.fitted_n = 0
        self._shape = policy.shape
        self.half_life: int | None = None
        self.pending: DecayedSum | None = None
        self.last_as(half_life)

    def last_as(self, half_life: int | None) -> None:
        """Change the half-life, and clear the information of pending decisions."""
        self.half_life = half_life
        shape = *self._shape, self._shape[-1]
        self.pending = None if half_life is None else DecayedSum(half_life, shape)

    def share(self, began: int, fitted_at: int) -> float:
        """Return the weight of a decision relative to a fit at time ``fitted_at``."""
        if self.half_life is None:
            return 1.0
        return float(2.0 ** min((began - fitted_at) / self.half_life, NEWEST))

    def has_faded(self, now: int, part: float) -> bool:
        """Return whether this fraction of a half-life has passed since the last fit."""
        return self.half_life is not None and now - self.fitted_at >= part * self.half_life

    def is_due(self, now: int, n: int) -> bool:
        """Return whether a fit is due for a model that is only compared."""
        return n >= GROWTH * self.fitted_n + 1 or (
            n > self.fitted_n and self.has_faded(now, COMPARED)
        )

    def data(self, stores: Sequence[Observations], times: Sequence[Times], now: int) -> Weighted:
        """Return the rewards with their current weights."""
        assert self.half_life is not None
        parts, oldest = [], now - REACH * self.half_life
        for store, columns in zip(stores, times, strict=True):
            later = columns.began > oldest
            start = int(later.argmax()) if later.any() else len(later)
            began, (rows, rewards) = columns.began[start:], store.since(start)
            began = began[began != REMOVED]
            # Entries may be out of order, so also exclude old entries after ``start``.
            recent = began > oldest
            if not recent.all():
                began, rows, rewards = began[recent], rows[recent], rewards[recent]
            parts.append(WeightedRows(rows, rewards, shares_at(began, now, self.half_life)))
        return Weighted(self._shape, parts, now)


class HalfLife(Constant):
    """Weights each decision and reward by its age, relative to the latest record's timestamp.

    Attributes:
        tracks: a track for each half-life; only one unless several half-lives are compared.
        picked: index of the track in use.
        since: the timestamp of the record at which the track was picked; 0 for the initial track.

    >>> from belated import Bernoulli, DelayedUCB
    >>> from belated.fold.learner import Learner
    >>> learner = Learner(DelayedUCB(1, Bernoulli(), half_life="10s"))
    >>> x = np.array([1.0])
    >>> for second, y in ((100_000_000, 0.0), (110_000_000, 1.0)):
    ...     learner.add_pending(x, 0.25, second)
    ...     handle = learner.learn(x, y, 0.25, second, second)
    >>> learner.estimate.effective_n
    1.5
    """

    keeps_times: ClassVar[bool] = True
    adds: ClassVar[bool] = False

    def __init__(self, learner: Learner, rewards: Rewards | None = None) -> None:
        self.tracks = self._tracks_of(learner.policy)
        self.picked = self.since = 0
        self._is_new = False  # whether pending information must be summed again
        super().__init__(learner)
        if self.half_life is not None:
            learner.model.effective_n = 0.0

    def _tracks_of(self, policy: Policy) -> list[Track]:
        return [Track(policy, policy.half_life_us)]

    @property
    def track(self) -> Track:
        """The track in use."""
        return self.tracks[self.picked]

    @property
    def half_life(self) -> int | None:
        """The half-life in use, in microseconds; None if weights do not decay."""
        return self.track.half_life

    @property
    def prior(self) -> Prior:
        """The prior of the last fit."""
        return self.track.prior

    @prior.setter
    def prior(self, prior: Prior) -> None:
        self.track.prior = prior

    def share(self, began: int, data: object = None) -> float:
        """Return the weight of a reward relative to the rewards in a fit."""
        return self.track.share(began, self._time_of(data))

    def _time_of(self, data: object) -> int:
        """Return the reference time of a fit's data; without data, that of the last fit."""
        return data.now if isinstance(data, Weighted) else self.track.fitted_at

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Update the model after a reward changed from ``before`` to ``y``."""
        if not self.learner.is_bulk:
            share = min(1.0, self.share(int(self.learner.times[partition].began[handle])))
            self.learner.step("revise", row, before, before + share * (y - before))

    def retract(self, handle: int, x: Vector, y: float, partition: int) -> None:
        """Update the model after a reward and its decision were removed."""
        self.learner.times[partition].began[handle] = REMOVED
        self.learner.model.n -= 1
        if not self.learner.is_bulk:
            self.learner.fit()

    def restart(self, handle: int, began: int, partition: int) -> None:
        """Update the model after the time of an observed decision has changed."""
        self.learner.times[partition].restart(handle, began)
        if not self.learner.is_bulk:
            self.learner.fit()

    def _take_pending(
        self, count: int, began: NDArray[np.int64], rows: Matrix, weights: Vector
    ) -> None:
        super()._take_pending(count, began, rows, weights)
        for track in self.tracks:
            if track.pending is not None:
                track.pending.add_rows(began, rows.astype(np.float64, copy=False), weights)
                if self.pending.count == 0:  # only rounding errors remain
                    track.pending.clear()

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Add many pending decisions in bulk mode."""
        super().add_all_pending(rows, weights)
        self._is_new = True

    def _sum_outstanding(self) -> None:
        """Sum the information of pending decisions again."""
        self.learner.fold_in()
        for track in self.tracks:
            track.last_as(track.half_life)
        for began, rows, weights in self.learner.outstanding():
            for track in self.tracks:
                if track.pending is not None:
                    table = rows.astype(np.float64)
                    track.pending.add_rows(began, table, self.in_sums(weights))
        self._is_new = False

    # --- fits ----------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a fit is due, because of new rewards or because weights have decayed."""
        model = self.learner.model
        faded = model.n > 0 and self.track.has_faded(self.learner.now, USED)
        return model.n >= self.next_fit or faded

    def finish(self, recorded: int) -> None:
        """Finish a record: refit the model if weights have decayed enough."""
        learner = self.learner
        waits = learner.is_bulk or learner.defers or not learner.model.decisions
        if not waits and self.track.has_faded(learner.now, USED):
            learner.refit()

    def catch_up(self) -> None:
        """Fit the model after many records were folded in bulk mode."""
        if self._is_new:
            self._sum_outstanding()
        super().catch_up()

    def data(self, *, copy: bool = False) -> Any:
        """Return the data to fit, which is always a copy if there is a half-life."""
        return self._data_of(self.track, copy)

    def _data_of(self, track: Track, copy: bool = False) -> Any:
        if track.half_life is None:
            return super().data(copy=copy)
        self.learner.fold_in()
        return track.data(self.learner.observations, self.learner.times, self.learner.now)

    def fit(self, data: Any, prior: Prior, start: Vector, polish: bool) -> Estimate:
        """Return an estimate; can be called from any thread."""
        effective = data.effective_n if isinstance(data, Weighted) else None
        return replace(
            super().fit(data, prior, start, polish),
            n=data.n,
            effective_n=effective,
            half_life_us=self.half_life,
            half_life_since_us=self.since or None,
        )

    def settle(self, estimate: Estimate, data: object, block: int | None = None) -> None:
        """Store the prior of a fit, and schedule the next fit."""
        model, track = self.learner.model, self.track
        track.fitted_n = model.n
        track.fitted_at = data.now if isinstance(data, Weighted) else self.learner.now
        super().settle(estimate, data)
        model.effective_n = estimate.effective_n
        if estimate.effective_n is not None and self.fits:
            n = int(estimate.effective_n)
            self.next_fit = model.n + self.policy.estimator.next_fit(n, self.policy.shape) - n

    def _outstanding(self, data: object = None) -> Matrix:
        return self.pending_at(self._time_of(data))

    def pending_at(self, now: int) -> Matrix:
        """Return the information of recorded pending decisions at a given time."""
        pending = self.track.pending
        return self.pending.matrix if pending is None else pending.at(now)

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Restore the result of :meth:`pack`, in bulk mode."""
        self._is_new = True
