"""A service that learns, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from belated.client import Client
from belated.journals import Store
from belated.service import Service
from tests.integration.http.bandits import JSON, definitions
from tests.integration.serving import Serving, served


@pytest.fixture(scope="module")
def serving(store: Store) -> Iterator[Serving]:
    """A service that learns too."""
    with served(Service(definitions(), store, learn=True, max_body_bytes=100_000)) as found:
        yield found


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    """Plain requests."""
    with httpx.Client(base_url=serving.url, headers=JSON) as found:
        yield found


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    """The verbs."""
    with Client(serving.url, bandit="rows") as found:
        yield found
