"""Cells in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping

import msgspec

from belated.journals.arrivals import Clock
from belated.journals.cells import NO_VERSIONS, Cell, Outcome
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.steady_clock import system_clock

# One statement for any number of cells: `wanted` is a JSON object of versions by name.
_GET = (
    "SELECT name, version, written, CAST(cell.value AS BLOB) "
    "FROM json_each(?) AS wanted JOIN cell ON name = wanted.key WHERE version IS NOT wanted.value"
)
_CHANGED = (
    "SELECT 1 FROM json_each(?) AS wanted LEFT JOIN cell ON name = wanted.key "
    "WHERE coalesce(version, 0) <> wanted.value LIMIT 1"
)


class SQLiteCells:
    """Cells stored in one file; see :class:`~belated.journals.cells.Cells`.

    Times come from this machine's clock; all processes that open the file must run on this machine.

    Args:
        path: Path of the file, created if it does not exist; or an open file to share.
        clock: Returns the time in microseconds since 1970; by default, the system clock.
        wait: Seconds to wait for other processes before raising :class:`JournalUnavailable`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | SQLiteFile,
        *,
        clock: Clock | None = None,
        wait: float = 10.0,
    ) -> None:
        self._clock = clock or system_clock
        self._file = open_file(path, wait)

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return cells by name; see :meth:`Cells.get`."""
        versions = _json({name: known.get(name) for name in names})
        rows = self._file.read(lambda connection: connection.execute(_GET, (versions,)).fetchall())
        return {name: Cell(*row) for name, *row in rows}

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names start with a prefix; see :meth:`Cells.scan`."""
        return self._file.read(lambda connection: scan(connection, prefix))

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Write and delete cells if versions are as expected; see :meth:`Cells.transact`."""
        if not expected and not puts and not deletes:
            self._file.check_open()
            return Outcome(True, self._clock())

        versions = _json(expected)

        def change(connection: sqlite3.Connection) -> Outcome:
            now = self._clock()  # read in the transaction, so that times are in commit order
            if connection.execute(_CHANGED, (versions,)).fetchone():
                return Outcome(False, now)
            # Delete cells first, so that the cells written next can reuse their pages.
            connection.executemany("DELETE FROM cell WHERE name = ?", [(name,) for name in deletes])
            put_cells(connection, puts, now)
            return Outcome(True, now)

        return self._file.write(change, sum(map(len, puts.values())))

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self._file.close()


def scan(connection: sqlite3.Connection, prefix: str) -> dict[str, Cell]:
    """Return all cells whose names start with a prefix."""
    rows = connection.execute(
        "SELECT name, version, written, CAST(value AS BLOB) FROM cell "
        "WHERE name >= ? AND name < ? ORDER BY name",
        (prefix, prefix + "\x7f"),
    ).fetchall()
    return {name: Cell(*row) for name, *row in rows}


def _json(versions: Mapping[str, int | None]) -> str:
    return msgspec.json.encode(versions).decode()


def put_cells(connection: sqlite3.Connection, puts: Mapping[str, bytes], now: int) -> None:
    """Write cells within a transaction."""
    connection.executemany(
        "INSERT INTO cell (name, version, written, value) VALUES (?, 1, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET version = version + 1, written = excluded.written, "
        "value = excluded.value",
        [(name, now, value) for name, value in puts.items()],
    )
