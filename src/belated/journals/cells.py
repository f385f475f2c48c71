"""Cells: small named values with versions, stored alongside logs.

Leases, published models, snapshots, keys and all other state of a store use only the methods
``get``, ``scan`` and ``transact``, and are implemented once for all engines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote

#: Empty mapping of cell names to versions.
NO_VERSIONS: Mapping[str, int] = {}


class Cell(NamedTuple):
    """A value with its version.

    Attributes:
        version: 1 for the first value, incremented by each write.
        written: Time of the write by the store's clock, in microseconds since 1970.
        value: The value; at most a few megabytes.
    """

    version: int
    written: int
    value: bytes


#: Represents a cell that does not exist.
NO_CELL = Cell(0, 0, b"")


class Outcome(NamedTuple):
    """The result of a transaction.

    Attributes:
        ok: Whether the transaction was committed; if not, nothing has changed.
        now: Time of the store's clock, in microseconds since 1970.
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
            known: Versions by name; cells that still have the known version are omitted.
        """

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names start with a prefix, ordered by name."""

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Write and delete cells atomically and durably if all versions are as expected.

        If the store's response is lost, the transaction may run twice. ``ok`` is then False,
        although the first run was committed. Therefore, read the cells before concluding that
        another process changed them first.

        Args:
            expected: Versions that cells must have; 0 for a cell that must not exist.
            puts: New values by name.
            deletes: Names of cells to delete. Versions of a deleted cell start at 1 again, so do
                not delete a cell whose version other processes remember.
        """

    def close(self) -> None:
        """Close the connection; any later call raises :class:`JournalClosed`."""


@lru_cache(maxsize=4096)  # quoting is slow relative to the rest of a lookup
def cell_name(kind: str, *parts: object) -> str:
    """Return the name of a cell.

    >>> cell_name("snapshot", "best offers/2", 0)
    'snapshot/best%20offers%2F2/0'
    """
    return "/".join([kind, *(quote(str(part), safe="") for part in parts)])
