"""The programs in ``examples`` run, and show what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = """
import nbclient, nbformat, sys
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or output.get("data", {}).get("text/plain"))
"""


def run(*arguments: str | Path) -> str:
    """What a program prints."""
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_frame_of_customers(full: bool) -> None:
    """From a third that get the best action to most of them; everybody is settled."""
    weeks, customers = (12, 1_000) if full else (6, 300)
    output = run(
        "-W", "error", EXAMPLES / "pandas_batch.py", "--weeks", str(weeks), "--customers",
        str(customers),
    )  # fmt: skip
    shares = [int(share) for share in re.findall(r"best action for (\d+)%", output)]
    assert len(shares) == weeks
    assert shares[-1] > max(70, shares[0])
    bought, not_bought = map(int, re.findall(r"(\d+) bought, (\d+) did not", output)[-1])
    assert bought + not_bought == weeks * customers


def test_the_notebook() -> None:
    """Every cell, in a kernel of its own."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    shares = [
        int(share)
        for share in re.findall(r"(\d+)% got", run("-c", NOTEBOOK, EXAMPLES / "notebook.ipynb"))
    ]
    assert len(shares) == 4
    assert shares[-1] > 60
