"""One half-life: what counts by it, and when it was last fitted."""

from __future__ import annotations

from collections.abc import Sequence

from belated.estimators.weighted import Weighted, WeightedRows
from belated.learner.forgetting.arrivals import REMOVED, Arrivals
from belated.learner.forgetting.sums import DecayedSum, shares_at
from belated.policies.policy import Policy
from belated.statistics import Observations

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
        partitions: of the journal.

    Attributes:
        prior: of the last fit.
        fitted_at: the time of which the ages are in the last fit.
        fitted_n: rewards that had come by then.
        pending: the information of pending decisions; None if it does not decay.
    """

    def __init__(self, policy: Policy, half_life: int | None, partitions: int) -> None:
        self.prior = policy.start
        self.fitted_at = 0
        self.fitted_n = 0
        self._dim = policy.dim
        self._starts = [0] * partitions
        self.half_life: int | None = None
        self.pending: DecayedSum | None = None
        self.last_as(half_life)

    def last_as(self, half_life: int | None) -> None:
        """Forget by another half-life from now on; the pending information is empty again."""
        self.half_life = half_life
        self._starts = [0] * len(self._starts)
        shape = self._dim, self._dim
        self.pending = None if half_life is None else DecayedSum(half_life, shape)

    def share(self, made: int) -> float:
        """What a decision counts for beside those that are in the last fit."""
        if self.half_life is None:
            return 1.0
        return float(2.0 ** min((made - self.fitted_at) / self.half_life, NEWEST))

    def has_faded(self, now: int, part: float) -> bool:
        """Whether a share of a half-life has passed since the last fit."""
        return self.half_life is not None and now - self.fitted_at >= part * self.half_life

    def is_due(self, now: int, n: int) -> bool:
        """Whether to fit it, while it is only compared."""
        return n >= GROWTH * self.fitted_n + 1 or (
            n > self.fitted_n and self.has_faded(now, COMPARED)
        )

    def data(
        self, stores: Sequence[Observations], arrivals: Sequence[Arrivals], now: int
    ) -> Weighted:
        """Rewards with what they count for now."""
        assert self.half_life is not None
        parts, oldest = [], now - REACH * self.half_life
        for n, (store, its) in enumerate(zip(stores, arrivals, strict=True)):
            start = its.first_after(oldest, self._starts[n])
            self._starts[n] = start
            made = its.made[start:]
            rows, rewards = store.since(start)
            made = made[made != REMOVED]
            # Those behind the first may be older than it: what is left out depends on no order.
            recent = made > oldest
            if not recent.all():
                made, rows, rewards = made[recent], rows[recent], rewards[recent]
            parts.append(WeightedRows(rows, rewards, shares_at(made, now, self.half_life)))
        return Weighted(self._dim, parts)
