"""Times and predictions of rewards, by handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from belated.fold.packing import numbered

#: Used as the time of a reward of 0, which counts like a missing reward.
SILENT = -1
#: Used as the start of a decision whose reward no longer counts.
REMOVED = -(1 << 62)
#: Number of entries per snapshot piece; unchanged pieces are not written again.
PIECE = 1 << 13


class Times:
    """The columns of one partition, with an entry for each reward ever received by the learner.

    Args:
        rivals: number of predictions per decision.

    Attributes:
        used: number of entries.

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
        """When each decision took effect; ``REMOVED`` if its reward no longer counts."""
        return self._columns["began"][: self.used]  # type: ignore[return-value]

    @property
    def came(self) -> NDArray[np.int64]:
        """When each reward other than 0 was recorded; ``SILENT`` for rewards of 0."""
        return self._columns["came"][: self.used]  # type: ignore[return-value]

    @property
    def predicted(self) -> NDArray[np.float64]:
        """The predictions for each decision; NaN if there are none."""
        return self._columns["predicted"][: self.used]  # type: ignore[return-value]

    def append(self, began: int, came: int, predicted: Sequence[float] = ()) -> None:
        """Add a reward."""
        self._reserve(1)
        i, self.used = self.used, self.used + 1
        self.began[i], self.came[i] = began, came
        self.predicted[i] = predicted if len(predicted) == self.predicted.shape[1] else np.nan

    def extend(self, began: NDArray[np.int64], came: NDArray[np.int64]) -> None:
        """Add rewards without predictions."""
        self._reserve(len(began))
        first, self.used = self.used, self.used + len(began)
        self.began[first:], self.came[first:] = began, came
        self.predicted[first:] = np.nan

    def copy(self) -> Times:
        """Copy the times, excluding predictions."""
        copied = Times()
        copied.extend(self.began, self.came)
        copied._first = self._first
        return copied

    def restart(self, handle: int, began: int) -> None:
        """Change the time at which a decision took effect."""
        self.began[handle] = began
        self._first = min(self._first, handle)

    def first_after(self, time: int) -> int:
        """Return the first entry, starting at the last result, whose decision began after a time.

        Decisions are mostly in order, so the search can continue where the last search ended.
        """
        later = self.began[self._first :] > time
        self._first += int(later.argmax()) if later.any() else len(later)
        return self._first

    def pack(self) -> dict[str, bytes]:
        """Serialize the columns in pieces."""
        return {
            f"{name} {number}": column[start : min(start + PIECE, self.used)].tobytes()
            for name, column in self._columns.items()
            for number, start in enumerate(range(0, self.used, PIECE))
            if column.size
        }

    def unpack(self, pieces: Mapping[str, bytes]) -> None:
        """Restore the columns from the result of :meth:`pack`."""
        began, arrived, predicted = (b"".join(numbered(pieces, name)) for name in self._columns)
        self.used, rivals = 0, self.predicted.shape[1]
        self.extend(np.frombuffer(began, np.int64), np.frombuffer(arrived, np.int64))
        if len(predicted) == 8 * self.used * rivals:  # otherwise the half-lives have changed
            self.predicted[:] = np.frombuffer(predicted).reshape(self.used, rivals)

    def _reserve(self, count: int) -> None:
        capacity = len(self._columns["began"])
        if self.used + count > capacity:
            capacity = max(self.used + count, 2 * capacity)
            for name, column in self._columns.items():
                larger = np.empty((capacity, *column.shape[1:]), dtype=column.dtype)
                larger[: self.used] = column[: self.used]
                self._columns[name] = larger
