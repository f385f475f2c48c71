"""A service that learns, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from belated.client import Client
from belated.journals import Store
from belated.service import Service
from tests.integration.http.bandits import JSON, definitions
from tests.integration.serving import mounted, served


@pytest.fixture(scope="module", params=["native", "mounted"])
def url(request: pytest.FixtureRequest, store: Store) -> Iterator[str]:
    """The address of a service that also learns: behind its own server, or mounted in FastAPI."""
    service = Service(definitions(), store, learn=True, max_body_bytes=100_000)
    if request.param == "native":
        with served(service) as serving:
            yield serving.url
    else:
        with mounted(service) as address:
            yield address


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    """Plain requests."""
    with httpx.Client(base_url=url, headers=JSON) as client:
        yield client


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """The verbs."""
    with Client(url, bandit="rows") as client:
        yield client
