"""The folder store of the how-to "Write a store" passes the contracts, and serves."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.service import Definition, Service
from benchmarks.lines_of_code import count
from tests.integration.serving import served
from tests.shelf_contract import ShelfContract
from tests.waiting import eventually

if sys.platform == "win32":
    pytest.skip("it locks files as POSIX does", allow_module_level=True)

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "write-a-store.md"
BLOCKS = re.findall(r"```python\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.S)
#: Cells, log and store; then the contracts, and an example.
*STORE, CONTRACTS, _ = BLOCKS

page: Any = ModuleType("write_a_store")
page.tempfile = tempfile
for block in (*STORE, CONTRACTS):
    exec(compile(block, "write_a_store", "exec"), vars(page))


class TestFolderCells(page.TestFolderCells):  # type: ignore[misc]
    """The contract of cells."""


class TestFolderJournal(page.TestFolderJournal, ShelfContract):  # type: ignore[misc]
    """The contract of journals, and what is built on cells."""


class TestFolderStore(page.TestFolderStore):  # type: ignore[misc]
    """The contract of stores."""


def test_it_is_short() -> None:
    """A store takes at most 150 lines of code."""
    assert count(PurePosixPath(HOWTO), "".join(STORE))["code"] <= 150


def test_a_transaction_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    """The next process completes the transaction in the pending file."""
    cells = page.FolderCells(tmp_path)
    cells.transact({}, {"one": b"1", "two": b"2"})
    puts = {"one": (2, 5, b"11"), "three": (1, 5, b"3")}
    page.replace_file(tmp_path / "pending", page.encode_all((puts, ["two"])))
    assert {name: cell.value for name, cell in cells.scan("").items()} == {
        "one": b"11",
        "three": b"3",
    }


def test_it_serves_a_bandit_over_http(tmp_path: Path) -> None:
    """Decisions, rewards, a learner with a lease, and its model."""
    bandit = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit())
    app = Service([bandit], page.FolderStore(tmp_path), learn=True)
    with (
        served(app) as serving,
        httpx.Client(base_url=serving.url) as web,
        Client(serving.url, bandit="offers") as client,
    ):
        for n in range(5):
            decision = client.decide(rows=[[1.0, 0.0], [0.0, 1.0]], id=f"order {n}")
            assert client.decide(rows=[[1.0, 0.0], [0.0, 1.0]], id=f"order {n}") == decision
            client.observe(decision.id, float(n % 2))
        eventually(lambda: client.state().observations == 5)
        assert web.get("/readyz").status_code == 200
    with page.FolderStore(tmp_path).journal("offers") as journal:
        assert len(journal.read(0, 0, 100)) >= 10
