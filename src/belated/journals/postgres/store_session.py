"""One connection to a database of PostgreSQL, for any number of bandits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from belated.core.events import Event, ModeChanged, read_event
from belated.exceptions import CorruptEvent
from belated.journals.arrivals import gather, route
from belated.journals.log import Appended
from belated.journals.lookups import append_first, of_kept
from belated.journals.postgres import open_session
from belated.journals.postgres.arrays import unpack_bigints
from belated.journals.postgres.arrivals import MARKS, Arrivals, beyond, check_of
from belated.journals.postgres.coordination import PostgresCoordinationStore
from belated.journals.postgres.journal import PostgresJournal
from belated.journals.postgres.keys import PostgresKeyStore
from belated.journals.sessions import Batch, Glance


class PostgresStoreSession:
    """Opens bandits over one connection; see :class:`~belated.journals.sessions.StoreSession`.

    Args:
        dsn: where the database is, as libpq takes it.
        wait: how many seconds to wait for the server.
    """

    def __init__(self, dsn: str, *, wait: float = 10.0) -> None:
        self._session = open_session(dsn, wait)

    def journal(self, bandit: str, *, partitions: int | None = None) -> PostgresJournal:
        """Open the journal of a bandit; make it if it is new."""
        return PostgresJournal(self._session, bandit=bandit, partitions=partitions)

    def coordination(self, bandit: str) -> PostgresCoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists."""
        return PostgresCoordinationStore(self._session, bandit=bandit)

    def keys(self) -> PostgresKeyStore:
        """Open the API keys."""
        return PostgresKeyStore(self._session)

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches in one statement, which is one commit."""
        if len(batches) == 1:
            return [batches[0].append()]
        parts = [_Part(batch) for batch in batches]
        events, requests = gather((one.events, one.requests) for one in parts)
        arrivals = Arrivals(
            [number for one in parts for number in [one.journal.number] * len(one.events)],
            [route(event, one.journal.partitions) for one in parts for event in one.events],
            events,
        )
        arrivals.keep(events, requests)
        if ids := [named for one in parts for named in one.named]:
            arrivals.refuse_second(ids)
        found = self._session.call("append", list(arrivals.values.values()))
        if found is None:  # an id has a decision, or shares half its key with one that has
            return [batch.append() for batch in batches]
        answer = unpack_bigints(found)
        positions, appended, start = arrivals.of_all(answer), [], 0
        known = arrivals.known(answer) if arrivals.duplicates else []
        for one in parts:
            end = start + len(one.events)
            appended.append(one.appended(positions[start:end]))
            one.journal.duplicates += sum(known[start:end])
            start = end
        return appended

    def published(self, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
        """Return the models, with their numbers, of those bandits that have another than this."""
        rows = self._session.run_query(
            "all_published", names=list(after), after=list(after.values())
        )
        return {name: (number, bytes(data)) for name, number, data in rows}

    def modes(self, bandits: Sequence[str]) -> dict[str, ModeChanged]:
        """Return the last event that changed the mode of each bandit, where there is one."""
        least = MARKS["mode"]
        rows = self._session.run_query(
            "all_modes", names=list(bandits), least=least, beyond=beyond(least)
        )
        found = {}
        for name, partition, position, recorded, check, _, data in rows:
            if check != check_of(partition, position, recorded, data):
                where = f"the record at partition {partition}, position {position} of {name!r}"
                raise CorruptEvent(f"{where} was changed after it was written: restore a backup")
            event = read_event(data)
            if isinstance(event, ModeChanged):
                found[name] = event
        return found

    def glance(self, bandits: Sequence[str]) -> dict[str, Glance]:
        """Return how each of these bandits stands, where its journal exists."""
        rows = self._session.run_query("glance", names=list(bandits))
        return {name: Glance(tuple(ends), led) for name, led, ends in rows}

    def renew_leases(self, held: Mapping[str, str], seconds: float) -> dict[str, int]:
        """Renew leases in one commit; see :meth:`StoreSession.renew_leases`."""
        names, holders = list(held), list(held.values())
        return dict(
            self._session.run_query("renew_leases", names=names, holders=holders, seconds=seconds)
        )

    def close(self) -> None:
        """Close the connection; any later call of what was opened raises :class:`JournalClosed`."""
        self._session.close()


class _Part:
    """What one batch adds to a commit: of two decisions under one id the first."""

    def __init__(self, batch: Batch) -> None:
        assert isinstance(batch.journal, PostgresJournal)
        self.journal = batch.journal
        self._batch = batch
        self.events: Sequence[Event] = batch.events
        self.requests = batch.requests
        self.named: list[tuple[int, str, int]] = []
        if batch.ids:
            kept: list[int] = []

            def note(some: list[int]) -> list[int]:
                kept.extend(some)
                return some

            append_first(batch.events, batch.ids, [], note)
            self.events = [batch.events[n] for n in kept]
            self.requests = of_kept(batch.requests, kept) or {}
            whose = self.journal
            self.named = [(whose.number, id, whose.partitions) for id in batch.ids]

    def appended(self, positions: list[int]) -> Appended:
        """What became of all its events, given the positions of those that were written."""
        if not self._batch.ids:
            return Appended(positions, {})
        return append_first(self._batch.events, self._batch.ids, [], lambda _: positions)
