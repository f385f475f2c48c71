"""What the tests with real kills share: the harness, and servers to be killed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.postgres_server import PostgresServer


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """``harness.py``."""
    return _loaded(Path(__file__).with_name("harness.py"))


@pytest.fixture(scope="session")
def gates() -> ModuleType:
    """``gates.py``."""
    return _loaded(Path(__file__).with_name("gates.py"))


@pytest.fixture
def doomed() -> Iterator[PostgresServer]:
    """A PostgreSQL of one's own, with the tables made; skips where there is none, but not in CI."""
    from belated.journals import PostgresJournal

    place = Path(__file__).parents[1] / "integration" / "postgres_server.py"
    servers = _loaded(place)
    if servers.find_programs() is None and not os.environ.get("CI"):
        pytest.skip("no PostgreSQL found: `apt-get install postgresql`, or set POSTGRES_BIN")
    server: PostgresServer = servers.PostgresServer()
    try:
        PostgresJournal.create_tables(server.dsn)
        yield server
    finally:
        server.stop()
