"""Every decision and reward counts for half as much after each half-life."""

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

#: Half-lives after which something counts for nothing beside what is new.
GONE = 64


class DecayedSum:
    """Σ 2^(-age/h) v, kept relative to an epoch: the age of a term need not be known to add it.

    The epoch is a whole number of half-lives, the one of the latest term. So moving it multiplies
    by a power of two, which is exact: terms may come in any order, be taken out again, and be
    summed apart and merged, and the sum is the same to rounding.

    Args:
        half_life: in microseconds.
        shape: of a term.

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
        """Add a term of some time; with a sign of -1, take it out."""
        whole, rest = divmod(time, self.half_life)
        self._move_to(whole)
        assert self.epoch is not None
        self._total += math.ldexp(sign * 2.0 ** (rest / self.half_life), whole - self.epoch) * term

    def add_rows(self, times: NDArray[np.int64], rows: Matrix, weights: Vector) -> None:
        """Add Σ w x xᵀ; negative weights take rows out."""
        if not len(times):
            return
        whole, rest = np.divmod(times, self.half_life)
        self._move_to(int(whole.max()))
        shift = np.maximum(whole - self.epoch, -4 * GONE * GONE).astype(np.int32)
        factors = np.ldexp(np.exp2(rest / self.half_life), shift)
        self._total += gram(rows, weights * factors, self._total.shape[:-1])

    def at(self, time: int) -> NDArray[np.float64]:
        """The sum with the ages that its terms have at some time."""
        if self.epoch is None:
            return self._total.copy()
        whole, rest = divmod(time, self.half_life)
        scale = math.ldexp(2.0 ** (-rest / self.half_life), min(self.epoch - whole, 1000))
        return scale * self._total

    def clear(self) -> None:
        """Forget all terms."""
        self._total[:] = 0.0
        self.epoch = None

    def __add__(self, other: DecayedSum) -> DecayedSum:
        if other.half_life != self.half_life:
            message = f"sums of half-lives {self.half_life} and {other.half_life} do not add"
            raise InvalidInput(message, other.half_life)
        merged = DecayedSum(self.half_life, self._total.shape)
        for one in (self, other):
            if one.epoch is not None:
                merged._move_to(one.epoch)
                assert merged.epoch is not None
                merged._total += np.ldexp(one._total, _held(one.epoch - merged.epoch))
        return merged

    def _move_to(self, whole: int) -> None:
        if self.epoch is None:
            self.epoch = whole
        elif whole > self.epoch:
            self._total = np.ldexp(self._total, _held(self.epoch - whole))
            self.epoch = whole


def shares_at(times: NDArray[np.int64], now: int, half_life: int) -> Vector:
    """What decisions of some times count for now.

    >>> shares_at(np.array([0, 10, 20]), now=20, half_life=10)
    array([0.25, 0.5 , 1.  ])
    """
    return np.exp2((times - now) / half_life)


def _held(shift: int) -> int:
    """A power of two that ldexp takes; beyond it nothing is left."""
    return max(shift, -100_000)


#: Half-lives after which a reward is left out of a fit.
REACH = 12
#: The share of a half-life after which a model in use is fitted anew: it has faded by a thirtieth.
USED = 1 / 20
#: The same of one that is only compared, and the growth in rewards that calls for a fit of it.
COMPARED, GROWTH = 1.0, 1.5
#: No decision counts for more than this many of those in the last fit, as a power of two.
NEWEST = 4.0


class Track:
    """The information that counts by one half-life.

    Args:
        policy: whose model is learned.
        half_life: in microseconds; None: for ever.

    Attributes:
        prior: of the last fit.
        fitted_at: the time of which the ages are in the last fit.
        fitted_n: rewards that had come by then.
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
        """Forget by another half-life from now on; the pending information is empty again."""
        self.half_life = half_life
        shape = *self._shape, self._shape[-1]
        self.pending = None if half_life is None else DecayedSum(half_life, shape)

    def share(self, began: int, fitted_at: int) -> float:
        """What a decision counts for beside those that are in a fit of some time."""
        if self.half_life is None:
            return 1.0
        return float(2.0 ** min((began - fitted_at) / self.half_life, NEWEST))

    def has_faded(self, now: int, part: float) -> bool:
        """Whether a share of a half-life has passed since the last fit."""
        return self.half_life is not None and now - self.fitted_at >= part * self.half_life

    def is_due(self, now: int, n: int) -> bool:
        """Whether to fit it, while it is only compared."""
        return n >= GROWTH * self.fitted_n + 1 or (
            n > self.fitted_n and self.has_faded(now, COMPARED)
        )

    def data(self, stores: Sequence[Observations], times: Sequence[Times], now: int) -> Weighted:
        """Rewards with what they count for now."""
        assert self.half_life is not None
        parts, oldest = [], now - REACH * self.half_life
        for store, its_times in zip(stores, times, strict=True):
            later = its_times.began > oldest
            start = int(later.argmax()) if later.any() else len(later)
            began, (rows, rewards) = its_times.began[start:], store.since(start)
            began = began[began != REMOVED]
            # Those behind the first may be older than it: what is left out depends on no order.
            recent = began > oldest
            if not recent.all():
                began, rows, rewards = began[recent], rows[recent], rewards[recent]
            parts.append(WeightedRows(rows, rewards, shares_at(began, now, self.half_life)))
        return Weighted(self._shape, parts, now)


class HalfLife(Constant):
    """Counts each decision and reward by its age, up to the stamp of the latest record.

    Attributes:
        tracks: the half-lives that there are: one, unless several are compared.
        picked: which of the tracks is in use.
        since: the stamp of the record by which it was picked; 0 if there was no other.

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
        self._is_new = False  # pending information is to be summed anew
        super().__init__(learner)
        if self.half_life is not None:
            learner.model.effective_n = 0.0

    def _tracks_of(self, policy: Policy) -> list[Track]:
        return [Track(policy, policy.half_life_us)]

    @property
    def track(self) -> Track:
        """The one in use."""
        return self.tracks[self.picked]

    @property
    def half_life(self) -> int | None:
        """The half-life in use, in microseconds; None: nothing is forgotten."""
        return self.track.half_life

    @property
    def prior(self) -> Prior:
        """Of the last fit."""
        return self.track.prior

    @prior.setter
    def prior(self, prior: Prior) -> None:
        self.track.prior = prior

    def share(self, began: int, data: object = None) -> float:
        """What a reward counts for beside those in a fit."""
        return self.track.share(began, self._time_of(data))

    def _time_of(self, data: object) -> int:
        """When a fit of these is made, or the last fit was."""
        return data.now if isinstance(data, Weighted) else self.track.fitted_at

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Move the model by a reward that was ``before`` and is ``y``."""
        if not self.learner.is_bulk:
            share = min(1.0, self.share(int(self.learner.times[partition].began[handle])))
            self.learner.step("revise", row, before, before + share * (y - before))

    def retract(self, handle: int, x: Vector, y: float, partition: int) -> None:
        """Move the model by a reward that is gone, and its decision with it."""
        self.learner.times[partition].began[handle] = REMOVED
        self.learner.model.n -= 1
        if not self.learner.is_bulk:
            self.learner.fit()

    def restart(self, handle: int, began: int, partition: int) -> None:
        """The decision of a reward took effect at another time."""
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
                if self.pending.count == 0:  # what is left is rounding
                    track.pending.clear()

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Many decisions are pending; in bulk."""
        super().add_all_pending(rows, weights)
        self._is_new = True

    def _sum_outstanding(self) -> None:
        """Sum what is pending anew."""
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
        """Whether there is enough that is new, or enough has faded."""
        model = self.learner.model
        faded = model.n > 0 and self.track.has_faded(self.learner.now, USED)
        return model.n >= self.next_fit or faded

    def finish(self, recorded: int) -> None:
        """A record was folded."""
        learner = self.learner
        waits = learner.is_bulk or learner.defers or not learner.model.decisions
        if not waits and self.track.has_faded(learner.now, USED):
            learner.refit()

    def catch_up(self) -> None:
        """Many records were folded."""
        if self._is_new:
            self._sum_outstanding()
        super().catch_up()

    def data(self, *, copy: bool = False) -> Any:
        """Return what a fit is of: a copy, unless nothing is forgotten."""
        return self._data_of(self.track, copy)

    def _data_of(self, track: Track, copy: bool = False) -> Any:
        if track.half_life is None:
            return super().data(copy=copy)
        self.learner.fold_in()
        return track.data(self.learner.observations, self.learner.times, self.learner.now)

    def fit(self, data: Any, prior: Prior, start: Vector, polish: bool) -> Estimate:
        """Fit; in any thread."""
        effective = data.effective_n if isinstance(data, Weighted) else None
        return replace(
            super().fit(data, prior, start, polish),
            n=data.n,
            effective_n=effective,
            half_life_us=self.half_life,
            half_life_since_us=self.since or None,
        )

    def settle(self, estimate: Estimate, data: object, block: int | None = None) -> None:
        """Note the prior of a fit, and when the next one is due."""
        model, track = self.learner.model, self.track
        track.fitted_n = model.n
        track.fitted_at = data.now if isinstance(data, Weighted) else self.learner.now
        super().settle(estimate, data)
        model.effective_n = known = estimate.effective_n
        if known is not None and self.fits:
            more = self.policy.estimator.next_fit(int(known), self.policy.shape) - int(known)
            self.next_fit = model.n + more

    def _outstanding(self, data: object = None) -> Matrix:
        pending = self.track.pending
        return self.pending.matrix if pending is None else pending.at(self._time_of(data))

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, in bulk."""
        self._is_new = True
