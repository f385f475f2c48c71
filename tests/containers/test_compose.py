"""What compose.yaml starts, started by hand with the image: its commands, on loopback.

Debian's PostgreSQL and Prometheus stand for the images that compose.yaml names.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.containers.podman import Container, ask, ask_until_answered, running
from tests.integration.postgres_server import PostgresServer
from tests.integration.prometheus_server import DEPLOY, Prometheus
from tests.ports import free_port
from tests.waiting import eventually

yaml = pytest.importorskip("yaml")

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
ROWS = [[1.0, 0.0], [0.0, 1.0]]


def start(stack: ExitStack, name: str, dsn: str, port: int = 0) -> Container:
    """A service of the file: nothing is changed but its addresses."""
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    command = [one.replace("0.0.0.0", "127.0.0.1") for one in service["command"]]
    command = [one.replace(":9090", f":{port}") for one in command]
    if name == "service":
        command += ["--port", str(port)]
    options = ["--env", f"DATABASE_URL={dsn}"]
    for volume in service["volumes"]:
        source, _, target = volume.partition(":")
        if source.startswith("./"):  # beside the file; another has a name, and is made
            source = str(DEPLOY / source)
        options += ["--volume", f"{source}:{target}" if "/" in source else target]
    return stack.enter_context(running(command, options))


def healthy(container: Container, name: str, port: int) -> None:
    """Run the health check of the file inside."""
    _, *check = COMPOSE["services"][name]["healthcheck"]["test"]
    container.run(*[one.replace(":9090", f":{port}") for one in check])


def scraping(ports: list[int], every: str) -> dict[str, Any]:
    """The file of Prometheus, with addresses in the place of names."""
    file = DEPLOY / "prometheus" / "prometheus.yml"
    config: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": every, "evaluation_interval": every}
    config["rule_files"] = [str(file.with_name(name)) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    assert {name for one in job.pop("dns_sd_configs") for name in one["names"]} == {
        "service",
        "learner",
    }
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    return config


@pytest.fixture
def stack() -> Any:
    """What is started is stopped in the reverse order."""
    with ExitStack() as stack:
        yield stack


def test_the_commands_of_compose(stack: ExitStack, tmp_path: Path, full: bool) -> None:
    """Tables, a service and two learners: it learns, no alert comes, and a learner may die."""
    database = PostgresServer()
    stack.callback(database.stop)
    assert start(stack, "tables", database.dsn).wait() == 0
    served, first, second = free_port(), free_port(), free_port()
    service = start(stack, "service", database.dsn, served)
    learners = [start(stack, "learner", database.dsn, port) for port in (first, second)]
    url = f"http://127.0.0.1:{served}"
    ask_until_answered(f"{url}/livez")
    for learner, port in zip(learners, (first, second), strict=True):
        ask_until_answered(f"http://127.0.0.1:{port}/metrics")
        healthy(learner, "learner", port)

    prometheus = Prometheus(tmp_path, scraping([served, first, second], "15s" if full else "1s"))
    with prometheus:
        eventually(lambda: set(prometheus.targets().values()) == {"up"}, seconds=60)
        came = set()
        end = time.monotonic() + (660 if full else 20)
        while time.monotonic() < end:
            decision = ask(f"{url}/v1/offers/decisions", {"rows": ROWS})
            ask(f"{url}/v1/offers/decisions/{decision['id']}/reward", {"value": 1.0})
            came |= prometheus.alerts()
            time.sleep(0.2)
        assert came == set(), "\n".join(one.log() for one in learners)
        assert len(prometheus.query("belated_learner_is_leader == 1")) == 1
        assert ask(f"{url}/v1/offers")["observations"] > 20

    for one in (service, *learners):
        assert one.stop() == 0
