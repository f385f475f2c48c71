"""Incrementally updated sums over a store's rows at a fixed θ."""

from __future__ import annotations

import numpy as np

from belated.core.inputs import Row, Vector
from belated.model.families import Family
from belated.model.statistics.observations import Observations
from belated.model.statistics.sums import FrozenSums


class RunningSums:
    """Running sums over a store's rows at a fixed θ; each update reads only new rows.

    The caller must report every revised, removed or frozen row by calling :meth:`revise`,
    :meth:`remove` or :meth:`clear`.

    Args:
        store: the store of observations.
        family: reward family.
        theta: θ₀, at which the log-likelihood is expanded; frozen rows keep their expansion.

    >>> from belated import Bernoulli
    >>> seen = Observations(1, Bernoulli())
    >>> running = RunningSums(seen, Bernoulli(), np.zeros(1))
    >>> handle = seen.add([1.0], 1.0)
    >>> running.total().likelihood.pull
    array([0.5])
    >>> before = seen.revise(handle, 0.0)
    >>> running.revise(handle, before)
    >>> running.total().likelihood.pull
    array([-0.5])
    """

    def __init__(self, store: Observations, family: Family, theta: Vector) -> None:
        self._store = store
        self._family = family
        self.theta = theta
        self._sums: FrozenSums | None = None
        self._upto = 0  # the first handle that is not in the sums yet

    def move(self, theta: Vector) -> None:
        """Change the expansion point to ``theta``, and discard the sums."""
        self.theta = theta
        self.clear()

    def clear(self) -> None:
        """Discard the sums, because rows were frozen or removed."""
        self._sums = None

    def revise(self, handle: int, before: float) -> None:
        """Update the sums after a reward was revised."""
        if self._sums is not None and handle < self._upto:
            row, after = self._store.get(handle)
            self._sums = self._sums.revised(row, before, after)

    def remove(self, handle: int, row: Row, y: float, frozen: bool) -> None:
        """Update the sums after an observation was removed."""
        if self._sums is None or handle >= self._upto:
            return
        if frozen:
            self.clear()
        else:
            removed = FrozenSums.of(row[None, :], np.array([y]), self._family, self.theta)
            self._sums -= removed

    def total(self) -> FrozenSums:
        """Return the sums of all observations."""
        store = self._store
        if self._sums is None or not store.exact:  # cheap if all rows are frozen
            self._sums = store.sums_at(self._family, self.theta)
        elif self._upto < store.next_handle:
            self._sums += FrozenSums.of(*store.since(self._upto), self._family, self.theta)
        self._upto = store.next_handle
        return self._sums
