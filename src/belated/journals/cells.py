"""Cells: small named values with versions, beside the logs of a store.

Leases, published models, snapshots, keys and whatever else a store holds beside records are built
on these three methods, once for all engines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote

#: No version is known.
NO_VERSIONS: Mapping[str, int] = {}


class Cell(NamedTuple):
    """A value, and which one it is of those its cell has had.

    Attributes:
        version: 1 for the first value, then one more with each.
        written: when it was written, by the store's clock, in microseconds since 1970.
        value: at most some megabytes.
    """

    version: int
    written: int
    value: bytes


#: Stands for a cell that does not exist.
NO_CELL = Cell(0, 0, b"")


class Outcome(NamedTuple):
    """What became of a transaction.

    Attributes:
        ok: whether it was committed; otherwise nothing has changed.
        now: the time by the store's clock, in microseconds since 1970.
    """

    ok: bool
    now: int


@runtime_checkable
class Cells(Protocol):
    """The cells of a store, shared by all processes that have it open.

    Names are printable ASCII (:func:`cell_name`).
    :class:`belated.testing.CellsContract` tests it.
    """

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return the cells that exist, by name, all as they are at one moment.

        Args:
            names: Names of the cells.
            known: Versions by name: a cell that still has this version is left out, too.
        """

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names begin like this, ordered by name."""

    def transact(
        self,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
    ) -> Outcome:
        """Change cells if others are as expected: all or nothing, and durable when this returns.

        If the answer of a store is lost, the call may be made twice. Then ``ok`` is False although
        the first one was committed: look again before you conclude that another was faster.

        Args:
            expected: Versions that cells must have; 0 for a cell that must not exist.
            puts: New values by name.
            deletes: Names of cells to delete. The next value has version 1 again: do not delete a
                cell whose version others remember.
        """

    def close(self) -> None:
        """Release whatever is held; any later call raises :class:`JournalClosed`."""


@lru_cache(maxsize=4096)  # quoting takes longer than all else
def cell_name(kind: str, *parts: object) -> str:
    """Return the name of a cell.

    >>> cell_name("snapshot", "best offers/2", 0)
    'snapshot/best%20offers%2F2/0'
    """
    return "/".join([kind, *(quote(str(part), safe="") for part in parts)])
