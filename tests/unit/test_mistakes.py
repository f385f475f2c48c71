"""Mistakes of a first hour are named, with their value and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.mistakes import MISTAKES, ROWS, bandit, said_of, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mistakes.md"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    """By an error of the library, in one line that shows what was given or what to pass."""
    message = said_of(mistake)
    assert 20 < len(message) < 260
    assert "\n" not in message
    assert any(sign in message for sign in (":", ";"))


def test_the_page_of_the_docs_says_the_same() -> None:
    """Write it anew with ``python -m tests.unit.mistakes > docs/reference/mistakes.md``."""
    assert len(MISTAKES) >= 40
    assert PAGE.read_text(encoding="utf-8") == table() + "\n"


def test_decision_is_accepted_in_place_of_its_id() -> None:
    """Wherever an id is meant."""
    instance = bandit()
    first, second, third = (instance.decide(rows=ROWS) for _ in range(3))
    assert instance.observe(first, 1.0).id == first.id
    assert instance.void(second).id == second.id
    assert instance.activate(third).id == third.id
    assert instance.entry(first).state == "rewarded"
    assert instance.observe_many([(third, 0.0)])[0].status == "rewarded"
