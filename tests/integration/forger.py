"""A forger, who bypasses the journal and recomputes checksums and digests."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import NamedTuple, Protocol

import psycopg

from belated.core.events import digest_of, read_event
from belated.journals import SQLiteStore, Store, open_store
from belated.journals.bandits import find_bandit
from belated.journals.postgres import log as postgres
from belated.journals.sqlite import file, log as sqlite
from belated.journals.store import StoredBandit


class Row(NamedTuple):
    """A stored record, without its computed columns."""

    partition: int
    position: int
    recorded: int
    event: bytes


class Forger(Protocol):
    """Changes the stored journal of a bandit, in one transaction per list of rows."""

    def rows(self) -> list[Row]:
        """Return all records, by partition and position."""

    def replace(self, rows: list[Row]) -> None:
        """Store these rows instead of all records."""

    def cut(self, partition: int, after: int) -> None:
        """Remove the records beyond a position."""

    def close(self) -> None:
        """Close the connection."""


class SQLiteForger:
    """A forger of a SQLite file."""

    def __init__(self, store: SQLiteStore, bandit: str) -> None:
        self._connection = sqlite3.connect(store.path, isolation_level=None, timeout=10)
        self._end = store.path.with_name(f"{store.path.name}.end")
        self._number, self._secret = _registered(store, bandit)
        self._range = tuple(file.place_of(self._number + n, 0, 0) for n in (0, 1))

    def rows(self) -> list[Row]:
        """Return all records."""
        query = "SELECT place, recorded, event FROM record WHERE place >= ? AND place < ?"
        rows = self._connection.execute(f"{query} ORDER BY place", self._range).fetchall()
        return [Row(*file.split_place(place), *columns) for place, *columns in rows]

    def replace(self, rows: list[Row]) -> None:
        """Store these rows instead."""
        values = []
        for row in rows:
            place = file.place_of(self._number, row.partition, row.position)
            mark = sqlite.mark_of(read_event(row.event), sqlite.keyed_hash(self._secret))
            check = sqlite.check_of(place, row.recorded, mark, row.event)
            values.append((place, row.recorded, mark, check, digest_of(row.event), row.event))
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM record WHERE place >= ? AND place < ?", self._range)
            connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?)", values)
        self._remove_end()

    def cut(self, partition: int, after: int) -> None:
        """Remove the records after a position."""
        base = file.place_of(self._number, partition, 0)
        self._connection.execute(
            "DELETE FROM record WHERE place > ? AND place < ?",
            (base + after, base + file.POSITIONS),
        )
        self._remove_end()

    def _remove_end(self) -> None:
        """Remove the file with the last record, which would reveal the forgery."""
        self._end.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresForger:
    """A forger of a database."""

    def __init__(self, dsn: str, bandit: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._number, self._secret = _registered(open_store(dsn), bandit)

    def rows(self) -> list[Row]:
        """Return all records."""
        rows = self._connection.execute(
            "SELECT partition, position, recorded, event FROM belated.record WHERE bandit = %s "
            "ORDER BY partition, position",
            (self._number,),
        )
        return [Row(*row) for row in rows]

    def replace(self, rows: list[Row]) -> None:
        """Store these rows instead."""
        values = []
        for row in rows:
            digest = digest_of(row.event)
            mark = postgres.mark_of(read_event(row.event), digest)
            values.append((self._number, *row, postgres.check_of(*row), mark, digest))
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("DELETE FROM belated.record WHERE bandit = %s", (self._number,))
            cursor.executemany(
                "INSERT INTO belated.record (bandit, partition, position, recorded, event, "
                '"check", mark, digest) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)',
                values,
            )

    def cut(self, partition: int, after: int) -> None:
        """Remove the records after a position."""
        self._connection.execute(
            "DELETE FROM belated.record WHERE bandit = %s AND partition = %s AND position > %s",
            (self._number, partition, after),
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _registered(store: Store, bandit: str) -> tuple[int, bytes]:
    with closing(store.cells()) as cells:
        _, entry = find_bandit(cells, bandit)
    assert entry is not None
    return entry.number, entry.secret


def forger(store: Store, address: str, bandit: str) -> Forger:
    """Return a forger for any store."""
    if isinstance(store, SQLiteStore):
        return SQLiteForger(store, bandit)
    return PostgresForger(address, bandit)


def stored(store: Store, bandit: str) -> StoredBandit:
    """Return a store's metadata of a bandit."""
    return next(entry for entry in store.describe() if entry.name == bandit)
