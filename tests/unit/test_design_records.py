"""The design records have a status and a date, and name each other in both directions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = {page.name: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("0*.md"))}
LINK = r"\[([^\]]+)\]\(([^)]+)\)( \(.+\))?$"


def linked(name: str, relation: str) -> set[tuple[str, str]]:
    """Return the files and subjects in the lines of a relation, such as "Supersedes in part"."""
    lines = re.findall(rf"^- \*\*{relation}:\*\* {LINK}", RECORDS[name], re.MULTILINE)
    for title, file, _ in lines:
        assert RECORDS[file].startswith(f"# {title}\n"), f"{name} cites an old title of {file}"
    return {(file, subject) for _, file, subject in lines}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_status_and_date(name: str) -> None:
    """In this order, below a title that begins with its number."""
    status, date = r"- \*\*Status:\*\* accepted\n", r"- \*\*Date:\*\* \d{4}-\d\d-\d\d\n"
    head = rf"# {int(name[:4])}\. .+\n\n{status}{date}"
    assert re.match(head, RECORDS[name])
    assert f"\n{name.removesuffix('.md')}\n" in (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RECORDS)
def test_relations_are_named_in_both_records(name: str) -> None:
    """With the same subject, and only an earlier record is superseded."""
    for successor, subject in linked(name, "Superseded in part by"):
        assert successor > name
        assert (name, subject) in linked(successor, "Supersedes in part")
    for earlier, subject in linked(name, "Supersedes in part"):
        assert (name, subject) in linked(earlier, "Superseded in part by")
