"""Journals in PostgreSQL, and what goes with them. Opening one needs the extra ``postgres``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession


def open_session(dsn: str | PostgresSession, wait: float, *, check: bool = True) -> PostgresSession:
    """A connection of its own, or a share in one that is open.

    Args:
        dsn: where the database is; or a session whose connection is to be shared.
        wait: how many seconds to wait for the server.
        check: whether to refuse tables that are missing, too old or too new.
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
