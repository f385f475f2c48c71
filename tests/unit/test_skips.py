"""In CI a skipped test fails on Linux, and is allowed on systems that cannot run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPS = """
import sys, pytest

def test_skips():
    sys.platform = {platform!r}
    pytest.skip({reason!r})
"""


@pytest.mark.parametrize(
    ("ci", "platform", "reason", "code"),
    [
        ("true", "linux", "there is no fork here", 1),
        ("true", "linux", "full size only", 0),
        ("true", "darwin", "there is no fork here", 0),
        ("true", "win32", "there is no fork here", 0),
        ("", "linux", "no PostgreSQL found", 0),
    ],
)
def test_a_skip_fails_where_nothing_may_be_missing(
    tmp_path: Path, ci: str, platform: str, reason: str, code: int
) -> None:
    """Except for what runs at full size only; in CI skips are listed on every system."""
    test = tmp_path / "test_it.py"
    (tmp_path / "pytest.ini").write_text("[pytest]", encoding="utf-8")
    test.write_text(SKIPS.format(platform=platform, reason=reason), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", str(test)],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == code, process.stdout + process.stderr
    assert ("skipped in CI" in process.stdout) == (ci != "" and reason != "full size only")
