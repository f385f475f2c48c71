"""One connection to a file of SQLite, for any number of bandits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from belated.core.events import ModeChanged
from belated.journals.arrivals import Clock
from belated.journals.log import Appended
from belated.journals.sessions import Batch, Glance
from belated.journals.sqlite.coordination import SQLiteCoordinationStore
from belated.journals.sqlite.file import SQLiteFile
from belated.journals.sqlite.journal import SQLiteJournal
from belated.journals.sqlite.keys import SQLiteKeyStore
from belated.journals.sqlite.log import EVENT_BYTES
from belated.journals.sqlite.rows import POSITIONS, place_of
from belated.journals.steady_clock import system_clock


class SQLiteSession:
    """Opens bandits over one connection; see :class:`~belated.journals.sessions.StoreSession`.

    Args:
        path: The file; made if it is not there.
        clock: Gives the time in microseconds since 1970; None for the system's.
        wait: Seconds to wait for other processes before :class:`JournalUnavailable`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Clock | None = None, wait: float = 10.0
    ) -> None:
        self._clock = clock
        self._file = SQLiteFile(path, wait)
        self._looked: dict[str, SQLiteJournal] = {}

    def journal(self, bandit: str, *, partitions: int | None = None) -> SQLiteJournal:
        """Open the journal of a bandit; make it if it is new."""
        return SQLiteJournal(self._file, bandit=bandit, partitions=partitions, clock=self._clock)

    def coordination(self, bandit: str) -> SQLiteCoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists."""
        return SQLiteCoordinationStore(self._file, bandit=bandit, clock=self._clock)

    def keys(self) -> SQLiteKeyStore:
        """Open the API keys."""
        return SQLiteKeyStore(self._file, clock=self._clock)

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches in one transaction."""
        journals = []
        for batch in batches:
            assert isinstance(batch.journal, SQLiteJournal)
            journals.append(batch.journal)
        size = sum(EVENT_BYTES * len(one.events) for one in batches)
        size += sum(len(data) for one in batches for data in one.requests.values())
        with self._file.writing(size) as connection:
            return [
                journal.append_within(connection, one.events, one.ids, one.requests)
                for journal, one in zip(journals, batches, strict=True)
            ]

    def published(self, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
        """Return the models, with their numbers, of those bandits that have another than this."""
        with self._file.reading() as connection:
            numbers = connection.execute(
                "SELECT name, model.number, bandit FROM model "
                "JOIN bandit ON bandit.number = model.bandit"
            ).fetchall()
            found = {}
            for name, number, bandit in numbers:
                if name in after and number != after[name]:
                    read = "SELECT number, data FROM model WHERE bandit = ?"
                    found[name] = connection.execute(read, (bandit,)).fetchone()
        return found

    def modes(self, bandits: Sequence[str]) -> dict[str, ModeChanged]:
        """Return the last event that changed the mode of each bandit, where there is one."""
        found = {name: self._log(name).mode() for name in bandits}
        return {name: one for name, one in found.items() if one is not None}

    def glance(self, bandits: Sequence[str]) -> dict[str, Glance]:
        """Return how each of these bandits stands, where its journal exists."""
        wanted, now = set(bandits), (self._clock or system_clock)()
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT name, bandit.number, partitions, coalesce(until, 0) FROM bandit "
                "LEFT JOIN leader ON leader.bandit = bandit.number"
            ).fetchall()
            found = {}
            for name, number, partitions, until in rows:
                if name in wanted:
                    first = [place_of(number, partition, 0) for partition in range(partitions)]
                    ends = (
                        connection.execute(
                            "SELECT max(place) FROM record WHERE place > ? AND place < ?",
                            (base, base + POSITIONS),
                        ).fetchone()[0]
                        for base in first
                    )
                    found[name] = Glance(tuple((end or 0) % POSITIONS for end in ends), until > now)
        return found

    def renew_leases(self, held: Mapping[str, str], seconds: float) -> dict[str, int]:
        """Renew leases in one commit; see :meth:`StoreSession.renew_leases`."""
        renew = (
            "UPDATE leader SET until = ? WHERE holder = ? "
            "AND bandit = (SELECT number FROM bandit WHERE name = ?) RETURNING epoch"
        )
        found = {}
        with self._file.writing() as connection:
            until = (self._clock or system_clock)() + round(seconds * 1e6)
            for name, holder in held.items():
                for (epoch,) in connection.execute(renew, (until, holder, name)).fetchall():
                    found[name] = epoch
        return found

    def close(self) -> None:
        """Close the file; any later call of what was opened raises :class:`JournalClosed`."""
        self._file.close()

    def _log(self, name: str) -> SQLiteJournal:
        if name not in self._looked:
            self._looked[name] = self.journal(name)
        return self._looked[name]
