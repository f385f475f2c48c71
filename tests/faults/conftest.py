"""What the tests with real kills share: a server to be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.postgres_server import PostgresServer, require_programs


@pytest.fixture
def doomed() -> Iterator[PostgresServer]:
    """A PostgreSQL of one's own, with the tables made; skips where there is none, but not in CI."""
    from belated.journals import PostgresJournal

    require_programs()
    server = PostgresServer()
    try:
        PostgresJournal.create_tables(server.dsn)
        yield server
    finally:
        server.stop()
