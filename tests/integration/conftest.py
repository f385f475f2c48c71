"""Stores for the tests: a SQLite file, and a real PostgreSQL that is started once."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pytest

from belated.journals import Store, open_store
from tests.integration.kafka_server import KafkaCluster, require_jars
from tests.integration.postgres_server import PostgresServer, StartPostgres, require_programs

if TYPE_CHECKING:
    from belated.journals import KafkaJournal


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read certificates once, because each HTTP client would take long to read them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session")
def start_postgres() -> StartPostgres:
    """Start a server with these settings; skip if PostgreSQL is missing, except in CI."""
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
    """The address of the shared server."""
    return postgres.dsn


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """The broker that the tests share; skips if Kafka is missing, except in CI."""
    require_jars()
    cluster = KafkaCluster()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def opened(kafka: KafkaCluster, dsn: str, bandit: str) -> Iterator[KafkaJournal]:
    """A Kafka journal of four partitions, stamped by the broker."""
    from tests.integration.kafka_journals import open_kafka

    with open_kafka(kafka, dsn, bandit, partitions=4) as journal:
        yield journal


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store: tests with this fixture run on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('store')}/belated.db"
    dsn: str = request.getfixturevalue("dsn")
    return dsn


@pytest.fixture(scope="session")
def store(address: str) -> Store:
    """The store at this address."""
    return open_store(address)


@pytest.fixture(params=["postgresql"])
def own_server(start_postgres: StartPostgres) -> Iterator[PostgresServer]:
    """A server to kill; SQLite has none, so tests with this fixture use PostgreSQL only."""
    server = start_postgres()
    try:
        open_store(server.dsn).create_tables()
        yield server
    finally:
        server.stop()


_numbers = count()


@pytest.fixture
def bandit() -> str:
    """A name that no other test uses."""
    return f"bandit {next(_numbers)}"
