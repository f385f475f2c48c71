"""The rewards a learner has: their rows by partition, frozen where they are many, and handles."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.inputs import Row, Vector
from belated.kernels import Kernels
from belated.learner.waiting import Waiting
from belated.models import Model
from belated.policies.policy import Policy
from belated.statistics import Joined, Observations, Seen
from belated.tuning import Tuning

#: By how many posterior deviations, at most and in all, frozen rows that are still kept may be off
#: because the estimate has moved since they were frozen.
MOVED = 0.1


class Freezer:
    """Freezes rows of the observations of all partitions.

    Args:
        observations: of each partition.
        most: rows that may be counted one by one.
        batch: rows that are let go together.

    >>> from belated import Bernoulli
    >>> seen = Observations(1, Bernoulli(), block=2)
    >>> handles = seen.extend([[1.0]] * 5, [1.0] * 5)
    >>> freezer = Freezer([seen], most=3, batch=10)
    >>> freezer.is_full
    True
    >>> freezer.freeze(np.zeros(1))
    >>> seen.exact, seen.n
    (3, 5)
    """

    def __init__(self, observations: Sequence[Observations], most: int, batch: int) -> None:
        self._observations = observations
        self._most = self._full = most
        self._batch = batch
        self._forgotten: list[list[int]] = [[] for _ in observations]

    def forget(self, handle: int, partition: int) -> None:
        """Neither revised nor retracted will be the reward under this handle."""
        self._forgotten[partition].append(handle)

    @property
    def is_full(self) -> bool:
        """Whether there are more rows than there may be."""
        return self._exact > self._full

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return self.is_full or any(len(handles) >= self._batch for handles in self._forgotten)

    @property
    def _exact(self) -> int:
        return sum(store.exact for store in self._observations)

    def freeze(self, theta: Vector, *, half: bool = False) -> None:
        """Freeze what is too much, at θ; and anew what was frozen where it has moved far from.

        To second order a frozen row is as good as it was. What is left of the score is
        ½ Σ g'' (xᵀδ)² x, with δ the way that θ has gone since; in posterior deviations that is not
        above ½ √(dn) times the mean of g' (xᵀδ)², if g'' ≤ g' and rows are alike.

        Args:
            theta: the estimate of now.
            half: freeze half of what may be kept, so that it takes a while until there is too much
                again.
        """
        keep = self._most // 2 if half else self._most
        dim, n = len(theta), sum(store.n for store in self._observations)
        for store in self._observations:
            moved = 2.0 * MOVED / math.sqrt(dim * n)
            store.freeze(theta, keep // len(self._observations), moved)
        self._full = max(self._most, self._exact + self._most - keep)

    def drop(self) -> None:
        """Let go of the rows of forgotten rewards, if they are frozen; all are in the stores."""
        for store, handles in zip(self._observations, self._forgotten, strict=True):
            store.forget(np.array(handles, dtype=np.int64))
            store.drop_forgotten()
            handles.clear()


class KeptRewards(ABC):
    """What has arrived, in the stores of each partition or waiting to be; see :class:`Learner`."""

    #: Whether old rows may be frozen: only where a row counts for the same at all times.
    freezes: ClassVar[bool] = True

    def __init__(
        self, policy: Policy, partitions: int, kernels: Kernels | None, tuning: Tuning
    ) -> None:
        self.policy = policy
        family = policy.family if self.freezes else None
        self.observations = [
            Observations(policy.dim, family, block=tuning.block) for _ in range(partitions)
        ]
        self.model = Model(policy.start, policy.family, kernels=kernels)
        self._limit = tuning.batch or max(1000, 10 * policy.dim)
        self._freezer = Freezer(self.observations, tuning.exact, self._limit)
        self._waiting = Waiting(partitions)
        self._given = [0] * partitions  # handles given out

    @abstractmethod
    def _fold(self) -> None:
        """Put what waits into the stores."""

    @property
    def observed(self) -> Seen:
        """All that has arrived, of every partition."""
        self._fold()
        return self.observations[0] if len(self.observations) == 1 else Joined(self.observations)

    def next_handle(self, partition: int) -> int:
        """The handle that the next reward of a partition gets."""
        return self._given[partition]

    def forget(self, handle: int, partition: int = 0) -> None:
        """The reward under a handle will be neither revised nor retracted."""
        self._freezer.forget(handle, partition)

    def rows(self, partition: int, handles: NDArray[np.int64]) -> Row:
        """The rows that rewards were learned with, by their handles."""
        came = self._waiting.came[partition].rows
        first = self._given[partition] - len(came)
        found = np.empty((len(handles), self.policy.dim), dtype=np.float32)
        folded = handles < first
        found[folded] = self.observations[partition].rows(handles[folded])
        for i in np.flatnonzero(~folded):
            found[i] = came[handles[i] - first]
        return found

    def pack(self, partition: int) -> dict[str, bytes]:
        """The observations of a partition as bytes, and where to start the next fit."""
        self._fold()
        return self.observations[partition].pack() | {"theta": self.model.theta.tobytes()}

    def unpack(
        self, partition: int, pieces: dict[str, bytes], remembered: NDArray[np.int64]
    ) -> None:
        """Take what :meth:`pack` gave; within :meth:`Learner.bulk`.

        Args:
            partition: of the observations.
            pieces: what was packed.
            remembered: the handles of rewards that may still be revised or retracted.
        """
        observations = self.observations[partition]
        observations.unpack(pieces)
        observations.forget_others(remembered)
        self._given[partition] = observations.next_handle
        self.model.n += observations.n
        self.model.decisions += observations.n
        self.model.theta = np.frombuffer(pieces["theta"]).copy()
