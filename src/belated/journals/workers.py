"""Which partitions a worker owns, by one rule for every store; and the sums it has sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """What a worker holds.

    Attributes:
        partitions: That are its own, as long as it renews its session.
        surplus: Those of them that are beyond its share: to be given back, once they are saved.
    """

    partitions: tuple[int, ...]
    surplus: tuple[int, ...] = ()


class Assignment(Protocol):
    """The place of one worker among those that share the partitions of a bandit."""

    def claim(self) -> Claim:
        """Return what the worker holds now; join the others first if it has not.

        Raises:
            JournalUnavailable: nobody can tell.
        """

    def give_back(self, partitions: Collection[int]) -> None:
        """Leave partitions to others."""

    def doubt(self, partitions: Collection[int]) -> None:
        """Another has acquired what this worker believed to hold: ask before it is claimed."""

    def close(self) -> None:
        """Leave all partitions to others, so that they need not wait."""


@runtime_checkable
class GroupStore(Protocol):
    """A store whose servers assign partitions themselves, and notice who is gone."""

    def join_group(self, seconds: float) -> Assignment:
        """Be one of the workers; one that says nothing for so many seconds is replaced."""


class SentSums(msgspec.Struct, frozen=True):
    """The sums of a partition, as a worker has sent them.

    Attributes:
        partition: They are of.
        epoch: In which the worker owned it.
        position: Of the last record that is in them.
        center: Number of the estimate they were expanded at.
        data: The sums.
    """

    partition: int
    epoch: int
    position: int
    center: int
    data: bytes

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two of a partition, the greater one counts."""
        return self.epoch, self.position, self.center


#: By partition, the order of the sums that are known already.
Known = Mapping[int, tuple[int, int, int]]


def claimed(mine: Collection[int], others: Sequence[Collection[int]], partitions: int) -> Claim:
    """Return what a worker holds from now on: what it has, and what is free, up to its share.

    Nothing is taken from a worker that lives: one that has more than its share gives it back.

    Args:
        mine: the partitions that the worker has.
        others: those that each of the other workers has.
        partitions: how many there are.

    >>> claimed((), [], 4)
    Claim(partitions=(0, 1, 2, 3), surplus=())
    >>> claimed((), [(0, 1, 2, 3)], 4)
    Claim(partitions=(), surplus=())
    >>> claimed((0, 1, 2, 3), [()], 4)
    Claim(partitions=(0, 1, 2, 3), surplus=(2, 3))
    >>> claimed((), [(0, 1)], 4)
    Claim(partitions=(2, 3), surplus=())
    """
    taken = {partition for other in others for partition in other}
    share = -(-partitions // (len(others) + 1))
    held = sorted(set(mine) - taken)
    free = [one for one in range(partitions) if one not in taken and one not in held]
    more = free[: max(0, share - len(held))]
    return Claim(tuple(sorted([*held, *more])), tuple(held[share:]))
