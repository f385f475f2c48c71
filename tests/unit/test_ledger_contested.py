"""A record costs the same whatever came before it under its id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "contested.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_a_crowd_under_one_id_costs_what_distinct_decisions_cost(full: bool) -> None:
    """In time and memory. Small crowds are noisy; what grows with them would be far beyond 3."""
    events, bound = ("100000", "2") if full else ("5000", "3")
    command = [sys.executable, str(SCRIPT), "--events", events, "--bound", bound]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stdout + done.stderr
