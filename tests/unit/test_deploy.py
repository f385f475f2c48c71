"""What stands in deploy/ fits together, as far as can be seen without a container engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from belated.service.operating.config import Config, parse_config

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def config() -> Config:
    """What compose.yaml serves."""
    text = (DEPLOY / "belated.toml").read_text(encoding="utf-8")
    return parse_config(text, environment={"DATABASE_URL": "postgresql://database/belated"})


@pytest.fixture
def compose() -> dict[str, Any]:
    """All of it."""
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return document


def test_the_spool_of_the_service_is_a_volume(config: Config, compose: dict[str, Any]) -> None:
    """Else what waits there would go with its container."""
    assert config.server.spool is not None
    mounted = dict(one.split(":")[1::-1] for one in compose["services"]["service"]["volumes"])
    assert mounted[str(config.server.spool.path)] in compose["volumes"]
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert f"install -d -o belated {config.server.spool.path}\n" in dockerfile


def test_every_process_reads_the_same_file(config: Config, compose: dict[str, Any]) -> None:
    """A service that learned too would be one learner more than is meant."""
    assert not config.server.learn
    for name in ("service", "learner"):
        assert "./belated.toml:/etc/belated/belated.toml:ro" in compose["services"][name]["volumes"]
        assert compose["services"][name]["command"][1] == "belated.toml"


def test_the_image_has_compiled_kernels() -> None:
    """Compiled by the user who runs them, for any processor: else each container compiles anew."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    steps = ("NUMBA_CACHE_DIR=", "NUMBA_CPU_NAME=generic", "USER belated", "RUN belated warm")
    places = [dockerfile.index(step) for step in steps]
    assert places == sorted(places)
