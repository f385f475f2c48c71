"""Attacks alongside honest load: every honest request is answered, and memory stays bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "attacks.py"


def test_attacks_do_no_harm(request: pytest.FixtureRequest) -> None:
    """Each attack runs for seconds, or a minute at full size; the script prints memory and p99."""
    seconds = "60" if request.config.getoption("--full") else "2"
    command = [sys.executable, str(SCRIPT), "--seconds", seconds]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1_200)
    print(process.stdout)
    assert process.returncode == 0, process.stdout + process.stderr
