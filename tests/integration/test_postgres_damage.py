"""Changed or lost rows are detected; of two owners, the last one saves."""

from __future__ import annotations

import pickle

import pytest

from belated.core.events import Opaque, Record, Reward, Settled, encode
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryChanged,
    OwnerFenced,
)
from belated.journals import PostgresJournal
from belated.journals.snapshots import Snapshot
from tests.integration.damage import filled, meddle


def meddle_at_two(journal: PostgresJournal, dsn: str, change: str, *values: object) -> None:
    """Change the second record."""
    statement = f"UPDATE belated.record SET {change} WHERE bandit = %s AND position = 2"
    meddle(dsn, statement, *values, journal.number)


def test_a_changed_bit_in_an_event_is_noticed(dsn: str, bandit: str) -> None:
    """Any bit of it, even if the bytes are still a valid event: the error names the position."""
    original = encode(Reward("order-1", 1, 0.5))
    with filled(dsn, bandit) as journal:
        for bit in range(8 * len(original)):
            damaged = (int.from_bytes(original) ^ 1 << bit).to_bytes(len(original))
            meddle_at_two(journal, dsn, "event = %s", damaged)
            for read_records in (journal.read, journal.read_columns):
                with pytest.raises(CorruptEvent, match="partition 0, position 2"):
                    read_records(0, 0, 10)


@pytest.mark.parametrize(
    "change", ["recorded = recorded + 1", "recorded = recorded - 4294967296", '"check" = 0']
)
def test_a_changed_stamp_is_noticed(dsn: str, bandit: str, change: str) -> None:
    """The stamp is covered by the event's checksum."""
    with filled(dsn, bandit) as journal:
        meddle_at_two(journal, dsn, change)
        for read_records in (journal.read, journal.read_columns):
            assert len(read_records(0, 0, 1)) == 1
            with pytest.raises(CorruptEvent, match="partition 0, position 2"):
                read_records(0, 1, 10)


def test_an_event_that_is_none_is_noticed(dsn: str, bandit: str) -> None:
    """Bytes with a valid checksum that are no event, written by another program."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        journal.import_records([Record(0, 1, 5, Opaque(b"\x02\x93"))])
        with pytest.raises(CorruptEvent, match="partition 0, position 1"):
            journal.read(0, 0, 10)
        with pytest.raises(CorruptEvent, match="partition 0, position 1"):
            journal.read_columns(0, 0, 10).records(0)


def test_a_missing_record_is_noticed(dsn: str, bandit: str) -> None:
    """Positions have no gaps, so a gap is a loss; the error names the first missing one."""
    with filled(dsn, bandit, 5) as journal:
        meddle(
            dsn,
            "DELETE FROM belated.record WHERE bandit = %s AND position IN (3, 4)",
            journal.number,
        )
        assert len(journal.read(0, 0, 2)) == 2
        for position in (0, 2):
            with pytest.raises(CorruptJournal, match="position 3"):
                journal.read(0, position, 10)


def test_a_snapshot_of_records_that_are_gone_is_discarded(dsn: str, bandit: str) -> None:
    """The error says that the journal has lost records, not that the snapshot is damaged."""
    with filled(dsn, bandit) as journal:
        journal.save(Snapshot(0, 3, "v1", {"ledger": b"3"}))
        deletion = "DELETE FROM belated.record WHERE position = 3 AND bandit = %s"
        meddle(dsn, deletion, journal.number)
        with pytest.raises(HistoryChanged, match="partition 0, position 3"):
            journal.load(0)
        assert journal.load(0) is None
        journal.save(Snapshot(0, 1, "v1", {"ledger": b"1"}))
        assert journal.load(0) == Snapshot(0, 1, "v1", {"ledger": b"1"})


# --- owners ------------------------------------------------------------------------------------


def test_of_two_owners_only_the_last_can_save(dsn: str, bandit: str) -> None:
    """The other's snapshot is rejected, also a later one; other partitions are unaffected."""
    with (
        PostgresJournal(dsn, bandit=bandit, partitions=2) as first_owner,
        PostgresJournal(dsn, bandit=bandit) as second_owner,
        PostgresJournal(dsn, bandit=bandit) as plain_journal,
    ):
        first_owner.append([Settled(0, 1), Settled(0, 2), Settled(1, 1)])
        assert [first_owner.acquire(0), first_owner.acquire(1)] == [1, 1]
        first_owner.save(Snapshot(0, 1, "v1", {"ledger": b"1"}))
        assert second_owner.acquire(0) == 2
        with pytest.raises(OwnerFenced, match="partition 0"):
            first_owner.save(Snapshot(0, 2, "v1", {"ledger": b"slow"}))
        assert second_owner.load(0) == Snapshot(0, 1, "v1", {"ledger": b"1"})
        first_owner.save(Snapshot(1, 1, "v1", {"ledger": b"1"}))
        second_owner.save(Snapshot(0, 2, "v1", {"ledger": b"quick"}))
        assert first_owner.load(0) == Snapshot(0, 2, "v1", {"ledger": b"quick"})
        plain_journal.save(Snapshot(0, 2, "v1", {"ledger": b"as with other journals"}))
        assert first_owner.acquire(0) == 3
        first_owner.save(Snapshot(0, 2, "v1", {"ledger": b"slow"}))


def test_an_error_of_owners_can_be_pickled() -> None:
    """Like every error of the library."""
    error = pickle.loads(pickle.dumps(OwnerFenced(3)))
    assert isinstance(error, OwnerFenced)
    assert error.partition == 3
