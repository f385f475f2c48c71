"""The tutorial of a service on PostgreSQL works as written, with a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "service.md"
#: Seconds for which the shop is open here; a minute in the tutorial.
SECONDS = 12


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_every_command_of_the_tutorial_works(dsn: str, tmp_path: Path) -> None:
    """In order, in one shell; the database already exists."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    script = "\n".join(block for block in blocks if "docker run" not in block)
    assert script.count("< 60:") == 1
    script = script.replace("< 60:", f"< {SECONDS}:")
    assert script.count("interval: 5s") == 2
    script = script.replace("interval: 5s", "interval: 1s")
    for port in ("8080", "9101", "9090"):
        assert script.count(port) >= 2
        script = script.replace(port, str(free_port()))
    shutil.copy(ROOT / "deploy" / "prometheus" / "alerts.yml", tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    output = tmp_path / "shell.log"
    with output.open("w") as file, (tmp_path / "commands.log").open("w") as commands:
        shell = subprocess.Popen(
            ["bash", "-ex", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"DATABASE_URL": dsn, "PATH": path},
            stdout=file,
            stderr=commands,
            start_new_session=True,  # with its jobs it is a group, which can be ended as one
        )
    try:
        code = shell.wait(300)
    except subprocess.TimeoutExpired:
        logs = (f"{log.name}:\n{log.read_text()}" for log in tmp_path.glob("*.log"))
        pytest.fail("\n".join(["it did not end", *logs]))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    text = output.read_text()
    assert code == 0, text + (tmp_path / "commands.log").read_text()
    rate, pending, delay, alerts = (
        json.loads(line)["data"]["result"] for line in text.splitlines() if '"resultType"' in line
    )
    assert float(rate[0]["value"][1]) > 1.0
    assert float(pending[0]["value"][1]) > 50.0
    assert 0.0 < float(delay[0]["value"][1]) < SECONDS
    assert alerts == []
    assert '"propensity"' in text
    assert "clicks are still pending" in text
