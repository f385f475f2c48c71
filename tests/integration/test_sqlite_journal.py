import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from belated.core.events import Event, Record, Reward, Settled, Void, encode
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryChanged,
    InvalidInput,
    JournalError,
    JournalMismatch,
    JournalUnavailable,
    NotAJournal,
    UnsupportedFormat,
)
from belated.journals import Journal, SQLiteJournal
from belated.journals.snapshots import Snapshot
from belated.testing import JournalContract, ManualClock
from tests.integration.damage import meddle_file
from tests.integration.sharing import assert_threads_may_share
from tests.shelf_contract import ShelfContract


class TestSQLiteJournal(JournalContract, ShelfContract):
    """The contract, on files of SQLite."""

    @pytest.fixture(autouse=True)
    def _paths(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}.db" for n in count())

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """In a file of its own."""
        return SQLiteJournal(next(self.paths), bandit="b", partitions=partitions, clock=clock)

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """A second connection to the file."""
        assert isinstance(journal, SQLiteJournal)
        return SQLiteJournal(journal._file.path, bandit="b", clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "offers.db"


def filled(path: Path, events: int = 3) -> None:
    """A file with some events of one bandit."""
    with SQLiteJournal(path, bandit="offers", clock=ManualClock()) as journal:
        journal.append([Reward(f"order-{n}", n, 0.5) for n in range(events)])


# --- opening -----------------------------------------------------------------------------------


def test_everything_survives_closing(path: Path) -> None:
    """Records, stamps, identity and snapshot are there when the file is opened again."""
    with SQLiteJournal(path, bandit="offers", partitions=4, clock=ManualClock(1000)) as journal:
        journal.append([Settled(3, 1), Settled(3, 2)])
        journal.identify({"dim": "8"})
        journal.save(Snapshot(3, 1, "v1", {"block 0": b"0", "ledger": b"1"}))
    with SQLiteJournal(path, bandit="offers", clock=ManualClock(900)) as journal:
        assert journal.partitions == 4
        assert journal.append([Settled(3, 3)]) == [3]
        assert [record.recorded for record in journal.read(3, 0, 9)] == [1000] * 3
        assert journal.identify({"dim": "9"}) == {"dim": "8"}
        assert journal.load(3) == Snapshot(3, 1, "v1", {"block 0": b"0", "ledger": b"1"})
        journal.save(Snapshot(3, 3, "v1", {"ledger": b"3"}, frozenset({"block 0"})))
        assert journal.load(3) == Snapshot(3, 3, "v1", {"block 0": b"0", "ledger": b"3"})


def test_the_settings_are_those_that_keep_the_promise(path: Path) -> None:
    """A write-ahead log, synced at every commit, checkpointed only under the lock of writers."""
    names = ("journal_mode", "synchronous", "wal_autocheckpoint", "busy_timeout")
    with SQLiteJournal(path, bandit="offers") as journal:
        settings = journal._file.read(
            lambda connection: {
                name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names
            }
        )
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "wal_autocheckpoint": 0,
        "busy_timeout": 10_000,
    }


def test_where_there_can_be_no_log_there_is_no_journal() -> None:
    """SQLite in memory has no write-ahead log; the error says what to use instead."""
    with pytest.raises(JournalError, match="MemoryJournal"):
        SQLiteJournal(":memory:", bandit="offers")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """The error names the path, and what to look at."""
    with pytest.raises(JournalUnavailable, match=r"nowhere.*folder"):
        SQLiteJournal(tmp_path / "nowhere" / "offers.db", bandit="offers")


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    """The file is the same to the byte; the error names both numbers."""
    filled(path)
    meddle_file(path, "PRAGMA user_version = 99")
    content_before = path.read_bytes()
    with pytest.raises(UnsupportedFormat, match=r"99.*upgrade"):
        SQLiteJournal(path, bandit="offers")
    assert path.read_bytes() == content_before


def _text(path: Path) -> None:
    path.write_text("Dear diary, " * 1000, encoding="utf-8")


def _other_database(path: Path) -> None:
    meddle_file(path, "CREATE TABLE invoice (number INTEGER)")


def _marked_database(path: Path) -> None:
    meddle_file(path, "PRAGMA application_id = 77")


def _numbered_database(path: Path) -> None:
    meddle_file(path, "PRAGMA user_version = 1")


@pytest.mark.parametrize("make", [_text, _other_database, _marked_database, _numbered_database])
def test_a_file_of_something_else_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], None]
) -> None:
    """Whatever it is, it is the same to the byte, without a log beside it."""
    make(path)
    content_before = path.read_bytes()
    with pytest.raises(NotAJournal, match="choose another file"):
        SQLiteJournal(path, bandit="offers")
    assert path.read_bytes() == content_before
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    """As one that `touch` or a temporary file has left."""
    path.touch()
    filled(path)
    with SQLiteJournal(str(path), bandit="offers") as journal:
        assert journal.end(0) == 3


def test_the_number_of_partitions_is_fixed(path: Path) -> None:
    """Another number is refused with the right one; None takes it, and 1 in a new journal."""
    SQLiteJournal(path, bandit="offers", partitions=8).close()
    with pytest.raises(JournalMismatch, match="partitions=8"):
        SQLiteJournal(path, bandit="offers", partitions=4)
    with SQLiteJournal(path, bandit="offers") as journal:
        assert journal.partitions == 8
    with SQLiteJournal(path, bandit="others") as journal:
        assert journal.partitions == 1


def test_bandits_of_one_file_are_apart(path: Path) -> None:
    """Records, positions, stamps, identities and snapshots."""
    with (
        SQLiteJournal(path, bandit="one", partitions=2, clock=ManualClock(5)) as first,
        SQLiteJournal(path, bandit="two", partitions=4, clock=ManualClock(3)) as second,
    ):
        first.append([Settled(1, 1)])
        second.append([Settled(1, 2), Settled(3, 3)])
        assert [record.event for record in first.read(1, 0, 9)] == [Settled(1, 1)]
        assert [record.event for record in second.read(1, 0, 9)] == [Settled(1, 2)]
        assert (first.last_stamp(1), second.last_stamp(1), second.end(2)) == (5, 3, 0)
        assert (first.identify({"a": "1"}), second.identify({"a": "2"})) == ({"a": "1"}, {"a": "2"})
        first.save(Snapshot(1, 1, "v1", {"ledger": b"one"}))
        assert second.load(1) is None


@pytest.mark.parametrize("bandit", ["", "x" * 129, None])
def test_a_bandit_needs_a_name(path: Path, bandit: str) -> None:
    """The file is not even made."""
    with pytest.raises(InvalidInput, match="the bandit's name"):
        SQLiteJournal(path, bandit=bandit)
    assert not path.exists()


def test_people_can_read_the_file(path: Path) -> None:
    """A view shows bandit, partition, position and time, for the shell of sqlite3."""
    filled(path)
    rows = meddle_file(path, "SELECT * FROM records")
    assert rows[1] == ("offers", 0, 2, "2023-11-14 22:13:20", encode(Reward("order-1", 1, 0.5)))


# --- damage ------------------------------------------------------------------------------------


def test_a_changed_bit_in_an_event_is_noticed(path: Path) -> None:
    """Each bit of it, also where the bytes would still be an event: the error names the place."""
    filled(path)
    original = encode(Reward("order-1", 1, 0.5))
    for bit in range(8 * len(original)):
        damaged = (int.from_bytes(original) ^ 1 << bit).to_bytes(len(original))
        meddle_file(path, "UPDATE record SET event = ? WHERE place & 255 = 2", (damaged,))
        with SQLiteJournal(path, bandit="offers") as journal:
            for read_records in (journal.read, journal.read_columns):
                with pytest.raises(CorruptEvent, match="partition 0, position 2"):
                    read_records(0, 0, 10)


@pytest.mark.parametrize(
    "change", ["recorded + 1", "recorded - 4294967296", "recorded + (1 << 40)"]
)
def test_a_changed_stamp_is_noticed(path: Path, change: str) -> None:
    """The stamp is under the same check as the event."""
    filled(path)
    meddle_file(path, f"UPDATE record SET recorded = {change} WHERE place & 255 = 2")
    with SQLiteJournal(path, bandit="offers") as journal:
        for read_records in (journal.read, journal.read_columns):
            assert len(read_records(0, 0, 1)) == 1
            with pytest.raises(CorruptEvent, match="partition 0, position 2"):
                read_records(0, 1, 10)


def test_an_event_of_a_different_type_is_detected(path: Path) -> None:
    """Text that is not even UTF-8, or a number, where bytes should be."""
    filled(path)
    for value in ("CAST(x'ff' AS TEXT)", "'text'", "7", "1.5", "x''"):
        meddle_file(path, f"UPDATE record SET event = {value} WHERE place & 255 = 2")
        with SQLiteJournal(path, bandit="offers") as journal:
            for read_records in (journal.read, journal.read_columns):
                with pytest.raises(CorruptEvent, match="partition 0, position 2"):
                    read_records(0, 0, 10)


def test_a_missing_record_is_noticed(path: Path) -> None:
    """Positions have no gaps, so a gap is a loss; the error names the first that is missing."""
    filled(path, 5)
    meddle_file(path, "DELETE FROM record WHERE place & 255 IN (3, 4)")
    with SQLiteJournal(path, bandit="offers") as journal:
        assert len(journal.read(0, 0, 2)) == 2
        for position in (0, 2):
            with pytest.raises(CorruptJournal, match="position 3"):
                journal.read(0, position, 10)


def test_a_damaged_page_is_noticed(path: Path) -> None:
    """Whichever page after the first is overwritten: no record is read as something else."""
    filled(path, 500)
    content = path.read_bytes()
    with SQLiteJournal(path, bandit="offers") as journal:
        events = [record.event for record in journal.read(0, 0, 1000)]
    refusals = 0
    for page in range(1, len(content) // 4096):
        path.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
        try:
            with SQLiteJournal(path, bandit="offers") as journal:
                events_read = [record.event for record in journal.read(0, 0, 1000)]
        except (CorruptJournal, CorruptEvent):
            refusals += 1
        else:
            assert events_read == events
    assert refusals >= 4


def test_an_event_that_is_none_is_noticed(path: Path) -> None:
    """Bytes with a right check that are no event: written by something that is not this library."""
    with SQLiteJournal(path, bandit="offers") as journal:
        records = [Record(0, 1, 5, Void("a", 1))]
        journal._write(lambda handle: journal._insert(handle, records, [b"\x02\x93"], None))
        with pytest.raises(CorruptEvent, match="partition 0, position 1"):
            journal.read(0, 0, 10)


def test_a_snapshot_of_records_that_are_gone_is_discarded(path: Path) -> None:
    """It is not damaged: the journal has lost something, and that is what is said."""
    filled(path)
    with SQLiteJournal(path, bandit="offers") as journal:
        journal.save(Snapshot(0, 3, "v1", {"ledger": b"3"}))
        meddle_file(path, "DELETE FROM record WHERE place & 255 = 3")
        with pytest.raises(HistoryChanged, match="partition 0, position 3"):
            journal.load(0)
        assert journal.load(0) is None
        journal.save(Snapshot(0, 1, "v1", {"ledger": b"1"}))
        assert journal.load(0) == Snapshot(0, 1, "v1", {"ledger": b"1"})


# --- trouble that passes -----------------------------------------------------------------------


def test_a_lock_held_too_long_is_said_and_leaves_nothing(path: Path) -> None:
    """When the other process lets go, the same call succeeds."""
    filled(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    with SQLiteJournal(path, bandit="offers", wait=0.05) as journal:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnavailable, match="locked"):
            journal.append([Void("a", 1)])
        assert len(journal.read(0, 0, 10)) == 3  # readers do not wait for writers
        blocker.execute("ROLLBACK")
        blocker.close()
        assert journal.append([Void("a", 1)]) == [4]


def test_a_full_disk_is_said_and_leaves_nothing(path: Path) -> None:
    """No part of the batch is kept, and with room again the same call succeeds."""
    filled(path)
    batch: list[Event] = [Void("x" * 100, n) for n in range(1000)]
    with SQLiteJournal(path, bandit="offers") as journal:
        journal._read(lambda connection: connection.execute("PRAGMA max_page_count = 12"))
        with pytest.raises(JournalUnavailable, match="full"):
            journal.append(batch)
        assert journal.end(0) == 3
        journal._read(lambda connection: connection.execute("PRAGMA max_page_count = 100000"))
        assert journal.append(batch)[-1] == 1003


def test_an_event_that_cannot_be_written_leaves_nothing(path: Path) -> None:
    """A lone surrogate is no text: the batch before it is not kept either."""
    with SQLiteJournal(path, bandit="offers") as journal:
        with pytest.raises(ValueError, match="surrogate"):
            journal.append([Void("a", 1), Void("\ud800", 1)])
        assert journal.append([Void("a", 1)]) == [1]


def test_threads_may_share_a_journal(path: Path) -> None:
    """Four threads append and read at once: every event is there once, positions are dense."""
    with SQLiteJournal(path, bandit="offers") as journal:
        assert_threads_may_share(journal)


def test_the_log_does_not_grow_for_ever(path: Path) -> None:
    """It is moved into the file as it grows, by processes that come and go too."""
    log = path.with_name(path.name + "-wal")
    events: list[Event] = [Void("x" * 128, n) for n in range(5_000)]
    with SQLiteJournal(path, bandit="offers") as long_lived:
        for _ in range(12):
            with SQLiteJournal(path, bandit="offers") as journal:
                journal.append(events)
        assert log.stat().st_size < 8 << 20
        for _ in range(12):
            long_lived.append(events)
        assert log.stat().st_size < 8 << 20
        assert long_lived.end(0) == 24 * 5_000
