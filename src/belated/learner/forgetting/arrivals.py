"""When the decisions of rewards were made, and what was predicted for them: by their handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from belated.inputs import Vector
from belated.ledger.packing import numbered

#: In place of the time of a reward that counts no longer.
REMOVED = -(1 << 62)
#: Lines of a piece of a snapshot: those that did not change are not written again.
PIECE = 1 << 13


class Arrivals:
    """Columns of one partition, a line for each reward that was ever learned, by its handle.

    Args:
        rivals: predictions that a decision has.

    >>> arrivals = Arrivals(2)
    >>> arrivals.append(1_700_000_000_000_000, 1.0, (0.2, 0.3))
    >>> arrivals.made
    array([1700000000000000])
    """

    def __init__(self, rivals: int) -> None:
        self.rivals = rivals
        self.used = 0
        self._made = np.empty(64, dtype=np.int64)
        self._y = np.empty(64)
        self._means = np.empty((64, rivals))

    @property
    def made(self) -> NDArray[np.int64]:
        """When each decision was made, by the journal; ``REMOVED`` if its reward is gone."""
        return self._made[: self.used]

    @property
    def y(self) -> Vector:
        """The rewards."""
        return self._y[: self.used]

    @property
    def means(self) -> NDArray[np.float64]:
        """What was predicted for each; nan if nothing was."""
        return self._means[: self.used]

    def append(self, made: int, y: float, means: Sequence[float] | None) -> None:
        """A reward was learned."""
        i = self.used
        if i == len(self._made):
            for name in ("_made", "_y", "_means"):
                column = getattr(self, name)
                larger = np.empty((2 * i, *column.shape[1:]), dtype=column.dtype)
                larger[:i] = column
                setattr(self, name, larger)
        self.used = i + 1
        self._made[i], self._y[i] = made, y
        self._means[i] = np.nan if means is None else means

    def first_after(self, time: int, start: int) -> int:
        """The first line, from one on, of a decision made after a time."""
        later = self.made[start:] > time
        return start + (int(later.argmax()) if later.any() else len(later))

    def pack(self) -> dict[str, bytes]:
        """As bytes, by pieces."""
        found = {}
        for number, start in enumerate(range(0, self.used, PIECE)):
            lines = slice(start, min(start + PIECE, self.used))
            for name, column in (("made", self._made), ("told", self._y), ("means", self._means)):
                found[f"{name} {number}"] = column[lines].tobytes()
        return found

    def unpack(self, pieces: Mapping[str, bytes]) -> None:
        """Take what :meth:`pack` gave."""
        made, y, means = (b"".join(numbered(pieces, name)) for name in ("made", "told", "means"))
        self._made, self._y = np.frombuffer(made, np.int64).copy(), np.frombuffer(y).copy()
        self.used = len(self._made)
        self._means = np.full((self.used, self.rivals), np.nan)
        if len(means) == 8 * self.used * self.rivals:  # else of another set of half-lives
            self._means = np.frombuffer(means).reshape(self.used, self.rivals).copy()
        if not self.used:
            self.__init__(self.rivals)  # type: ignore[misc]
