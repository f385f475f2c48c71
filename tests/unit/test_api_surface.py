"""The public interface is the one that was last reviewed."""

from __future__ import annotations

import pytest

pytest.importorskip("httptools")

from tests.golden.api import FILE, surface


def test_public_interface_matches_the_golden_file() -> None:
    """A change to it is deliberate: ``python -m tests.golden.api`` writes the file again."""
    expected = FILE.read_text(encoding="utf-8").splitlines()
    assert surface().splitlines() == expected, "run python -m tests.golden.api, and see git diff"
