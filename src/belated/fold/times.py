"""When decisions took effect and their rewards came, and what was predicted: by their handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from belated.fold.packing import numbered

#: In place of when a reward came: it is 0, as if there were none.
SILENT = -1
#: In place of when a decision took effect: its reward counts no longer.
REMOVED = -(1 << 62)
#: Lines of a piece of a snapshot: those that did not change are not written again.
PIECE = 1 << 13


class Times:
    """Columns of one partition, a line for each reward that was ever learned.

    Args:
        rivals: how many predictions a decision has.

    Attributes:
        used: how many lines there are.

    >>> times = Times()
    >>> times.append(5, 9)
    >>> times.began, times.came
    (array([5]), array([9]))
    """

    def __init__(self, rivals: int = 0) -> None:
        self.used = 0
        self._columns: dict[str, NDArray[np.generic]] = {
            "began": np.empty(64, dtype=np.int64),
            "came": np.empty(64, dtype=np.int64),
            "predicted": np.empty((64, rivals)),
        }
        self._first = 0

    @property
    def began(self) -> NDArray[np.int64]:
        """When each decision took effect; ``REMOVED`` if its reward counts no longer."""
        return self._columns["began"][: self.used]  # type: ignore[return-value]

    @property
    def came(self) -> NDArray[np.int64]:
        """When it was recorded that its value is not 0; ``SILENT`` if it is."""
        return self._columns["came"][: self.used]  # type: ignore[return-value]

    @property
    def predicted(self) -> NDArray[np.float64]:
        """What was predicted for each; nan if nothing was."""
        return self._columns["predicted"][: self.used]  # type: ignore[return-value]

    def append(self, began: int, came: int, predicted: Sequence[float] = ()) -> None:
        """A reward was learned."""
        self._reserve(1)
        i, self.used = self.used, self.used + 1
        self.began[i], self.came[i] = began, came
        self.predicted[i] = predicted if len(predicted) == self.predicted.shape[1] else np.nan

    def extend(self, began: NDArray[np.int64], came: NDArray[np.int64]) -> None:
        """Rewards were learned for which nothing was predicted."""
        self._reserve(len(began))
        first, self.used = self.used, self.used + len(began)
        self.began[first:], self.came[first:] = began, came
        self.predicted[first:] = np.nan

    def copy(self) -> Times:
        """Copy when decisions took effect and their rewards came."""
        twin = Times()
        twin.extend(self.began, self.came)
        twin._first = self._first
        return twin

    def restart(self, handle: int, began: int) -> None:
        """A decision took effect at another time."""
        self.began[handle] = began
        self._first = min(self._first, handle)

    def first_after(self, time: int) -> int:
        """Return a line before which all decisions took effect by a time.

        It is looked for from the last that was returned on: decisions come in order.
        """
        later = self.began[self._first :] > time
        self._first += int(later.argmax()) if later.any() else len(later)
        return self._first

    def pack(self) -> dict[str, bytes]:
        """As bytes, by pieces."""
        return {
            f"{name} {number}": column[start : min(start + PIECE, self.used)].tobytes()
            for name, column in self._columns.items()
            for number, start in enumerate(range(0, self.used, PIECE))
            if column.size
        }

    def unpack(self, pieces: Mapping[str, bytes]) -> None:
        """Take what :meth:`pack` gave."""
        began, came, predicted = (b"".join(numbered(pieces, name)) for name in self._columns)
        self.used, rivals = 0, self.predicted.shape[1]
        self.extend(np.frombuffer(began, np.int64), np.frombuffer(came, np.int64))
        if len(predicted) == 8 * self.used * rivals:  # else of another set of half-lives
            self.predicted[:] = np.frombuffer(predicted).reshape(self.used, rivals)

    def _reserve(self, count: int) -> None:
        room = len(self._columns["began"])
        if self.used + count > room:
            room = max(self.used + count, 2 * room)
            for name, column in self._columns.items():
                larger = np.empty((room, *column.shape[1:]), dtype=column.dtype)
                larger[: self.used] = column[: self.used]
                self._columns[name] = larger
