"""When the decisions of rewards began, and when conversions were reported: by their handles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from belated.ledger.packing import numbered

#: In place of when a conversion was reported: there is none.
SILENT = -1
#: In place of when a decision began: its reward counts no longer.
REMOVED = -(1 << 62)
#: Lines of a piece of a snapshot: those that did not change are not written again.
PIECE = 1 << 13
_BEGAN, _TOLD = "began", "converted"


class ConversionTimes:
    """Two columns of one partition, a line for each decision that was ever learned.

    >>> times = ConversionTimes()
    >>> times.append(5, SILENT)
    >>> times.append(7, 9)
    >>> times.began, times.told
    (array([5, 7]), array([-1,  9]))
    """

    def __init__(self) -> None:
        self.used = 0
        self._first = 0
        self._lines = np.empty((2, 64), dtype=np.int64)

    @property
    def began(self) -> NDArray[np.int64]:
        """When each decision took effect, by the journal."""
        return self._lines[0, : self.used]

    @property
    def told(self) -> NDArray[np.int64]:
        """When its conversion was reported; ``SILENT`` if it has none."""
        return self._lines[1, : self.used]

    def append(self, began: int, told: int) -> None:
        """A decision was learned."""
        i = self.used
        if i == self._lines.shape[1]:
            self._lines = np.concatenate([self._lines, np.empty_like(self._lines)], axis=1)
        self.used = i + 1
        self._lines[0, i], self._lines[1, i] = began, told

    def restart(self, handle: int, began: int) -> None:
        """A decision took effect at another time."""
        self._lines[0, handle] = began
        self._first = min(self._first, handle)

    def first_after(self, time: int) -> int:
        """Return a line before which all decisions took effect by a time.

        It is looked for from the last that was returned on: times come in order.
        """
        later = self.began[self._first :] > time
        self._first += int(later.argmax()) if later.any() else len(later)
        return self._first

    def pack(self) -> dict[str, bytes]:
        """As bytes, by pieces."""
        found = {}
        for number, start in enumerate(range(0, self.used, PIECE)):
            lines = slice(start, min(start + PIECE, self.used))
            for name, column in zip((_BEGAN, _TOLD), self._lines, strict=True):
                found[f"{name} {number}"] = column[lines].tobytes()
        return found

    def unpack(self, pieces: Mapping[str, bytes]) -> None:
        """Take what :meth:`pack` gave."""
        began, told = (
            np.frombuffer(b"".join(numbered(pieces, name)), np.int64) for name in (_BEGAN, _TOLD)
        )
        self.used = len(began)
        self._lines = np.empty((2, max(64, self.used)), dtype=np.int64)
        self._lines[0, : self.used], self._lines[1, : self.used] = began, told
