"""A real PostgreSQL for the tests that need one: started once, with the tables made."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.integration.postgres_server import PostgresServer, StartPostgres, require_programs


@pytest.fixture(scope="session")
def start_postgres() -> StartPostgres:
    """Starts a server with the settings given; skips where there is none, but not in CI."""
    require_programs()
    return PostgresServer


@pytest.fixture(scope="session")
def postgres(start_postgres: StartPostgres) -> Iterator[PostgresServer]:
    """The server that the tests share."""
    from belated.journals import PostgresJournal

    server = start_postgres()
    try:
        PostgresJournal.create_tables(server.dsn)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def dsn(postgres: PostgresServer) -> str:
    """Where the shared server is."""
    return postgres.dsn


_numbers = count()


@pytest.fixture
def bandit() -> str:
    """A name that no other test uses."""
    return f"bandit {next(_numbers)}"
