"""A look at a server of PostgreSQL, whatever its settings are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from belated.exceptions import JournalUnavailable, MissingExtra

try:
    import psycopg
    from psycopg.conninfo import make_conninfo
except ModuleNotFoundError:
    raise MissingExtra("PostgreSQL", "postgres") from None

from belated.journals.postgres.session import Connection, Row, Talk, describe, read_dsn


class PostgresLook:
    """A connection that takes a server as it is, to say what is wrong with it.

    Args:
        dsn: where the database is, as libpq takes it.
        wait: how many seconds to wait for the server.

    Raises:
        JournalUnavailable: there is no server.
    """

    def __init__(self, dsn: str, wait: float = 5.0) -> None:
        given = read_dsn(dsn)
        self.place = describe(given)
        ours: dict[str, Any] = {
            "fallback_application_name": "belated",
            "connect_timeout": math.ceil(wait),
        }
        settings = ours | given | {"client_encoding": "utf8"}
        with self._translated():
            self._connection = Connection.connect(make_conninfo("", **settings), autocommit=True)
        self._connection.patience = wait

    def run_query(self, name: str, /, **values: object) -> list[Row]:
        """Run a query of queries.sql."""
        with self._translated():
            return Talk(self._connection).run_query(name, **values)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            what = str(error).strip().partition("\n")[0] or type(error).__name__
            raise JournalUnavailable(f"{self.place}: {what}") from error
