"""What the ledger keeps of each decision, in columns: some 80 bytes each, whatever its row's width.

Numbers are given in the order of arrival and never again. Those at the front leave together once
all of them are forgotten.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belated.ledger.fresh import Fresh

#: In ``flags``.
ACTIVATED, LATE, CONFLICT, FORGOTTEN, EXPECTED = 1, 2, 4, 8, 16
#: In ``told_recorded``: no reward yet.
NONE = -1


class Columns:
    """One place for each number, from ``base`` on."""

    def __init__(self) -> None:
        self.base = 0
        self.state = bytearray()
        self.flags = bytearray()
        self.recorded = array("q")  # when the journal first took the decision
        self.position = array("q")  # where the decision that counts is
        self.at = array("q")  # with ``crc`` it tells which of two decisions under one id counts
        self.crc = array("I")
        self.value = array("d")  # what it is learned with
        self.told_recorded = array("q")  # the one reward most decisions have
        self.told_at = array("q")

    def __len__(self) -> int:
        return len(self.state)

    def append(
        self, state: int, flags: int, recorded: int, position: int, at: int, crc: int
    ) -> None:
        """A new decision."""
        self.state.append(state)
        self.flags.append(flags)
        self.recorded.append(recorded)
        self.position.append(position)
        self.at.append(at)
        self.crc.append(crc)
        self.value.append(0.0)
        self.told_recorded.append(NONE)
        self.told_at.append(0)

    def extend(self, fresh: Sequence[Fresh]) -> None:
        """New decisions, plain ones."""
        self.state.extend([one.state for one in fresh])
        self.flags.extend(bytes([ACTIVATED | EXPECTED]) * len(fresh))
        self.recorded.extend([one.recorded for one in fresh])
        self.position.extend([one.position for one in fresh])
        self.at.extend([one.at for one in fresh])
        self.crc.extend([one.crc for one in fresh])
        self.value.extend([one.value for one in fresh])
        self.told_recorded.extend([one.told_recorded for one in fresh])
        self.told_at.extend([one.told_at for one in fresh])

    def drop(self, count: int) -> None:
        """The first ``count`` are gone."""
        for column in self._all():
            del column[:count]
        self.base += count

    def pack(self) -> dict[str, bytes]:
        """The columns as bytes, by name."""
        return {name: bytes(getattr(self, name)) for name in _NAMES}

    def restore(self, packed: dict[str, bytes], base: int) -> None:
        """Take the columns that :meth:`pack` gave."""
        self.base = base
        for name, column in zip(_NAMES, self._all(), strict=True):
            del column[:]
            if isinstance(column, array):
                column.frombytes(packed[name])
            else:
                column.extend(packed[name])

    def _all(self) -> list[array[int] | array[float] | bytearray]:
        return [getattr(self, name) for name in _NAMES]


_NAMES = (
    "state", "flags", "recorded", "position", "at", "crc", "value", "told_recorded", "told_at",
)  # fmt: skip
