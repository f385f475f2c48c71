"""What the ledger keeps of each decision, in columns: 54 bytes each, whatever its row's width.

Numbers are given in the order of arrival and never again. Those at the front leave together once
all of them are forgotten.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from belated.kernels.memory import Table

if TYPE_CHECKING:
    from belated.ledger.recent import RecentEntry

#: In ``flags``.
ACTIVATED, LATE, CONFLICT, FORGOTTEN, EXPECTED = 1, 2, 4, 8, 16
#: In ``told_recorded``: no reward yet.
NONE = -1
#: Bytes that are searched at a time.
_PIECE = 1 << 14


class Columns(Table):
    """One place for each number, from ``base`` on."""

    columns: ClassVar = {
        "state": "B",
        "flags": "B",
        "recorded": "q",
        "position": "q",
        "at": "q",
        "crc": "I",
        "value": "d",
        "told_recorded": "q",
        "told_at": "q",
    }
    state: memoryview[int]
    flags: memoryview[int]
    recorded: memoryview[int]  # when the journal first took the decision
    position: memoryview[int]  # where the decision that counts is
    at: memoryview[int]  # with ``crc`` it tells which of two decisions under one id counts
    crc: memoryview[int]
    value: memoryview[float]  # what it is learned with
    told_recorded: memoryview[int]  # the one reward most decisions have
    told_at: memoryview[int]

    def __init__(self) -> None:
        super().__init__()
        self.base = 0

    def append(
        self, state: int, flags: int, recorded: int, position: int, at: int, crc: int
    ) -> None:
        """A new decision."""
        i = self.add()
        self.state[i], self.flags[i] = state, flags
        self.recorded[i], self.position[i] = recorded, position
        self.at[i], self.crc[i] = at, crc
        self.value[i], self.told_recorded[i], self.told_at[i] = 0.0, NONE, 0

    def extend(self, fresh: Sequence[RecentEntry]) -> None:
        """New decisions, plain ones."""
        first = self.add(len(fresh))
        new = slice(first, first + len(fresh))
        self.state[new] = bytes([one.state for one in fresh])
        self.flags[new] = bytes([ACTIVATED | EXPECTED]) * len(fresh)
        self.recorded[new] = array("q", [one.recorded for one in fresh])
        self.position[new] = array("q", [one.position for one in fresh])
        self.at[new] = array("q", [one.at for one in fresh])
        self.crc[new] = array("I", [one.crc for one in fresh])
        self.value[new] = array("d", [one.value for one in fresh])
        self.told_recorded[new] = array("q", [one.told_recorded for one in fresh])
        self.told_at[new] = array("q", [one.told_at for one in fresh])

    def first(self, state: int) -> int:
        """Where the first in a state is; -1 if there is none."""
        for start in range(0, len(self), _PIECE):
            piece = bytes(self.state[start : min(start + _PIECE, len(self))])
            at = piece.find(state)
            if at >= 0:
                return start + at
        return -1

    def drop(self, count: int) -> None:
        """The first ``count`` are gone."""
        super().drop(count)
        self.base += count
