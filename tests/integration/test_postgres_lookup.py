"""Look-ups of records by id, and of settlements, in the PostgreSQL journal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from belated.core.events import Decision, Record, Reward, Settled, Void
from belated.core.ids import key_of, partition_of
from belated.exceptions import CorruptEvent
from belated.journals import PostgresJournal
from belated.journals.postgres import log as postgres
from belated.testing import ManualClock

ROW = np.array([1.0, 0.5], dtype=np.float32)


def decision(id: str, at: int = 5, index: int = 0) -> Decision:
    """Return a decision."""
    return Decision(id, at, index, index, ROW, 0.5, 1.0, 0)


@pytest.fixture
def journal(dsn: str, bandit: str) -> Iterator[PostgresJournal]:
    """A journal with four partitions and a fixed clock."""
    with PostgresJournal(dsn, bandit=bandit, partitions=4) as bandit_journal:
        bandit_journal._clock = ManualClock(1_000)
        yield bandit_journal


def test_a_record_that_was_changed_is_noticed(journal: PostgresJournal, dsn: str) -> None:
    """By every kind of look-up."""
    journal.append([decision("a")])
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "UPDATE belated.record SET recorded = recorded + 1 WHERE bandit = %s", [journal.number]
        )
    with pytest.raises(CorruptEvent, match="was changed"):
        journal.records_of(["a"])


def test_the_last_that_settled_are_found_wherever_they_are(
    journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the partition, or far before it; the most recent ones if there are many."""
    assert journal.settlements(1) == []
    monkeypatch.setattr(postgres, "_RECENT", 10)
    monkeypatch.setattr(postgres, "LAST_SETTLEMENTS", 3)
    journal.append([Settled(1, until) for until in range(100, 105)])

    def until(records: list[Record]) -> list[int]:
        return [record.event.until for record in records if isinstance(record.event, Settled)]

    assert until(journal.settlements(1)) == [102, 103, 104]
    ids = [id for id in (f"x{n}" for n in range(100)) if partition_of(key_of(id), 4) == 1]
    journal.append([decision(id) for id in ids[:15]])
    assert until(journal.settlements(1)) == [102, 103, 104]
    journal.append([Settled(1, 200)])
    assert until(journal.settlements(1)) == [200]
    assert journal.settlements(0) == []


def test_marks_are_found_by_their_index_before_anything_was_analysed(dsn: str) -> None:
    """A process that starts before the tables were analysed must not scan them.

    The planner then considers both indexes equal, and chooses the smaller one without marks.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE never_analysed")
    try:
        _look_up_in(f"{dsn.rpartition('/')[0]}/never_analysed")
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP DATABASE never_analysed WITH (FORCE)")


def _look_up_in(dsn: str) -> None:
    PostgresJournal.create_tables(dsn)
    events = [Reward(f"order-{n}", n, 1.0) for n in range(40_000)]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE belated.record SET (autovacuum_enabled = off)")
        with PostgresJournal(dsn, bandit="offers", partitions=2) as writer:
            for start in range(0, len(events), 100):
                writer.append(events[start : start + 100])
        rows_before = _read_of_all(connection)
        with PostgresJournal(dsn, bandit="offers") as reopened:
            reopened.append([*events[:50], Void("new", 1)])
            assert len(reopened.records_of(["order-7", "order-8"])) == 2
        assert _read_of_all(connection) - rows_before < 1_000


def _read_of_all(connection: psycopg.Connection) -> int:
    """Return how many entries were read in the index without marks."""
    connection.execute("SELECT pg_stat_clear_snapshot()")
    time.sleep(1.5)  # sessions tell it when they end, or now and then
    ((count,),) = connection.execute(
        "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'record_pkey'"
    ).fetchall()
    return int(count)
