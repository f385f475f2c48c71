"""The SQLite journal with several processes, kills and forks."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from belated.core.events import Reward, Void
from belated.exceptions import JournalError
from belated.journals import SQLiteJournal

APPEND = """
import sys
from belated.core.events import Void
from belated.journals import SQLiteJournal
path, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
with SQLiteJournal(path, bandit="offers", partitions=4, wait=60) as journal:
    for n in range(batches):
        journal.append([Void(f"{name}/{n}/{k}", k) for k in range(3)])
"""

ACKNOWLEDGE = """
import sys
from belated.core.events import Reward
from belated.journals import SQLiteJournal
path, name = sys.argv[1], sys.argv[2]
with SQLiteJournal(path, bandit="offers", wait=60) as journal:
    n = 0
    while True:
        journal.append([Reward(f"{name}/{n}", k, 1.0, "x" * 500) for k in range(5)])
        print(n, flush=True)
        n += 1
"""

FORK = """
import os, sys
from belated.core.events import Void
from belated.journals import SQLiteJournal
journal = SQLiteJournal(sys.argv[1], bandit="offers")
journal.append([Void("before", 1)])
to_child, from_parent = os.pipe()
child = os.fork()
if child == 0:
    journal.append([Void("child", 1)])
    os.read(to_child, 1)  # until the parent has closed the journal
    journal.append([Void("child", 2)])
    os._exit(0)
journal.append([Void("parent", 1)])
journal.close()
os.write(from_parent, b"!")
assert os.waitpid(child, 0)[1] == 0
"""


def _start(code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_processes_append_to_one_file_at_once(tmp_path: Path, full: bool) -> None:
    """Four create and fill a file: no event is lost or duplicated, and batches are complete."""
    path, batches = tmp_path / "offers.db", 500 if full else 60
    processes = [_start(APPEND, path, name, batches) for name in range(4)]
    for process in processes:
        process.communicate(timeout=300)
        assert process.returncode == 0
    expected = {Void(f"{p}/{n}/{k}", k) for p in range(4) for n in range(batches) for k in range(3)}
    with SQLiteJournal(path, bandit="offers") as journal:
        assert journal.partitions == 4
        records = [record for partition in range(4) for record in journal.read(partition, 0, 10**6)]
        for partition in range(4):
            positions = [r.position for r in records if r.partition == partition]
            assert positions == list(range(1, len(positions) + 1))
            stamps = [r.recorded for r in records if r.partition == partition]
            assert stamps == sorted(stamps)
    assert len(records) == len(expected)
    assert {record.event for record in records} == expected


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path, full: bool) -> None:
    """After each kill the file opens; acknowledged batches are stored once and complete."""
    path, rng = tmp_path / "offers.db", random.Random(0)
    acknowledged: list[str] = []
    for name in range(50 if full else 10):
        process = _start(ACKNOWLEDGE, path, name)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        lines += process.communicate(timeout=60)[0].splitlines()
        acknowledged += [f"{name}/{line.strip()}" for line in lines]
        with SQLiteJournal(path, bandit="offers") as journal:
            events = [record.event for record in journal.read(0, 0, 10**6)]
        counts = Counter(event.id for event in events if isinstance(event, Reward))
        assert set(counts) >= set(acknowledged)
        assert set(counts.values()) == {5}
    assert len(acknowledged) >= 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_journal_may_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    """Commits of the child persist, also after the parent has closed its file."""
    path = tmp_path / "offers.db"
    process = _start(FORK, path)
    process.communicate(timeout=60)
    assert process.returncode == 0
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Void("after", 1)])
        events = [record.event for record in journal.read(0, 0, 100)]
    assert events[0] == Void("before", 1)
    assert set(events[1:]) == {
        Void("child", 1), Void("parent", 1), Void("child", 2), Void("after", 1),
    }  # fmt: skip
    assert len(events) == 5


def test_a_fork_python_was_not_told_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of another process is not used: the error says to close it there."""
    with SQLiteJournal(tmp_path / "offers.db", bandit="offers") as journal:
        own_pid = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own_pid + 1)
        with pytest.raises(JournalError, match="before the fork"):
            journal.append([Void("a", 1)])
        monkeypatch.undo()
        assert journal.append([Void("a", 1)]) == [1]
