"""The sums of a store at one θ, kept up to date by what has changed."""

from __future__ import annotations

import numpy as np

from belated.core.inputs import Row, Vector
from belated.model.families import Family
from belated.model.statistics.observations import Observations
from belated.model.statistics.sums import FrozenSums


class RunningSums:
    """What the rows of a store come to at one θ: only rows that are new are read.

    Whoever changes the store in another way than by adding rows says so here.

    Args:
        store: of the observations.
        family: of the rewards.
        theta: θ₀, at which the log-likelihood is expanded; what is frozen stays as it is.

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
        self._upto = 0  # the first handle that is not in the sums

    def move(self, theta: Vector) -> None:
        """Expand at another θ from now on."""
        self.theta = theta
        self.clear()

    def clear(self) -> None:
        """Rows were frozen, or removed: all are read again."""
        self._sums = None

    def revise(self, handle: int, before: float) -> None:
        """The reward under a handle is another now."""
        if self._sums is not None and handle < self._upto:
            row, after = self._store.get(handle)
            self._sums = self._sums.revised(row, before, after)

    def remove(self, handle: int, row: Row, y: float, frozen: bool) -> None:
        """The observation under a handle counts no longer."""
        if self._sums is None or handle >= self._upto:
            return
        if frozen:
            self.clear()
        else:
            gone = FrozenSums.of(row[None, :], np.array([y]), self._family, self.theta)
            self._sums -= gone

    def total(self) -> FrozenSums:
        """Return the sums of all that is counted."""
        store = self._store
        if self._sums is None or not store.exact:  # where all is frozen that is no work
            self._sums = store.sums_at(self._family, self.theta)
        elif self._upto < store.next_handle:
            self._sums += FrozenSums.of(*store.since(self._upto), self._family, self.theta)
        self._upto = store.next_handle
        return self._sums
