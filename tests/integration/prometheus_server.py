"""A real Prometheus on loopback, with the alerts of deploy/, and the queries of the dashboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.ports import free_port
from tests.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"


def require_prometheus() -> None:
    """Skip the test if Prometheus is missing, except in CI."""
    if shutil.which("prometheus") is None and not os.environ.get("CI"):
        pytest.skip("no Prometheus found: `apt-get install prometheus`")


class Prometheus:
    """A Prometheus server, as a context manager.

    Args:
        folder: the folder of its data.
        config: the content of prometheus.yml.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.port = free_port()
        file = folder / "prometheus.yml"
        file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{self.port}"], stderr=log, stdout=log
            )

    def __enter__(self) -> Self:
        eventually(self._is_ready, seconds=60)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        try:
            return bool(urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5))
        except OSError:
            return False

    def _get(self, path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression."""
        series: list[dict[str, Any]] = self._get(f"query?query={quote(expression)}")["result"]
        return series

    def alerts(self, state: str = "firing") -> set[str]:
        """Return the names of the firing alerts, or of the pending ones."""
        alerts = self._get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == state}

    def firing(self) -> set[tuple[str, str]]:
        """Return the firing alerts, each with its bandit, or an empty text if it has none."""
        alerts = [alert for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("bandit", "")) for alert in alerts
        }

    def targets(self) -> dict[str, str]:
        """Return whether each process could be scraped: up, down or unknown."""
        targets = self._get("targets")["activeTargets"]
        return {target["scrapeUrl"]: target["health"] for target in targets}

    def wait(self, seconds: float) -> None:
        """Wait while the server runs."""
        time.sleep(seconds)
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")


def dashboard_queries(interval: str) -> dict[str, str]:
    """Return the queries of all panels, with an interval instead of Grafana's variable."""
    text = (DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8")
    return {
        f"{panel['title']}, {target['refId']}": target["expr"]
        .replace("$__rate_interval", interval)
        .replace("$bandit", ".*")
        for panel in json.loads(text)["panels"]
        for target in panel.get("targets", [])
    }


def fast_alerts(file: Path, factor: int, least: int) -> None:
    """Write the alerts with all durations divided, except for thresholds.

    Args:
        file: the file to write to.
        factor: by which ``for``, ranges and offsets are divided.
        least: minimum range in seconds, which must contain some scrapes.
    """
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

    def divide(found: re.Match[str], least: int) -> str:
        prefix, count, unit = found.groups()
        return f"{prefix}{max(least, int(count) * units[unit] // factor)}s"

    text = ALERTS.read_text(encoding="utf-8")
    text = re.sub(r"(for: )(\d+)([smhd])", lambda match: divide(match, 1), text)
    text = re.sub(r"(\[|offset )(\d+)([smhd])", lambda match: divide(match, least), text)
    file.write_text(text, encoding="utf-8")


def alert_names() -> set[str]:
    """Return the names of all alerts."""
    return set(re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8")))
