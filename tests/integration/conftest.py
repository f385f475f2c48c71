"""A real PostgreSQL for the tests that need one: started once, with the tables made."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.postgres_server import PostgresServer

    StartPostgres = Callable[..., PostgresServer]


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def start_postgres() -> StartPostgres:
    """Starts a server with the settings given; skips where there is none, but not in CI."""
    servers = _loaded("postgres_server")
    if servers.find_programs() is None and not os.environ.get("CI"):
        pytest.skip("no PostgreSQL found: `apt-get install postgresql`, or set POSTGRES_BIN")
    start: StartPostgres = servers.PostgresServer
    return start


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
