"""What happens to tables past the journal."""

from __future__ import annotations

import psycopg


def meddle(dsn: str, statement: str, *values: object) -> None:
    """Past the journal."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement, values)


def flip(dsn: str, column: str, where: str, *values: object) -> None:
    """One bit in the middle; the same again is the way back."""
    table = {"event": "record", "data": "piece"}[column]
    bit = f"4 * length({column})"
    flipped = f"set_bit({column}, {bit}, 1 - get_bit({column}, {bit}))"
    meddle(dsn, f"UPDATE belated.{table} SET {column} = {flipped} WHERE {where}", *values)
