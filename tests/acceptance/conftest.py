"""The installed wheel, for all acceptance tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.acceptance.wheels import build_wheel, install_wheel


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function from extras to the programs of an environment with the wheel and these."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(folder)

    @cache
    def installed(*extras: str) -> Path:
        return install_wheel(wheel, extras, folder / "-".join(extras))

    return installed
