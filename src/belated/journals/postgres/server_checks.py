"""What a server, and whatever stands before it, must be so that promises hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from belated.exceptions import JournalError
from belated.journals.postgres.queries import query

if TYPE_CHECKING:
    import psycopg

_OLDEST_SERVER = 14
#: Looks at which process answers, behind a pooler.
_SAMPLES = 40


def check_settings(row: tuple[Any, ...], place: str) -> None:
    """Refuse a server on which an acknowledged event could be lost or passed over."""
    version, standby, fsync, full_page_writes, synchronous_commit = row
    if version < _OLDEST_SERVER * 10_000:
        message = f"PostgreSQL {version // 10_000}: {_OLDEST_SERVER} or later is needed"
        raise JournalError(f"{place} is {message}")
    if standby:
        message = "is a standby, which lags behind and takes no events: name the primary"
        raise JournalError(f"{place} {message}")
    for name, value, unsafe in (
        ("fsync", fsync, ("off",)),
        ("full_page_writes", full_page_writes, ("off",)),
        ("synchronous_commit", synchronous_commit, ("off", "local")),
    ):
        if value in unsafe:
            message = f"then acknowledged events can be lost: set {name} = on"
            raise JournalError(f"{place} has {name} = {value}, and {message}")


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether another process answers than the one that was named when it was connected."""
    return _process(connection) != connection.pgconn.backend_pid


def check_pooler(
    connection: psycopg.Connection[Any], other: psycopg.Connection[Any], place: str
) -> None:
    """Refuse a pooler that gives each transaction any connection (ADR 39).

    It keeps sessions apart if no two of its clients meet the same process, and none meets two.
    """
    mine: set[int] = set()
    theirs: set[int] = set()
    for _ in range(_SAMPLES):
        mine.add(_process(connection))
        theirs.add(_process(other))
    if len(mine) > 1 or len(theirs) > 1 or mine & theirs:
        message = (
            "is behind a pooler that shares connections between transactions, as PgBouncer does "
            "with pool_mode = transaction: settings on which durability rests would not hold. "
            "Connect to the server itself, which gets at most 6 connections of a process, or set "
            "pool_mode = session for this database"
        )
        raise JournalError(f"{place} {message}")


def _process(connection: psycopg.Connection[Any]) -> int:
    """Return the number of the server's process that answers."""
    row = connection.execute(query("process"), prepare=False).fetchone()
    assert row is not None
    return int(row[0])
