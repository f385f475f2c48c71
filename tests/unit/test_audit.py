"""The audit of the pins: it fails for a known vulnerability, and says where it knows nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / ".ci" / "audit"
FINE: dict[str, Any] = {"name": "fine", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "other", "skip_reason": "not found: other (3)"}
FLAWED = {
    "name": "flawed",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}],
}


def audit(folder: Path, prints: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the audit, if pip-audit prints this."""
    (folder / "printed").write_text(prints, encoding="utf-8")
    program = folder / "pip-audit"
    program.write_text(f"#!/bin/sh\ncat '{folder}/printed'\necho 'no network' >&2\nexit 1\n")
    program.chmod(0o755)
    process = subprocess.run(
        [sys.executable, AUDIT, *arguments],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout


@pytest.mark.parametrize(
    ("packages", "usual", "strict", "says"),
    [
        ([FINE], 0, 0, "1 packages of requirements/dev.txt audited, 0 known"),
        ([FINE, FLAWED], 1, 1, "flawed 2.0: PYSEC-1, fixed in 2.1"),
        ([FLAWED, UNKNOWN], 1, 1, "1 known"),
        ([FINE, UNKNOWN], 0, 1, "1 not audited; the first because: not found: other (3)"),
        (None, 0, 1, "nothing was audited: pip-audit failed with 'no network'"),
    ],
)
def test_it_fails_for_what_is_known(
    tmp_path: Path, packages: list[dict[str, Any]] | None, usual: int, strict: int, says: str
) -> None:
    """And for what is not known only if it is asked to be strict."""
    prints = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    code, output = audit(tmp_path, prints)
    assert (code, says in output) == (usual, True)
    assert audit(tmp_path, prints, "--strict")[0] == strict
