"""A damaged row number in a SQLite file: later records must not disappear silently."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from belated.cli.main import main
from belated.core.events import Reward, Void
from belated.exceptions import CorruptEvent, CorruptJournal
from belated.journals import SQLiteJournal

RECORDS = 60
#: The number of the first row: see ``journals/sqlite/file.py``.
BASE = 1 << 52


def as_stored(number: int) -> bytes:
    """Return a row number as SQLite stores it: seven bits per byte, the first ones first."""
    groups = [number & 127]
    while number := number >> 7:
        groups.append(number & 127 | 128)
    return bytes(reversed(groups))


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with the journals of two bandits."""
    path = tmp_path_factory.mktemp("intact") / "journal.db"
    with SQLiteJournal(path, bandit="offers") as journal:
        for number in range(RECORDS):
            journal.append([Reward(f"reward {number}", 5, 1.0)])
    with SQLiteJournal(path, bandit="others") as journal:
        journal.append([Reward("reward", 5, 1.0)])
    return path.read_bytes()


def flipped(data: bytes, position: int, bit: int) -> bytes:
    """Return the same file with one bit changed in the row number of a record."""
    number = as_stored(BASE + position)
    assert data.count(number) == 1
    at = data.index(number) + bit // 8
    return data[:at] + bytes([data[at] ^ 1 << bit % 8]) + data[at + 1 :]


def read_all(journal: SQLiteJournal) -> int:
    """Read page by page, as a learner does; return the number of records."""
    count = 0
    while page := journal.read(0, count, 50):
        count += len(page)
    return count


@pytest.mark.parametrize("position", [1, 2, 9, 30, 44, 53, 57, 59, 60])
def test_a_scan_that_ends_before_the_end_of_the_log_is_damage(
    intact: bytes, position: int, tmp_path: Path
) -> None:
    """Whichever bit changes, reading stops with an error, nearly always at the record itself."""
    detections = 0
    for bit in range(64):
        path = tmp_path / f"{bit}.db"
        path.write_bytes(flipped(intact, position, bit))
        with SQLiteJournal(path, bandit="offers") as journal:
            with pytest.raises((CorruptEvent, CorruptJournal)) as error:
                read_all(journal)
            detections += f"position {position} " in str(error.value)
            # What is acknowledged is there once the bit is repaired.
            with suppress(CorruptEvent, CorruptJournal):
                journal.append([Void("later", 1)])
                (row,) = journal.records_of(["later"])
                assert row.position == RECORDS + 1
    assert detections >= 48


def rows_in(path: Path) -> int:
    """Return the number of rows in the file, in any order."""
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM record").fetchone()
    return int(count)


def test_an_append_that_readers_could_not_find_is_refused(intact: bytes, tmp_path: Path) -> None:
    """If the damaged number hides the last records, SQLite takes an earlier one for the last."""
    refusals = 0
    for position in range(50, RECORDS + 1):
        path = tmp_path / f"{position}.db"
        path.write_bytes(flipped(intact, position, 13))  # it becomes greater than all others
        with SQLiteJournal(path, bandit="offers") as journal:
            rows_before = rows_in(path)
            with suppress(CorruptJournal):
                assert journal.append([Void("later", 1)]) == [RECORDS + 1]
                continue
            refusals += 1
            assert rows_in(path) == rows_before
    assert refusals >= 1


def test_verify_names_the_record_with_the_damaged_row_number(
    intact: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it is, also at the end, where the journal would otherwise look shorter."""
    path = tmp_path / "journal.db"
    for position in (30, RECORDS - 3):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(flipped(intact, position, 13))
        address = f"sqlite:///{path}?bandit=offers"
        assert main(["journal", "verify", address, "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["status"] == "damaged"
        assert f"position {position} " in report["damage"][0]
