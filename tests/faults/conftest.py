"""Fixtures of tests with real kills: a server to kill, and a service on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.gates import Between, between
from tests.faults.town import Cluster
from tests.integration.postgres_server import PostgresServer, require_programs


@pytest.fixture
def doomed() -> Iterator[PostgresServer]:
    """A separate PostgreSQL with tables; skips if PostgreSQL is missing, except in CI."""
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
    """The connection to the database, which can be cut."""
    gateway = between(doomed.port, tmp_path, full)
    yield gateway
    gateway.close()


@pytest.fixture
def town(doomed: PostgresServer, way: Between, tmp_path: Path) -> Iterator[Cluster]:
    """A running service that has learned a little."""
    cluster = Cluster(doomed, tmp_path, port=way.port)
    try:
        cluster.wait()
        cluster.decider.reward(cluster.decider.decide())
        yield cluster
    finally:
        cluster.close()
