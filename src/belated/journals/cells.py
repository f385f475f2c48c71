"""Cells: small named values with versions, stored alongside logs.

Leases, published models, snapshots, keys and all other state of a store are built on these three
methods, once for all engines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote

#: No known versions.
NO_VERSIONS: Mapping[str, int] = {}


class Cell(NamedTuple):
    """A value with its version.

    Attributes:
        version: 1 for the first value, incremented by each write.
        written: Time of the write by the store's clock, in microseconds since 1970.
        value: At most a few megabytes.
    """

    version: int
    written: int
    value: bytes


#: Represents a cell that does not exist.
NO_CELL = Cell(0, 0, b"")


class Outcome(NamedTuple):
    """The result of a transaction.

    Attributes:
        ok: Whether it was committed; if not, nothing has changed.
        now: Time by the store's clock, in microseconds since 1970.
    """

    ok: bool
    now: int


@runtime_checkable
class Cells(Protocol):
    """The cells of a store, shared by all processes that have it open.

    Names are printable ASCII; see :func:`cell_name`.
    :class:`belated.testing.CellsContract` tests implementations.
    """

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return the cells that exist, by name, from one consistent read.

        Args:
            names: Names of the cells.
            known: Versions by name: cells that still have this version are left out.
        """

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names start with a prefix, ordered by name."""

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Write and delete cells atomically and durably if all versions are as expected.

        If the response of a store is lost, the transaction may run twice. Then ``ok`` is False
        although the first run was committed: read the cells before concluding that another
        process was faster.

        Args:
            expected: Versions that cells must have; 0 for a cell that must not exist.
            puts: New values by name.
            deletes: Names of cells to delete. Versions start at 1 again: do not delete a cell whose
                version other processes remember.
        """

    def close(self) -> None:
        """Close the connection; any later call raises :class:`JournalClosed`."""


@lru_cache(maxsize=4096)  # quoting is slow compared with the rest of a look-up
def cell_name(kind: str, *parts: object) -> str:
    """Return the name of a cell.

    >>> cell_name("snapshot", "best offers/2", 0)
    'snapshot/best%20offers%2F2/0'
    """
    return "/".join([kind, *(quote(str(part), safe="") for part in parts)])
