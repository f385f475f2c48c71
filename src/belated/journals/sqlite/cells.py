"""Cells in a file of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping

from belated.journals.arrivals import Clock
from belated.journals.cells import NO_VERSIONS, Cell, Outcome
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.steady_clock import system_clock

_GET = "SELECT version, written, CAST(value AS BLOB) FROM cell WHERE name = ?"


class SQLiteCells:
    """Cells of one file; see :class:`~belated.journals.cells.Cells`.

    The clock is that of this machine, which all processes that have the file open share.

    Args:
        path: The file, made if it does not exist; or one that is open, whose connection is shared.
        clock: Gives the time in microseconds since 1970; None for the system's.
        wait: Seconds to wait for other processes before :class:`JournalUnavailable`.
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

        def read(connection: sqlite3.Connection) -> dict[str, Cell]:
            found = {}
            connection.execute("BEGIN")  # one state of the file for all of them
            try:
                for name in names:
                    row = connection.execute(
                        f"{_GET} AND version IS NOT ?", (name, known.get(name))
                    ).fetchone()
                    if row is not None:
                        found[name] = Cell(*row)
            finally:
                connection.rollback()
            return found

        return self._file.read(read)

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names begin like this."""
        return self._file.read(lambda connection: scan(connection, prefix))

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Change cells if others are as expected; see :meth:`Cells.transact`."""
        if not expected and not puts and not deletes:
            self._file.check_open()
            return Outcome(True, self._clock())

        def change(connection: sqlite3.Connection) -> Outcome:
            now = self._clock()  # under the lock of writers: times are in the order of commits
            version = "SELECT version FROM cell WHERE name = ?"
            for name, wanted in expected.items():
                if (connection.execute(version, (name,)).fetchone() or (0,)) != (wanted,):
                    return Outcome(False, now)
            put_cells(connection, puts, now)
            connection.executemany("DELETE FROM cell WHERE name = ?", [(one,) for one in deletes])
            return Outcome(True, now)

        return self._file.write(change, sum(map(len, puts.values())))

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self._file.close()


def scan(connection: sqlite3.Connection, prefix: str) -> dict[str, Cell]:
    """Return all cells whose names begin like this."""
    rows = connection.execute(
        "SELECT name, version, written, CAST(value AS BLOB) FROM cell "
        "WHERE name >= ? AND name < ? ORDER BY name",
        (prefix, prefix + "\x7f"),
    ).fetchall()
    return {name: Cell(*row) for name, *row in rows}


def put_cells(connection: sqlite3.Connection, puts: Mapping[str, bytes], now: int) -> None:
    """Write cells within a transaction that others write in, too."""
    connection.executemany(
        "INSERT INTO cell (name, version, written, value) VALUES (?, 1, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET version = version + 1, written = excluded.written, "
        "value = excluded.value",
        [(name, now, value) for name, value in puts.items()],
    )
