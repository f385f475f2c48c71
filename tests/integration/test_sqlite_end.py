"""Acknowledged events that are lost with SQLite's write-ahead log are detected."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from belated.core.events import Erased, Overwritten, Reward, Void, encode
from belated.core.ids import erased_key_of
from belated.exceptions import BelatedError, CorruptJournal
from belated.journals import SQLiteJournal, SQLiteStore

SUFFIXES = ("", "-wal", "-shm", ".end")


def beside(path: Path) -> dict[str, Path]:
    """Return the existing files of a journal, by suffix."""
    files = {suffix: path.with_name(path.name + suffix) for suffix in SUFFIXES}
    return {suffix: file for suffix, file in files.items() if file.exists()}


def crashed(path: Path, folder: Path) -> Path:
    """Return a copy of the files while they are open, as a dead process would leave them."""
    folder.mkdir()
    for suffix, file in beside(path).items():
        if suffix != "-shm":
            shutil.copy(file, folder / file.name)
    return folder / path.name


def test_damaged_write_ahead_log_is_detected(tmp_path: Path, full: bool) -> None:
    """Every acknowledged event is read, or the file is rejected."""
    rng, path = np.random.default_rng(7), tmp_path / "offers.db"
    detections = 0
    with SQLiteJournal(path, bandit="offers", partitions=2) as journal:
        for n in range(200 if full else 30):
            journal.append([Void(f"{n} {k}", 5) for k in range(rng.integers(1, 4))])
            positions = [journal.end(0), journal.end(1)]
            copy = crashed(path, tmp_path / str(n))
            log = copy.with_name(copy.name + "-wal")
            data = bytearray(log.read_bytes())
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
            log.write_bytes(data)
            try:
                with SQLiteJournal(copy, bandit="offers") as reopened:
                    counts = [len(reopened.read(p, 0, 10**6)) for p in range(2)]
            except BelatedError:
                detections += 1
            else:
                assert counts == positions
            shutil.rmtree(copy.parent)
    assert detections > 15


def test_it_says_what_to_do_and_that_helps(tmp_path: Path) -> None:
    """After the end file is removed, the journal is opened without the lost events."""
    path = tmp_path / "offers.db"
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Void("a", 5)])
        copy = crashed(path, tmp_path / "copy")
    copy.with_name(copy.name + "-wal").write_bytes(b"")
    for _ in range(2):  # and it is not forgotten
        with pytest.raises(CorruptJournal, match=r"position 1 .* restore .*offers\.db\.end"):
            SQLiteJournal(copy, bandit="offers")
    copy.with_name(copy.name + ".end").unlink()
    with SQLiteJournal(copy, bandit="offers") as journal:
        assert journal.end(0) == 0
        assert journal.append([Void("b", 5)]) == [1]


def test_a_process_that_dies_is_no_damage(tmp_path: Path) -> None:
    """An incomplete end file is ignored."""
    path = tmp_path / "offers.db"
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Void("a", 5)])
        intact, torn_copy = crashed(path, tmp_path / "whole"), crashed(path, tmp_path / "torn")
    end = torn_copy.with_name(torn_copy.name + ".end")
    end.write_bytes(end.read_bytes()[:-1])
    for copy in (intact, torn_copy):
        with SQLiteJournal(copy, bandit="offers") as journal:
            assert journal.end(0) == 1


def test_overwriting_the_last_record_is_no_damage(tmp_path: Path) -> None:
    """A reward of an erased decision is last, another process overwrites it, and this one dies."""
    path, key = tmp_path / "offers.db", erased_key_of("order-17")
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Reward("order-17", 5, 1.0), Erased(key, 6)])
        journal.append([Reward("order-17", 7, 1.0, part="late")])
        with SQLiteJournal(path, bandit="offers") as writer:
            assert writer.overwrite([key]) == 2
        copy = crashed(path, tmp_path / "copy")
    with SQLiteJournal(copy, bandit="offers") as journal:
        assert journal.end(0) == 3
        assert journal.read(0, 2, 1)[0].event == Overwritten(key)


def test_files_that_come_and_go(tmp_path: Path) -> None:
    """After closing there is one file; leftovers of a removed file are ignored."""
    path = tmp_path / "offers.db"
    journal, journal_again = (SQLiteJournal(path, bandit="offers") for _ in range(2))
    journal.append([Void("a", 5)])
    old_end = path.with_name(path.name + ".end").read_bytes()
    journal.close()
    assert set(beside(path)) == set(SUFFIXES)  # another one has it open
    journal_again.close()
    assert set(beside(path)) == {""}
    path.unlink()
    path.with_name(path.name + ".end").write_bytes(old_end)
    with SQLiteJournal(path, bandit="offers") as journal:
        assert journal.end(0) == 0
    with SQLiteStore(tmp_path / "new.db").new_journal("offers", partitions=1):
        (tmp_path / "new.db.end").write_bytes(old_end)
    with SQLiteJournal(tmp_path / "new.db", bandit="offers") as journal:
        assert journal.end(0) == 0


def test_a_commit_that_is_undone_is_not_noted(tmp_path: Path) -> None:
    """Only acknowledged records are expected."""
    path = tmp_path / "offers.db"
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.append([Void("a", 5)])

        def fail(connection: sqlite3.Connection) -> None:
            events = [Void("b", 5)]
            journal._append(connection, events, [encode(events[0])], None, None)
            raise BelatedError

        with suppress(BelatedError):
            journal._write(fail)
        journal.identify({"what": "else"})  # a commit without records
        with SQLiteJournal(crashed(path, tmp_path / "copy"), bandit="offers") as copy:
            assert copy.end(0) == 1


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """Whatever the umask is."""
    umask_before = os.umask(0)
    try:
        with SQLiteJournal(tmp_path / "offers.db", bandit="offers") as journal:
            journal.append([Void("a", 5)])
            files = beside(tmp_path / "offers.db")
            assert set(files) == set(SUFFIXES)
            assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    finally:
        os.umask(umask_before)


def test_what_lies_in_the_log_for_long_is_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with few writes; and on close, although others have the file open."""
    path = tmp_path / "offers.db"

    def without_log(name: str) -> int:
        copy = crashed(path, tmp_path / name)
        for suffix in ("-wal", ".end"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        with SQLiteJournal(copy, bandit="offers") as journal:
            return journal.end(0)

    with SQLiteJournal(path, bandit="offers") as reader:
        journal = SQLiteJournal(path, bandit="offers")
        journal.append([Void("a", 5)])
        assert without_log("at once") == 0
        journal._file._checkpoint_at = 0.0  # a minute later
        journal.append([Void("b", 5)])
        assert without_log("later") == 2
        journal.append([Void("c", 5)])
        journal.close()
        assert without_log("closed") == 3
        assert reader.end(0) == 3
