"""The cost of a record does not depend on earlier records under its id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "contested.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc/self/statm")
def test_many_events_under_one_id_cost_as_much_as_distinct_decisions(full: bool) -> None:
    """Time and memory are compared; with few events the ratio is noisy, but far below 3."""
    events, bound = ("100000", "2") if full else ("5000", "3")
    command = [sys.executable, str(SCRIPT), "--events", events, "--bound", bound]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"\n{process.stdout}")
    assert process.returncode == 0, process.stdout + process.stderr
