"""A service with keys and tokens that is sent bad input, and must not repeat it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from belated.journals import Store
from belated.service import Service
from belated.service.access.tokens import TokenSecrets
from tests.integration.asking import SECRET, Asking, nothing_told
from tests.integration.bad_inputs.bandits import COIN, DEFINITIONS, FREE, LIMIT
from tests.integration.keyrings import Made, known
from tests.integration.serving import Serving, served


@pytest.fixture(scope="package")
def app(store: Store) -> Service:
    """It learns too."""
    keys = TokenSecrets({"k1": bytes(range(32))})
    return Service(
        DEFINITIONS, store, learn=True, max_body_bytes=LIMIT, auth="keys", token_keys=keys
    )


@pytest.fixture(scope="package")
def serving(app: Service) -> Iterator[Serving]:
    """It runs."""
    with served(app) as found:
        yield found


@pytest.fixture(scope="package")
def key(store: Store, serving: Serving) -> Made:
    """One that may do all."""
    return known(store, serving.url)


@pytest.fixture(scope="package")
def http(serving: Serving, key: Made) -> Iterator[httpx.Client]:
    """Requests with that key, and with more that is nobody's business."""
    headers = {"content-type": "application/json"}
    headers |= {"user-agent": SECRET, "x-request-id": SECRET, "cookie": f"{SECRET}={SECRET}"}
    with httpx.Client(base_url=serving.url, headers=headers | key.header, timeout=30) as found:
        yield found


@pytest.fixture(params=[COIN, FREE])
def asking(
    request: pytest.FixtureRequest, http: httpx.Client, key: Made, store: Store
) -> Iterator[Asking]:
    """Each of two bandits; what was sent never stands in a log or a metric."""
    bandit: str = request.param
    with nothing_told(http, SECRET, key.key), store.journal(bandit) as journal:
        yield Asking(http, journal, bandit.replace(" ", "%20"))
