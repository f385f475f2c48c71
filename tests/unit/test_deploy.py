"""What stands in deploy/ fits together, as far as can be seen without a container engine."""

from __future__ import annotations

import re
import tomllib
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
    mounted = dict(volume.split(":")[1::-1] for volume in compose["services"]["service"]["volumes"])
    assert mounted[str(config.server.spool.path)] in compose["volumes"]
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    line = next(line for line in dockerfile.splitlines() if "install -d -o belated" in line)
    assert line.endswith(f" {config.server.spool.path}")


def test_every_process_reads_the_same_file(config: Config, compose: dict[str, Any]) -> None:
    """A service that learned too would be one learner more than is meant."""
    assert not config.server.learn
    for name in ("service", "learner"):
        assert "./belated.toml:/etc/belated/belated.toml:ro" in compose["services"][name]["volumes"]
        assert compose["services"][name]["command"][1] == "belated.toml"


def test_the_image_has_compiled_kernels() -> None:
    """For any processor, by root: else each container compiles anew, or may change its own code."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    steps = ("NUMBA_CACHE_DIR=", "NUMBA_CPU_NAME=generic", "RUN belated warm", "USER 10001")
    places = [dockerfile.index(step) for step in steps]
    assert places == sorted(places)


def test_the_image_is_made_of_pins_with_hashes() -> None:
    """And of what .dockerignore lets through, which is no more than is copied."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip .*?install\s+(?:\\\n\s+)?(\S+ \S+)", dockerfile)
    assert len(installs) == 3
    assert all(
        install.startswith(("--require-hashes", "--no-deps --no-index")) for install in installs
    )
    ignored = (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name.partition("/")[0]
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
        for name in line.split()
    }
    assert copied == allowed


def test_no_container_can_write_to_its_root(compose: dict[str, Any]) -> None:
    """Nor has it rights that it does not need; each learner is scraped, and asked if it is well."""
    for name in ("tables", "service", "learner"):
        assert compose["services"][name]["read_only"] is True
        assert compose["services"][name]["cap_drop"] == ["ALL"]
    learner = compose["services"]["learner"]
    assert learner["command"][2:] == ["--metrics", "0.0.0.0:9090"]
    assert ":9090/" in learner["healthcheck"]["test"][-1]
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scraped["scrape_configs"]
    targets = {(target["names"][0], target["port"]) for target in job["dns_sd_configs"]}
    assert targets == {("service", 8080), ("learner", 9090)}


def test_the_chart_serves_what_it_says() -> None:
    """Its configuration can be read, learners are apart, and the spool is where its volume is."""
    chart = DEPLOY / "helm" / "belated"
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    address = {"DATABASE_URL": "postgresql://database/belated"}
    config = parse_config(values["config"], environment=address)
    assert not config.server.learn
    assert config.server.auth == "keys"
    assert config.server.spool is not None
    deciders = (chart / "templates" / "deciders.yaml").read_text(encoding="utf-8")
    assert f"mountPath: {config.server.spool.path}}}" in deciders
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    assert metadata["appVersion"] == project_version()


def test_the_citation_names_this_version() -> None:
    """CITATION.cff has the version of pyproject.toml."""
    citation = (DEPLOY.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project_version()}\n" in citation


def project_version() -> str:
    """Return the version in pyproject.toml."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = project["project"]["version"]
    return version
