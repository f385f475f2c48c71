"""Calls that wait for a lock of PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from belated.core.events import Settled
from belated.exceptions import JournalError
from belated.journals import PostgresJournal
from belated.journals.postgres.log import Arrivals
from belated.journals.postgres.queries import query
from tests.waiting import eventually


def backend(journal: PostgresJournal) -> int:
    """Return the server process of this journal; 0 while the journal reconnects."""
    connection = journal._session._connection
    return connection.info.backend_pid if connection is not None else 0


def waits_for_lock(dsn: str, process: int) -> bool:
    """Return whether the server reports that its process waits for a lock."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", (process,)
        ).fetchone()
    return row == ("Lock",)


def append_in(
    connection: psycopg.Connection, journal: PostgresJournal, until: int, partition: int = 0
) -> None:
    """Return an append of a journal in a transaction that is not committed yet."""
    arrivals = Arrivals([journal.registration], [partition], [Settled(partition, until)], None)
    connection.execute(query("append"), arrivals.values)


class Waiting:
    """A call in a thread, which waits for a lock of the server."""

    def __init__(self, dsn: str, journal: PostgresJournal, call: Callable[[], object]) -> None:
        self.answer: object = None

        def run() -> None:
            try:
                self.answer = call()
            except JournalError as error:
                self.answer = error

        self._dsn, self._journal = dsn, journal
        self._thread = threading.Thread(target=run)
        self._thread.start()
        eventually(self.is_waiting, "it does not wait")

    def is_waiting(self) -> bool:
        """Return whether the server reports that the call waits."""
        return waits_for_lock(self._dsn, backend(self._journal))

    def join(self) -> object:
        """Return the result of the call."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.answer
