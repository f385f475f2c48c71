"""A PostgreSQL database as a store of journals, leases and keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from belated.journals import PostgresStore, open_journal
from belated.journals.postgres.cells import PostgresCells
from belated.testing import (
    CellsContract,
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
        """Create a store in a separate database."""
        return PostgresStore(self.dsn)


class TestPostgresCells(CellsContract):
    """The contract, on a real server."""

    @pytest.fixture(autouse=True)
    def _place(self, dsn: str) -> None:
        self.dsn = dsn

    def open_cells(self, clock: ManualClock) -> PostgresCells:
        """Open cells next to those of other tests."""
        return PostgresCells(self.dsn)

    def reopen(self, cells: PostgresCells, clock: ManualClock) -> PostgresCells:
        """Open them again over a second connection."""
        return PostgresCells(self.dsn)


def test_parameters_of_the_address_reach_the_server(dsn: str, bandit: str) -> None:
    """All parameters but the bandit."""
    name = bandit.replace(" ", "%20")
    address = f"{dsn}?application_name=the%20shop&bandit={name}"
    with open_journal(address, partitions=2) as journal:
        assert (journal.bandit, journal.partitions) == (bandit, 2)
        with psycopg.connect(dsn) as connection:
            names = connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()
    assert ("the shop",) in names
