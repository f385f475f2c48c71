"""A database of PostgreSQL as a store: journals, leases and keys in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from belated.journals import (
    PostgresCoordinationStore,
    PostgresJournal,
    PostgresKeyStore,
    PostgresStore,
    open_journal,
)
from belated.journals.postgres.cells import PostgresCells
from belated.testing import (
    CellsContract,
    CoordinationContract,
    KeyStoreContract,
    ManualClock,
    StoreContract,
)

_numbers = count()


class TestPostgresStore(StoreContract):
    """The contract, on databases of a real server."""

    @pytest.fixture(autouse=True)
    def _database(self, dsn: str) -> Iterator[None]:
        name = f"store_{next(_numbers)}"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            self.dsn = f"{dsn.rpartition('/')[0]}/{name}"
            yield
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def make_store(self) -> PostgresStore:
        """In a database of its own."""
        return PostgresStore(self.dsn)


class TestPostgresCells(CellsContract):
    """The contract, on a real server."""

    @pytest.fixture(autouse=True)
    def _place(self, dsn: str) -> None:
        self.dsn = dsn

    def open_cells(self, clock: ManualClock) -> PostgresCells:
        """Where other tests have cells too."""
        return PostgresCells(self.dsn)

    def reopen(self, cells: PostgresCells, clock: ManualClock) -> PostgresCells:
        """A second connection."""
        return PostgresCells(self.dsn)


class TestPostgresCoordination(CoordinationContract):
    """The contract, on a real server, whose clock is moved by moving its leases."""

    @pytest.fixture(autouse=True)
    def _names(self, dsn: str, bandit: str) -> None:
        self.dsn, self.bandit = dsn, bandit

    def open_coordination(self, clock: ManualClock) -> PostgresCoordinationStore:
        """Of a bandit that is new."""
        store = PostgresStore(self.dsn)
        store.journal(self.bandit, partitions=4).close()
        return store.coordination(self.bandit)

    def open_journal(self, store: object, clock: ManualClock) -> PostgresJournal:
        """A connection of its own."""
        return PostgresJournal(self.dsn, bandit=self.bandit)

    def reopen(self, store: object, clock: ManualClock) -> PostgresCoordinationStore:
        """A second connection."""
        return PostgresCoordinationStore(self.dsn, bandit=self.bandit)

    def pass_time(self, store: object, clock: ManualClock, seconds: float) -> None:
        """Leases and sessions end earlier by as much."""
        assert isinstance(store, PostgresCoordinationStore)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for table in ("leader", "worker"):
                connection.execute(
                    f"UPDATE belated.{table} SET until = until - %s * interval '1 second' "
                    "WHERE bandit = %s",
                    [seconds, store._number],
                )


class TestPostgresKeys(KeyStoreContract):
    """The contract, on a real server."""

    @pytest.fixture(autouse=True)
    def _place(self, dsn: str) -> None:
        self.dsn = dsn

    def open_keys(self, clock: ManualClock) -> PostgresKeyStore:
        """Where other tests have keys too."""
        return PostgresStore(self.dsn).keys()

    def reopen(self, store: object, clock: ManualClock) -> PostgresKeyStore:
        """A second connection."""
        return PostgresKeyStore(self.dsn)


def test_parameters_of_the_address_reach_the_server(dsn: str, bandit: str) -> None:
    """All but the bandit."""
    name = bandit.replace(" ", "%20")
    address = f"{dsn}?application_name=the%20shop&bandit={name}"
    with open_journal(address, partitions=2) as journal:
        assert (journal.bandit, journal.partitions) == (bandit, 2)
        with psycopg.connect(dsn) as connection:
            names = connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()
    assert ("the shop",) in names
