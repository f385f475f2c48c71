"""A journal in PostgreSQL: durable, and shared by processes on any number of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from belated.core.ids import check_id, check_partitions
from belated.journals.arrivals import Clock
from belated.journals.postgres import open_session
from belated.journals.postgres.log import PostgresLog
from belated.journals.postgres.queries import migrations

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


class PostgresJournal(PostgresLog):
    """Keeps events in a database of PostgreSQL, each append on stable storage when it returns.

    Any number of threads, processes and machines may append at the same time; within a partition
    they take turns, and positions are in the order of commits. Stamps are those of the server's
    clock. Positions have no gaps, so a record that is missing is noticed, and so is one that was
    changed. An event that is appended again keeps its first place: the same bytes are kept once.

    The tables must be there: see :meth:`create_tables`. The server must be a primary of version 14
    or later that syncs what it commits; one that does not is refused. Needs the extra ``postgres``.
    The how-to on PostgreSQL shows it in use.

    Args:
        dsn: where the database is: ``postgresql://user@host/name``, or any other way libpq knows.
        bandit: the name of the bandit within the database.
        partitions: a power of two, fixed when the bandit is first opened; None for as many as there
            are, and 1 in a new one.
        wait: how many seconds to wait for the server and for others before
            :class:`JournalUnavailable`.
    """

    def __init__(
        self,
        dsn: str | PostgresSession,
        *,
        bandit: str,
        partitions: int | None = None,
        wait: float = 10.0,
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        wanted = None if partitions is None else check_partitions(partitions)
        #: Stands for the server's clock; for tests.
        self._clock: Clock | None = None
        session = open_session(dsn, wait)
        try:
            self._open_registered(session, wanted)
        except BaseException:
            session.close()
            raise

    @staticmethod
    def create_tables(dsn: str, *, wait: float = 10.0) -> None:
        """Make the tables in a database, or bring those of an older release up to date.

        Call it once for each database; again does nothing. Where programs may not make tables,
        ``belated schema`` prints the same for psql.

        Args:
            dsn: where the database is.
            wait: how many seconds to wait for the server.
        """

        def create(talk: Talk) -> None:
            talk.run_query("lock_tables")
            version = 0
            if talk.run_query("has_tables") == [(True,)]:
                version = talk.run_query("version")[0][0] or 0
            for step in migrations(version):
                talk.script(step)

        session = open_session(dsn, wait, check=False)
        try:
            session.transact(create)
        finally:
            session.close()

    def close(self) -> None:
        """Close the connection; any later call raises :class:`JournalClosed`."""
        self.cells.close()
        self._session.close()
