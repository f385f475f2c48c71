"""The file of a journal is removed or replaced while it is open."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Void
from belated.exceptions import JournalReplaced
from belated.journals import SQLiteJournal
from belated.service import Definition, Service
from tests.integration.serving import served
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(os.name != "posix", reason="open files cannot be removed")

OFFERS = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit())


def remove(path: Path) -> None:
    """Remove the file with its companion files."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replace(path: Path) -> None:
    """Replace the file by a backup."""
    backup = path.with_name("backup")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as copy:
        source.backup(copy)
    remove(path)
    backup.rename(path)


def remove_log(path: Path) -> None:
    """Remove only the write-ahead log."""
    path.with_name(f"{path.name}-wal").unlink()


@pytest.mark.parametrize("harm", [remove, replace, remove_log])
def test_a_journal_whose_file_was_replaced_acknowledges_nothing(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    """Neither appends nor reads use a file that can no longer be opened by others."""
    path = tmp_path / "offers.db"
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Void("before", 1)])
        harm(path)
        with pytest.raises(JournalReplaced, match="removed or replaced while it was open"):
            journal.append([Void("after", 1)])
        with pytest.raises(JournalReplaced):
            journal.read(0, 0, 10)


def test_a_file_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    """It is the same file, whatever its name was meanwhile."""
    path = tmp_path / "offers.db"
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Void("before", 1)])
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(JournalReplaced):
            journal.append([Void("refused", 1)])
        (tmp_path / "elsewhere").rename(path)
        assert journal.append([Void("after", 1)]) == [2]


@pytest.mark.parametrize("harm", [remove, replace])
def test_a_service_whose_file_was_replaced_acknowledges_nothing_and_says_so(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    """503 for decisions and rewards, and for /readyz."""
    path, body = tmp_path / "offers.db", {"rows": [[1.0, 0.0]], "id": "before"}
    with (
        served(Service([OFFERS], f"sqlite:///{path}", learn=True)) as serving,
        httpx.Client(base_url=serving.url, timeout=30) as http,
    ):
        assert http.post("/v1/offers/decisions", json=body).status_code == 201
        eventually(lambda: http.get("/readyz").status_code == 200)
        harm(path)
        response = http.post("/v1/offers/decisions", json={**body, "id": "after"})
        assert response.status_code == 503
        assert http.put("/v1/offers/decisions/before/reward", json={"value": 1}).status_code == 503
        eventually(lambda: http.get("/readyz").json()["status"] == "journal replaced")
        assert http.get("/readyz").status_code == 503
