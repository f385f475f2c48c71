"""A PostgreSQL database as a store of journals and cells."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from belated.journals.arrivals import FirstDecisions, gather, route
from belated.journals.log import Appended
from belated.journals.postgres import open_session
from belated.journals.postgres.cells import PostgresCells
from belated.journals.postgres.log import Arrivals, PostgresJournal
from belated.journals.shelf import has_acts
from belated.journals.store import Batch, Store, StoreSession

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresInspection


class PostgresStoreSession(StoreSession):
    """Opens bandits over one connection; see :class:`~belated.journals.store.StoreSession`.

    Args:
        store: Store of the database.
        dsn: Address of the database, in any libpq form.
        wait: Seconds to wait for the server.
    """

    def __init__(self, store: Store, dsn: str, wait: float) -> None:
        self._session = open_session(dsn, wait)
        super().__init__(store, self.share_cells(), wait)

    def journal(self, bandit: str, *, partitions: int | None = None) -> PostgresJournal:
        """Open the journal of a bandit; create it if it does not exist."""
        return PostgresJournal(self._session, bandit=bandit, partitions=partitions)

    def share_cells(self) -> PostgresCells:
        """Return cells over the same connection."""
        return PostgresCells(self._session)

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches in one statement, and therefore in one commit."""
        if len(batches) == 1 or any(has_acts(batch.events) for batch in batches):
            return [batch.append() for batch in batches]
        parts = [FirstDecisions(batch.events, batch.ids) for batch in batches]
        journals = [_journal_of(batch) for batch in batches]
        bandits = [journal.registration for journal in journals]
        events, requests = gather(
            (part.events, part.requests(batch.requests))
            for part, batch in zip(parts, batches, strict=True)
        )
        owners = [bandit for bandit, part in zip(bandits, parts, strict=True) for _ in part.events]
        homes = [
            route(event, owner.partitions) for event, owner in zip(events, owners, strict=True)
        ]
        arrivals = Arrivals(owners, homes, events)
        arrivals.add_requests(events, requests)
        owned = zip(bandits, batches, strict=True)
        ids = [(bandit, id) for bandit, batch in owned for id in batch.ids]
        if ids:
            arrivals.refuse_second(ids)
        result = arrivals.send(self._session)
        if result is None:  # an id, or another id with the same half of its key, has a decision
            return [batch.append() for batch in batches]
        positions, appended, start = arrivals.positions(result), [], 0
        duplicates = arrivals.is_duplicate(result) if arrivals.duplicates else []
        for journal, part in zip(journals, parts, strict=True):
            end = start + len(part.events)
            appended.append(part.appended(positions[start:end]))
            journal.duplicates += sum(duplicates[start:end])
            start = end
        return appended

    def ends(self, bandits: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the end of each partition, by bandit; see :meth:`StoreSession.ends`."""
        names = {}
        for name, journal in self._existing(bandits).items():
            assert isinstance(journal, PostgresJournal)
            names[journal.number] = name
        rows = self._session.run_query("ends", numbers=list(names))
        return {names[number]: tuple(ends) for number, ends in rows}

    def close(self) -> None:
        """Close the connection; later calls on opened objects raise :class:`JournalClosed`."""
        super().close()
        self._session.close()


def _journal_of(batch: Batch) -> PostgresJournal:
    assert isinstance(batch.journal, PostgresJournal)
    return batch.journal


class PostgresStore(Store):
    """A store in one PostgreSQL database; see :class:`~belated.journals.Store`.

    Args:
        dsn: Address of the database: ``postgresql://user@host/name``.

    >>> PostgresStore("postgresql://shop:secret@db.example:5432/belated").place
    "database 'belated' on db.example:5432"
    """

    name = "postgresql"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        parts = urlsplit(dsn)
        name = unquote(parts.path.lstrip("/")) or os.environ.get("PGDATABASE", "")
        host = unquote(parts.netloc.rpartition("@")[2]) or os.environ.get("PGHOST", "this machine")
        self.place = f"database {name!r} on {host}"

    @property
    def address(self) -> str:
        """The address with which another process can open the store; may contain a password."""
        return self._dsn

    def __repr__(self) -> str:
        return f"<PostgresStore: {self.place}>"  # the address may contain a password

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> PostgresJournal:
        """Open the journal of a bandit; create it if it does not exist."""
        return PostgresJournal(self._dsn, bandit=bandit, partitions=partitions, wait=wait)

    def cells(self, *, wait: float = 10.0) -> PostgresCells:
        """Open the cells."""
        return PostgresCells(self._dsn, wait=wait)

    def session(self, *, wait: float = 10.0) -> PostgresStoreSession:
        """Open one connection for any number of bandits; see :meth:`Store.session`."""
        return PostgresStoreSession(self, self._dsn, wait)

    def inspect(self) -> PostgresInspection:
        """Connect for diagnosis, without checking the server's settings."""
        from belated.journals.postgres.session import PostgresInspection  # needs psycopg

        inspection = PostgresInspection(self._dsn, wait=5.0)
        inspection.run_query("clock")
        return inspection

    def create_tables(self) -> None:
        """Create the tables, or migrate the tables of an older release."""
        PostgresJournal.create_tables(self._dsn)
