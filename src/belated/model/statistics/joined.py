"""Several stores of observations, read as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector
from belated.model.families import Family
from belated.model.statistics.observations import CHUNK, Observations
from belated.model.statistics.sums import Moments, Quadratic


class Joined:
    """Several stores of observations, read as one; nothing is copied.

    >>> first, second = Observations(1), Observations(1)
    >>> handles = first.extend([[1.0]], [2.0]), second.extend([[1.0]], [3.0])
    >>> joined = Joined([first, second])
    >>> joined.n, joined.moments().cross
    (2, array([5.]))
    """

    def __init__(self, stores: Sequence[Observations]) -> None:
        self.stores = stores
        self.shape = stores[0].shape

    @property
    def n(self) -> int:
        """How many observations are counted."""
        return sum(store.n for store in self.stores)

    @property
    def total(self) -> float:
        """Σ y of all that is counted."""
        return sum(store.total for store in self.stores)

    @property
    def frozen(self) -> Quadratic | None:
        """As :attr:`Observations.frozen`, of all stores."""
        found = [frozen for store in self.stores if (frozen := store.frozen) is not None]
        return sum(found[1:], found[0]) if found else None

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[np.bool_] | None]]:
        """As :meth:`Observations.chunks`, one store after the other."""
        for store in self.stores:
            yield from store.chunks(size)

    def of_block(self, block: int) -> Joined:
        """Return the observations of one block of coefficients, as if there were no others."""
        return Joined([store.of_block(block) for store in self.stores])

    def moments(self) -> Moments:
        """The moments of all that is counted."""
        return sum((store.moments() for store in self.stores), Moments.zero(self.shape))


#: What an estimator is fitted to.
Seen = Observations | Joined


def quadratic_at(seen: Seen, family: Family, theta: Vector) -> Quadratic:
    """Return the log-likelihood of all that is counted, expanded at θ.

    What is frozen stays as it was frozen. Quadratics of several partitions at one θ add up to that
    of all: see :func:`belated.model.estimators.newton_step`.

    >>> from belated import Bernoulli
    >>> left, right = Observations(1), Observations(1)
    >>> handles = left.extend([[1.0]], [1.0]), right.extend([[1.0]], [0.0])
    >>> parts = [quadratic_at(one, Bernoulli(), np.zeros(1)) for one in (left, right)]
    >>> (parts[0] + parts[1]).score(np.zeros(1))
    array([0.])
    """
    total = seen.frozen or Quadratic.zero(seen.shape)
    for rows, y, _ in seen.chunks(max(64, CHUNK // seen.shape[-1])):
        total += Quadratic.of(rows, y, family, theta)
    return replace(total, n=seen.n)  # rows that do not count are zeros, and were counted
