"""``belated demo``: the default bandit leads, and terminal and report agree."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: A line of the table: day, visitors, purchases of both bandits, lead, both shares of the best.
LINE = re.compile(
    r"^ *(\d+) +([\d,]+) +([\d,]+) +([\d,]+) +[+-][\d,]+ +(\d+)% +(\d+)%$", re.MULTILINE
)


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the demo, with a folder for everything that it writes."""
    (folder / "temporary").mkdir()
    (folder / "home").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "belated", "demo"],
        cwd=folder / "home",
        env=os.environ | {"TMPDIR": str(folder / "temporary"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The output of the demo, and the page of its report."""
    folder = tmp_path_factory.mktemp("demo")
    process = start(folder)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert [*(folder / "temporary").iterdir()] == []
    (report,) = (folder / "home").iterdir()
    assert str(report) in output
    return output, report.read_text(encoding="utf-8")


def lines(printed: str) -> list[tuple[int, ...]]:
    """Return the table as whole numbers."""
    return [tuple(int(cell.replace(",", "")) for cell in row) for row in LINE.findall(printed)]


def data_of(page: str) -> dict[str, Any]:
    """Return the data of a report."""
    match = re.search(r'<script [^>]*id="belated-data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def test_the_default_bandit_leads_from_the_first_week(played: tuple[str, str]) -> None:
    """In purchases reported, and in the value of the offers: in every line."""
    table = lines(played[0])
    assert [row[0] for row in table] == [7, 14, 21, 28]
    for _, _, purchases, other_purchases, share, other_share in table:
        assert purchases > other_purchases
        assert share > other_share


def test_it_names_what_the_bandits_do(played: tuple[str, str]) -> None:
    """The first is as recommended; the other waits for the window and ignores pending decisions."""
    assert "ConversionsOnly('7d')" in played[0]
    assert "DefaultAfter('7d', learn='together')" in played[0]
    assert "works like most tools: ignores pending decisions" in played[0]


def test_terminal_and_report_show_the_same_totals(played: tuple[str, str]) -> None:
    """Visitors, purchases, and purchases still to come."""
    output, page = played
    data = data_of(page)
    _, visitors, purchases, *_ = lines(output)[-1]
    assert data["headline"]["decisions"] == visitors
    assert data["headline"]["rewards"] == purchases
    assert f"purchases reported  {purchases:,} of {visitors:,} visitors" in output
    total = data["forecast"]["total"]
    estimate = f"{total['n']:,.0f} ({total['lo']:,.0f} to {total['hi']:,.0f})"
    assert re.search(rf"still to come +{re.escape(estimate)}", output), output


def test_the_report_opens_without_an_alert(played: tuple[str, str]) -> None:
    """Predictions are right, and no reward is missing."""
    assert data_of(played[1])["attention"] == []


def test_the_report_counts_in_days_of_the_shop(played: tuple[str, str]) -> None:
    """Four weeks of it, however long the simulation takes."""
    data = data_of(played[1])
    day = 86_400_000
    assert data["period"] == "day"
    assert data["rewards"] | {"kind": "ConversionsOnly", "window_days": 7} == data["rewards"]
    assert 27.9 * day < data["as_of"] - data["from"] <= 28 * day
    assert 0.5 < data["delay"]["median"] < 3


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another signal there")
def test_it_leaves_nothing_behind_when_it_is_stopped(tmp_path: Path) -> None:
    """With Ctrl-C, while the shop is open."""
    # Tests that a shell has started in the background ignore it, and so would their children.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start(tmp_path)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("day  visitors"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in output
    assert [*(tmp_path / "temporary").iterdir(), *(tmp_path / "home").iterdir()] == []
