"""Changes to tables and files that bypass the journal."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from belated.core.events import Reward
from belated.journals import PostgresJournal


def meddle(dsn: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement in PostgreSQL, bypassing the journal."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def meddle_file(
    path: Path, statement: str, values: tuple[object, ...] = ()
) -> list[tuple[Any, ...]]:
    """Run one statement in a SQLite file, bypassing the journal."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def filled(dsn: str, bandit: str, events: int = 3) -> PostgresJournal:
    """Return a journal with some events."""
    journal = PostgresJournal(dsn, bandit=bandit)
    journal.append([Reward(f"order-{n}", n, 0.5) for n in range(events)])
    return journal


def flip(dsn: str, column: str, where: str, *values: object) -> None:
    """Flip one bit in the middle; a second call restores it."""
    table = {"event": "record", "value": "cell"}[column]
    bit = f"4 * length({column})"
    expression = f"set_bit({column}, {bit}, 1 - get_bit({column}, {bit}))"
    meddle(dsn, f"UPDATE belated.{table} SET {column} = {expression} WHERE {where}", *values)
