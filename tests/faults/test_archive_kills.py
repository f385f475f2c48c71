"""Kill archiving processes at any moment: no row is incomplete or duplicated."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belated.journals import open_journal
from belated.journals.archive import Archive
from belated.journals.folders import open_folder
from tests.faults import archivers
from tests.integration.archived import assert_same, begin, fill, live, rebuilt
from tests.integration.object_store import object_store

pq = pytest.importorskip("pyarrow.parquet")
ROOT = Path(archivers.__file__).parents[2]
#: Many short days: to be killed between any two files.
DAYS, EACH = 30, 20


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A journal of two partitions."""
    address = f"sqlite:///{tmp_path_factory.mktemp('journals') / 'offers.db'}"
    with open_journal(address, partitions=2) as journal:
        begin(journal)
        fill(journal, 0, DAYS, EACH)
    return address


@pytest.fixture(scope="module")
def expected(address: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return all rows, as archived by a single writer that is never killed."""
    folder = str(tmp_path_factory.mktemp("whole"))
    archivers.main(address, folder)
    return rows_in(folder)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An object store."""
    with object_store(monkeypatch) as address:
        yield f"{address}/archive"


def rows_in(folder: str) -> list[str]:
    """Return the rows of all files; a partial file could not be read."""
    files = open_folder(folder)
    lines: list[str] = []
    for name in files.names("bandit=default"):
        if name.endswith(".parquet"):
            rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(files.read(name))).to_pylist()
            # When it was archived is all that two writers may see differently.
            lines += [repr({**row, "as_of": None}) for row in rows]
    return sorted(lines)


class Writer:
    """A process that archives after a signal to start."""

    def __init__(self, address: str, folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.archivers", address, folder],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> None:
        """Start archiving; everything needed is loaded by then."""
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> bool:
        """Kill the process; return whether that was before it had ended."""
        self._process.send_signal(signal.SIGKILL)
        return self._process.communicate()[0] == ""

    def wait(self) -> float:
        """Let it finish; return how long that took."""
        self.begin()
        began = time.monotonic()
        assert self._process.stdout
        assert self._process.stdout.readline() == "done\n"
        seconds = time.monotonic() - began
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        return seconds


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("where", ["folder", "object store"])
def test_killed_writers_leave_whole_days_once(
    where: str,
    address: str,
    expected: list[str],
    tmp_path: Path,
    full: bool,
    request: pytest.FixtureRequest,
) -> None:
    """Two writers at a time are killed at random, and the next continue; the result is complete."""
    folder_url = str(tmp_path) if where == "folder" else str(request.getfixturevalue("bucket"))
    rng, kills_done, place, attempts = random.Random(1), 0, 0, 0
    seconds = Writer(address, f"{folder_url}/first").wait()
    kills = (100 if where == "folder" else 20) if full else 4
    while kills_done < kills:
        folder = f"{folder_url}/{place}"
        writers = [Writer(address, folder), Writer(address, folder)]
        for writer in writers:
            writer.begin()
        for writer in writers:
            time.sleep(rng.uniform(0.0, seconds))
            kills_done += writer.kill()
        stored = rows_in(folder)
        assert len({*stored}) == len(stored)
        assert {*stored} <= {*expected}
        attempts += 1
        if stored == expected or attempts == 5:  # then a new one, which nobody has begun
            Writer(address, folder).wait()
            _assert_whole(address, folder, expected)
            place, attempts = place + 1, 0
    Writer(address, folder).wait()
    _assert_whole(address, folder, expected)
    print(f"\n{kills_done} writers killed, {place + 1} archives")


def _assert_whole(address: str, folder: str, expected: list[str]) -> None:
    assert rows_in(folder) == expected
    with open_journal(address) as journal:
        assert Archive(folder, journal.bandit).until(0) > 0
        assert_same(rebuilt(journal, folder), live(journal))
