"""A spool in front of a SQLite file: its contract, and a process that dies with pending events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from belated.core.events import Void
from belated.exceptions import JournalUnavailable
from belated.journals import Journal, SpoolJournal, SQLiteJournal
from belated.testing import JournalContract, ManualClock
from tests.shelf_contract import ShelfContract


class TestSpoolJournal(JournalContract, ShelfContract):
    """The contract; a second opening has a separate spool."""

    @pytest.fixture(autouse=True)
    def _paths(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}" for n in count())

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """Open two new files."""
        self.path = next(self.paths)
        file = SQLiteJournal(self.path, bandit="b", partitions=partitions, clock=clock)
        return SpoolJournal(file, next(self.paths), wait=60, clock=clock)

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """Open the same SQLite file."""
        file = SQLiteJournal(self.path, bandit="b", clock=clock)
        return SpoolJournal(file, next(self.paths), wait=60, clock=clock)


DIE = """
import os, signal, sqlite3, sys
from belated.core.events import Void
from belated.journals import SpoolJournal, SQLiteJournal

folder = sys.argv[1]
file = SQLiteJournal(f"{folder}/db", bandit="b", wait=0.01)
journal = SpoolJournal(file, f"{folder}/spool", wait=5)
print(journal.append([Void("before", 0)]), flush=True)
other = sqlite3.connect(f"{folder}/db", isolation_level=None)
other.execute("BEGIN IMMEDIATE")  # and never ends: the file is locked
for n in range(100):
    print(journal.append([Void(f"{n}", n), Void(f"{n}", n + 1)]), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_what_a_killed_process_left_is_handed_over(tmp_path: Path) -> None:
    """Only its process uses it; after that dies, everything acknowledged is stored once."""
    process = subprocess.Popen(
        [sys.executable, "-c", DIE, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(101)] == ["[1]\n", *["[0, 0]\n"] * 100]
    with (
        SQLiteJournal(tmp_path / "db", bandit="b") as file,
        pytest.raises(JournalUnavailable, match="in use"),
    ):
        SpoolJournal(file, tmp_path / "spool")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    file = SQLiteJournal(tmp_path / "db", bandit="b")
    with SpoolJournal(file, tmp_path / "spool") as journal:
        assert (journal.status.forwarded, journal.status.queued) == (200, 0)
        events = [record.event for record in journal.read(0, 0, 1000)]
    expected = [Void(f"{n}", n + k) for n in range(100) for k in (0, 1)]
    assert events == [Void("before", 0), *expected]
