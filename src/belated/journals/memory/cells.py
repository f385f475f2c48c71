"""Cells in the memory of this process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from belated.exceptions import JournalClosed
from belated.journals.arrivals import Clock
from belated.journals.cells import NO_VERSIONS, Cell, Outcome
from belated.journals.steady_clock import system_clock


class MemoryCells:
    """Cells that live as long as the process; threads may share them.

    Args:
        clock: Gives the time in microseconds since 1970; None for the system's.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._cells: dict[str, Cell] | None = {}
        self._lock = threading.Lock()
        self._clock = clock or system_clock

    def share(self) -> MemoryCells:
        """Return another object with the same cells, to be closed by itself."""
        other = MemoryCells(self._clock)
        other._cells, other._lock = self._open(), self._lock
        return other

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return cells by name; see :meth:`Cells.get`."""
        with self._lock:
            found = {name: cell for name in names if (cell := self._open().get(name))}
        return {name: cell for name, cell in found.items() if known.get(name) != cell.version}

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names begin like this."""
        with self._lock:
            return {
                name: one for name, one in sorted(self._open().items()) if name.startswith(prefix)
            }

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Change cells if others are as expected; see :meth:`Cells.transact`."""
        with self._lock:
            cells, now = self._open(), self._clock()
            versions = {name: cells[name].version for name in (*expected, *puts) if name in cells}
            if any(versions.get(name, 0) != version for name, version in expected.items()):
                return Outcome(False, now)
            for name, value in puts.items():
                cells[name] = Cell(versions.get(name, 0) + 1, now, bytes(value))
            for name in deletes:
                cells.pop(name, None)
            return Outcome(True, now)

    def close(self) -> None:
        """Let go of the cells; any later call raises :class:`JournalClosed`."""
        self._cells = None

    def _open(self) -> dict[str, Cell]:
        if self._cells is None:
            raise JournalClosed("this store was closed: open it again")
        return self._cells
