"""The page that says which test shows what: every test on it exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "promises.md"
#: By the number of a fault, the tests that it names.
FAULTS = {
    int(number): re.findall(r"`(tests/[^`]+)`", text)
    for number, text in re.findall(
        r"^\| (\d+) \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
}


def test_no_number_is_missing() -> None:
    """Each with its number."""
    assert list(FAULTS) == list(range(1, 16))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_tests_that_exist(fault: int) -> None:
    """At least one; with the class, where it is in one."""
    assert FAULTS[fault]
    for name in FAULTS[fault]:
        path, *parts = name.split("::")
        target: object = import_module(path.removesuffix(".py").replace("/", "."))
        for part in parts:
            assert hasattr(target, part), name  # also where a class has it from a contract
            target = getattr(target, part)
        assert parts[-1].startswith("test_")
