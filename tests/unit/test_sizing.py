"""The sizing page has the tables that its script prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_tables_of_the_script() -> None:
    """Number for number."""
    script = [sys.executable, str(ROOT / "benchmarks" / "sizing.py")]
    output = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "howto" / "sizing.md").read_text(encoding="utf-8")
    for part in output.strip().split("\n\n"):
        assert part in page
