"""A service to connect to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from belated.journals import Store, open_store
from belated.service import Service
from tests.integration.connections.offers import LIMIT, OFFERS, SHOP
from tests.integration.serving import Serving, served


@pytest.fixture(scope="module")
def app(store: Store) -> Service:
    """As `belated serve` has it."""
    return Service([OFFERS], store, max_body_bytes=LIMIT, cors=[SHOP])


@pytest.fixture(scope="module")
def serving(app: Service) -> Iterator[Serving]:
    """It runs."""
    with served(app) as service:
        yield service


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store for what does not depend on it."""
    return open_store(f"sqlite:///{tmp_path_factory.mktemp('connections')}/belated.db")
