"""Journals and cells in PostgreSQL, which require the ``postgres`` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession


def open_session(dsn: str | PostgresSession, wait: float, *, check: bool = True) -> PostgresSession:
    """Open a connection, or share one that is already open.

    Args:
        dsn: Address of the database, or a session to share.
        wait: Seconds to wait for the server.
        check: Whether to raise if tables are missing, too old or too new.
    """
    from belated.journals.postgres.session import BorrowedSession, PostgresSession  # needs psycopg

    if isinstance(dsn, PostgresSession):
        return BorrowedSession(dsn)
    session = PostgresSession(dsn, wait)
    try:
        if check:
            session.check_tables()
    except BaseException:
        session.close()
        raise
    return session
