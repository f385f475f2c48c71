"""Read several stores of observations as one."""

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
    """Several stores of observations, read as one without copying.

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
        """Number of observations."""
        return sum(store.n for store in self.stores)

    @property
    def total(self) -> float:
        """Σ y of all observations."""
        return sum(store.total for store in self.stores)

    @property
    def frozen(self) -> Quadratic | None:
        """Log-likelihood of the frozen rows of all stores; see :attr:`Observations.frozen`."""
        parts = [frozen for store in self.stores if (frozen := store.frozen) is not None]
        return sum(parts[1:], parts[0]) if parts else None

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[np.bool_] | None]]:
        """Yield the chunks of each store in turn; see :meth:`Observations.chunks`."""
        for store in self.stores:
            yield from store.chunks(size)

    def of_block(self, block: int) -> Joined:
        """Return the observations of one block of coefficients, without block numbers."""
        return Joined([store.of_block(block) for store in self.stores])

    def moments(self) -> Moments:
        """Return the moments of all observations."""
        return sum((store.moments() for store in self.stores), Moments.zero(self.shape))


#: The data to which estimators are fitted.
Seen = Observations | Joined


def quadratic_at(seen: Seen, family: Family, theta: Vector) -> Quadratic:
    """Return the log-likelihood of all observations, expanded at θ.

    Frozen rows keep their expansion. The quadratics of several partitions at the same θ add up to
    the quadratic of all observations; see :func:`belated.model.estimators.newton_step`.

    >>> from belated import Bernoulli
    >>> left, right = Observations(1), Observations(1)
    >>> handles = left.extend([[1.0]], [1.0]), right.extend([[1.0]], [0.0])
    >>> parts = [quadratic_at(part, Bernoulli(), np.zeros(1)) for part in (left, right)]
    >>> (parts[0] + parts[1]).score(np.zeros(1))
    array([0.])
    """
    total = seen.frozen or Quadratic.zero(seen.shape)
    for rows, y, _ in seen.chunks(max(64, CHUNK // seen.shape[-1])):
        total += Quadratic.of(rows, y, family, theta)
    return replace(total, n=seen.n)  # chunks include removed rows, as zeros
