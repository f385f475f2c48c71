"""Two new users, who have the installed wheel and the documentation, and no clone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.wheels import ROOT, run

#: Of each: the extras that the pages name, and the pages.
WALKS = {
    "web engineer": (
        ("service", "client"),
        ["howto/client.md", "howto/issues.md", "howto/pause.md", "howto/control.md"],
    ),
    "data scientist": (
        ("experiments", "archive"),
        [
            "tutorial/newsletters.md",
            "tutorial/plan.md",
            "howto/evaluate.md",
            "howto/evaluate-log.md",
            "howto/simulate.md",
        ],
    ),
}


@pytest.mark.parametrize(
    ("extras", "page"), [(extras, page) for extras, pages in WALKS.values() for page in pages]
)
def test_every_block_of_a_page_runs(
    extras: tuple[str, ...], page: str, install: Callable[..., Path]
) -> None:
    """With the extras that the page names and nothing else."""
    script = ROOT / "tests" / "wheel_smoke.py"
    output = run(install(*extras) / "python", "-W", "error", script, f"docs/{page}")
    assert "Python blocks run" in output
