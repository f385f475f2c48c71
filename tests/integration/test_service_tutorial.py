"""The tutorial of a service on PostgreSQL does what it says, with a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.serving import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "service.md"
#: Seconds for which the shop is open here; a minute in the tutorial.
SECONDS = 12


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_every_command_of_the_tutorial_works(dsn: str, tmp_path: Path) -> None:
    """One after the other, in one shell; the database is one that is there."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    script = "\n".join(block for block in blocks if "docker run" not in block)
    assert script.count("< 60:") == 1
    script = script.replace("< 60:", f"< {SECONDS}:")
    assert script.count("interval: 5s") == 2
    script = script.replace("interval: 5s", "interval: 1s")
    for port in ("8080", "9101", "9090"):
        assert script.count(port) >= 2
        script = script.replace(port, str(free_port()))
    # Bash loses a signal for a job that it has not begun to run; a reader is not that quick.
    assert script.count("kill $decider") == 1
    begun = "until grep --quiet '\"learning\"' learner.log; do sleep 0.1; done"
    script = script.replace("kill $decider", f"{begun}\nkill $decider")
    shutil.copy(ROOT / "deploy" / "prometheus" / "alerts.yml", tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-e", "-c", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"],
        cwd=tmp_path,
        env=os.environ | {"DATABASE_URL": dsn, "PATH": path},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    told = ended.stdout + ended.stderr
    assert ended.returncode == 0, told
    rate, pending, delay, alerts = (
        json.loads(line)["data"]["result"] for line in told.splitlines() if '"resultType"' in line
    )
    assert float(rate[0]["value"][1]) > 1.0
    assert float(pending[0]["value"][1]) > 50.0
    assert 0.0 < float(delay[0]["value"][1]) < SECONDS
    assert alerts == []
    assert '"propensity"' in told
    assert "clicks are still to come" in told
