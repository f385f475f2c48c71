"""A SQLite file as a store: journals, leases and keys, and its permissions."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Explicit
from belated.core.events import Decision, Record, Reward
from belated.exceptions import CorruptEvent
from belated.fold.decision_history import read_history
from belated.journals import SQLiteJournal, SQLiteStore
from belated.journals.sqlite.cells import SQLiteCells
from belated.testing import (
    CellsContract,
    ManualClock,
    StoreContract,
)
from tests.integration.damage import meddle_file


class TestSQLiteStore(StoreContract):
    """The contract, on SQLite files."""

    @pytest.fixture(autouse=True)
    def _paths(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}.db" for n in count())

    def make_store(self) -> SQLiteStore:
        """Create a store in a new file."""
        return SQLiteStore(next(self.paths))


class TestSQLiteCells(CellsContract):
    """The contract, on a SQLite file."""

    @pytest.fixture(autouse=True)
    def _path(self, tmp_path: Path) -> None:
        self.path = tmp_path / "cells.db"

    def open_cells(self, clock: ManualClock) -> SQLiteCells:
        """Open cells in a new file."""
        return SQLiteCells(self.path, clock=clock)

    def reopen(self, cells: SQLiteCells, clock: ManualClock) -> SQLiteCells:
        """Open the file again over a second connection."""
        return SQLiteCells(self.path, clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a file that does not exist yet."""
    return tmp_path / "offers.db"


@pytest.mark.skipif(os.name != "posix", reason="there are no such rights here")
def test_only_the_owner_can_read_a_new_file(path: Path) -> None:
    """Nor its log, whatever the umask; also through a dangling link."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    umask_before = os.umask(0)
    try:
        with SQLiteJournal(link, bandit="offers") as journal:
            journal.append([Reward("a", 5, 1.0)])
            files = sorted(path.parent.glob("offers.db*"))
            assert len(files) == 3
            assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    finally:
        os.umask(umask_before)


@pytest.mark.skipif(os.name != "posix", reason="there are no such rights here")
def test_the_rights_of_a_file_that_is_there_stay(path: Path) -> None:
    """They may be intentional."""
    path.touch(0o640)
    path.chmod(0o640)
    SQLiteJournal(path, bandit="offers").close()
    assert path.stat().st_mode & 0o777 == 0o640


def test_looking_makes_no_file(path: Path) -> None:
    """Nor does a store before something is opened in it."""
    assert [check.name for check in SQLiteStore(path).describe()] == []
    SQLiteStore(path).create_tables()
    assert not path.exists()


def test_of_many_at_once_one_gets_the_lease(path: Path) -> None:
    """Each over a separate connection."""
    store = SQLiteStore(path)
    store.journal().close()
    epochs: dict[str, int | None] = {}

    def ask(holder: str) -> None:
        with closing(store.coordination()) as coordination:
            epochs[holder] = coordination.acquire_lease(holder, 60.0)

    threads = [threading.Thread(target=ask, args=(f"holder {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [holder for holder, epoch in epochs.items() if epoch is not None]
    with closing(store.coordination()) as coordination:
        leader = coordination.leader()
        assert leader is not None
        assert leader.holder == winner


def test_a_changed_mark_is_noticed(path: Path) -> None:
    """Otherwise a record would no longer be found by its id."""
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Reward("a", 5, 1.0), Reward("b", 6, 1.0)])
    meddle_file(path, "UPDATE record SET mark = mark + 1 WHERE place & 255 = 2")
    with SQLiteJournal(path, bandit="offers") as journal:
        assert len(journal.records_of(["a"])) == 1
        with pytest.raises(CorruptEvent, match="position 2"):
            journal.read(0, 0, 10)


def test_chosen_ids_share_no_mark(path: Path) -> None:
    """Whatever they begin with: marks have a keyed hash, whose key differs between files."""
    ids = [f"018bcfe5680070058{n:015x}" for n in range(2_000)]
    marks = []
    for file in (path, path.with_name("other.db")):
        with SQLiteJournal(file, bandit="offers") as journal:
            journal.append([Reward(id, 5, 1.0) for id in ids])
            assert len(journal.records_of(ids[:1])) == 1
        rows = meddle_file(file, "SELECT mark FROM record ORDER BY place")
        marks.append([mark for (mark,) in rows])
    assert min(len(set(sample)) for sample in marks) > 1_990  # 30 bits: a few may meet by chance
    assert marks[0] != marks[1]


def test_ids_that_share_a_mark_are_found_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ids of one look-up may have the same mark by chance."""
    monkeypatch.setattr("belated.journals.sqlite.log.mark_of_key", lambda key, keyed: 2)
    with SQLiteJournal(path, bandit="offers") as journal:
        rewards = [Reward(id, 5, 1.0) for id in ("a", "b", "c")]
        journal.append(rewards)
        assert [record.event for record in journal.records_of(["a", "b"])] == rewards[:2]


def test_a_decision_is_found_without_reading_its_rewards(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, also if it is decided again; a history has a bound."""
    x = np.ones(2, dtype=np.float32)
    decision = Decision("a", 1, 1, 0, x, 0.5, 1.0, 0)
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append_unique([decision], ["a"])
        journal.append([Reward("a", n, 1.0) for n in range(5_000)])
        record_of, rows_read = SQLiteJournal._record_of, []

        def noted(self: SQLiteJournal, row: Any) -> Record:
            rows_read.append(row)
            return record_of(self, row)

        monkeypatch.setattr(SQLiteJournal, "_record_of", noted)
        assert journal.decisions(["a"]) == {"a": decision}
        assert journal.append_unique([decision], ["a"]).standing == {"a": decision}
        assert len(rows_read) == 2
        history = read_history(
            journal, "a", Explicit(), min_reward=0.0, max_reward=1.0, retention=None
        )
        assert history.incomplete
        assert len(rows_read) < 1_100


def test_a_look_up_uses_the_index(path: Path) -> None:
    """However many records there are, and for the last settlements and the mode too."""
    SQLiteJournal(path, bandit="offers").close()
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT event FROM record "
            "WHERE mark = 1 AND place > 2 AND place < 3 ORDER BY place DESC LIMIT 4"
        ).fetchall()
    assert [row[-1] for row in plan] == [
        "SEARCH record USING INDEX record_by_mark (mark=? AND rowid>? AND rowid<?)"
    ]
