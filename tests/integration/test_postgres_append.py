"""The two paths of the function ``belated.append``: new events of one partition, or any others.

The contract of journals passes times, and so uses the general path; most other tests the fast one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from belated.core.events import Decision, Event, Record, Settled, Void
from belated.core.ids import new_id
from belated.exceptions import InvalidInput
from belated.journals import PostgresJournal

ROW = np.ones(2, dtype=np.float32)


@pytest.fixture
def fresh(dsn: str) -> Iterator[str]:
    """A separate database with tables: the server's statistics start from zero."""
    execute(dsn, "CREATE DATABASE ways")
    database = dsn.replace("/postgres", "/ways")
    PostgresJournal.create_tables(database)
    yield database
    execute(dsn, "DROP DATABASE ways WITH (FORCE)")


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("partitions", [1, 2])
def test_both_ways_hold_the_last_stamp(dsn: str, bandit: str, partitions: int) -> None:
    """A stamp ahead of the server's clock is used until the clock has passed it."""
    future = 2**60
    with PostgresJournal(dsn, bandit=bandit, partitions=partitions) as journal:
        journal.import_records([Record(p, 1, future + p, Settled(p, 0)) for p in range(partitions)])
        assert journal.append([Settled(p, 1) for p in range(partitions)]) == [2] * partitions
        for p in range(partitions):
            assert [record.recorded for record in journal.read(p, 0, 9)] == [future + p] * 2


def test_events_that_are_known_leave_no_gaps(dsn: str, bandit: str) -> None:
    """If the last of thousands of events is stored already, earlier writes are rolled back."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        known_event = Void(new_id(1), 1)
        events: list[Event] = [Void(new_id(n), n) for n in range(3000)]
        assert journal.append([known_event]) == [1]
        assert journal.append([*events, known_event]) == [*range(2, 3002), 1]
        assert journal.append(events) == [*range(2, 3002)]
        assert [record.event for record in journal.read(0, 0, 10_000)] == [known_event, *events]


def test_duplicates_are_counted_however_they_come(dsn: str, bandit: str) -> None:
    """Alone, among others, in several partitions, twice in one call, and next to a contested id."""
    first, second, third = (Void(new_id(n, slot=n), n) for n in range(3))
    with PostgresJournal(dsn, bandit=bandit, partitions=2) as journal:
        journal.append([first, second])
        assert journal.duplicates == 0
        assert journal.append([first]) == [1]
        assert journal.duplicates == 1
        assert journal.append([second, third, first]) == [1, 2, 1]
        assert journal.duplicates == 3
        assert journal.append([third, third]) == [2, 2]
        assert journal.duplicates == 5
        decision = Decision("named", 1, 0, 0, ROW, 0.5, 0.5, 1)
        named_decision = Decision("named", 2, 0, 0, ROW, 0.5, 0.5, 1)
        journal.append_unique([decision], ["named"])
        journal.append_unique([named_decision, first], ["named"])
        assert journal.duplicates == 6
        assert sum(journal.end(partition) for partition in range(2)) == 4


def test_the_general_way_uses_the_indexes_however_the_table_grew(fresh: str) -> None:
    """The plan is made while the table is small, where the planner prefers a full scan."""
    scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'record'"
    reads = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = "
    scans_before = execute(fresh, scans)  # to make an index counts as one
    with PostgresJournal(fresh, bandit="offers", partitions=2) as journal:
        journal.append([Settled(0, 0), Settled(1, 0)])
        execute(fresh, "ANALYZE belated.record")
        for n in range(1, 41):
            journal.append([Settled(k % 2, 50 * n + k) for k in range(50)])
    assert execute(fresh, scans) == scans_before
    ((entries_read,),) = execute(fresh, f"{reads} 'record_pkey'")
    assert isinstance(entries_read, int)
    assert entries_read <= 82  # the last record of each partition, once a call
    assert execute(fresh, f"{reads} 'record_is_new'") == [(0,)]


@pytest.mark.parametrize("when", [2**63, -(2**63) - 1, 1.5, None])
def test_a_time_that_is_none_is_refused(dsn: str, bandit: str, when: object) -> None:
    """It is no 64-bit integer; nothing is stored."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        with pytest.raises(InvalidInput, match="out of range"):
            journal.append([Void("a", 1), Void("b", 1)], recorded=[5, when])  # type: ignore[list-item]
        assert journal.end(0) == 0
