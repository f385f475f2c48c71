"""Decisions made here that the current model has not read yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
import numpy as np

from belated.core.events import Decision
from belated.core.inputs import Matrix, Vector
from belated.core.tuning import Tuning
from belated.model.statistics import Information

#: Positions of decisions that have none: not durable yet, or durable in a spool.
NOT_DURABLE, SPOOLED = -1, 0


class Unapplied(msgspec.Struct, gc=False):
    """One decision.

    Attributes:
        decision: as it was made.
        weight: what it counts for as pending.
        partition: of the journal.
        counted: whether the current model counts it as pending.
        position: in its partition, or one of the two constants above.
    """

    decision: Decision
    weight: float
    partition: int
    counted: bool
    position: int = NOT_DURABLE


class _Block(msgspec.Struct):
    """Decisions of one partition as a sum; they leave together, when a model has read the last."""

    position: int
    information: Information


class UnappliedDecisions:
    """What was decided here and is in no model yet; it counts as pending until it is.

    Nothing is ever dropped. If no learner runs for long, the oldest durable decisions become sums:
    they count as before, but are no longer found by their id (the journal has them).

    Args:
        dim: width of a row.
        share: what a pending decision of some weight counts for.
        tuning: how many are kept one by one, and how many are summed together.
    """

    def __init__(self, dim: int, share: Callable[[float], float], tuning: Tuning) -> None:
        self._dim = dim
        self._share = share
        self._most, self._block = tuning.max_unapplied, tuning.unapplied_block
        # A plain dict would look for its first key from the place of all that were removed.
        self._recent: OrderedDict[str, Unapplied] = OrderedDict()
        self._blocks: dict[int, list[_Block]] = {}
        self._compact_at = self._most + self._block

    def __len__(self) -> int:
        return len(self._recent) + sum(
            block.information.count for blocks in self._blocks.values() for block in blocks
        )

    def __bool__(self) -> bool:
        return bool(self._recent) or any(self._blocks.values())

    def __iter__(self) -> Iterator[Unapplied]:
        return iter(self._recent.values())

    def add(self, one: Unapplied) -> bool:
        """Add one decision; False if there is one under its id: the first stays."""
        return self._recent.setdefault(one.decision.id, one) is one

    def get(self, id: str) -> Unapplied | None:
        """Return one; None if it is not here."""
        return self._recent.get(id)

    def remove(self, id: str) -> Unapplied | None:
        """Remove and return one; None if it is not here."""
        return self._recent.pop(id, None)

    def find(self, id: str, *, spooled: bool = False) -> Decision | None:
        """Return a durable decision.

        Args:
            id: decision id.
            spooled: only if it waits in a spool.
        """
        one = self._recent.get(id)
        if one is None or one.position == NOT_DURABLE or (spooled and one.position != SPOOLED):
            return None
        return one.decision

    def mark_durable(self, id: str, position: int) -> None:
        """Note the position of a decision; a spooled one has none until it is delivered."""
        one = self._recent.get(id)
        # The two may come in either order; and of two decisions under one id the first stands.
        if one is not None and one.position <= SPOOLED and one.position < position:
            one.position = position

    def forget_read(self, positions: Sequence[int]) -> None:
        """Remove what a model has read: all up to its position in each partition."""
        self._recent = OrderedDict(
            (id, one)
            for id, one in self._recent.items()
            if not 0 < one.position <= positions[one.partition]
        )
        for partition, blocks in self._blocks.items():
            left = [block for block in blocks if block.position > positions[partition]]
            self._blocks[partition] = left

    def compact(self) -> None:
        """Sum the oldest durable decisions, if there are too many to count one by one."""
        if len(self._recent) < self._compact_at:
            return
        oldest: dict[int, list[Unapplied]] = {}
        excess = len(self._recent) - self._most
        for one in list(islice(self._recent.values(), excess)):
            if one.position > 0:
                oldest.setdefault(one.partition, []).append(one)
                del self._recent[one.decision.id]
        for partition, ones in oldest.items():
            information = Information.of(*self._live(ones))
            last = max(one.position for one in ones)
            self._blocks.setdefault(partition, []).append(_Block(last, information))
        # What waits in a spool stays: look again only after a further block.
        self._compact_at = max(len(self._recent), self._most) + self._block

    def pending(self) -> tuple[Matrix, Vector, Information]:
        """Return the pending ones: rows and shares of the recent ones, the sum of the others."""
        rows, shares = self._live(self._recent.values())
        summed = Information.zero(self._dim)
        for blocks in self._blocks.values():
            for block in blocks:
                summed = summed + block.information
        return rows, shares, summed

    def _live(self, ones: Iterable[Unapplied]) -> tuple[Matrix, Vector]:
        """Rows and shares of those that count."""
        live = [one for one in ones if one.decision.activated]
        rows = np.empty((len(live), self._dim))
        if live:
            np.concatenate([one.decision.x for one in live], out=rows.reshape(-1))
        return rows, np.array([self._share(one.weight) for one in live], dtype=np.float64)
