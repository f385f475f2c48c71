"""Every test is run with each client."""

from __future__ import annotations

import pytest

from belated.client import AsyncClient, Client
from tests.unit.client.mock import Mock


@pytest.fixture(autouse=True, params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Every test is run with each client."""
    monkeypatch.setattr(Mock, "kind", request.param)
    found: type = request.param
    return found
