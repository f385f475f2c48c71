"""What the tests with real kills share: a server to be killed, and a service on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.gates import Between, between
from tests.faults.town import Cluster
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


@pytest.fixture
def way(doomed: PostgresServer, tmp_path: Path, full: bool) -> Iterator[Between]:
    """To the database."""
    found = between(doomed.port, tmp_path, full)
    yield found
    found.close()


@pytest.fixture
def town(doomed: PostgresServer, way: Between, tmp_path: Path) -> Iterator[Cluster]:
    """It serves, and has learned a little."""
    found = Cluster(doomed, tmp_path, port=way.port)
    try:
        found.wait()
        found.decider.reward(found.decider.decide())
        yield found
    finally:
        found.close()
