"""The PostgreSQL journal: its contract, opening, duplicate events, damage, owners."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count

import pytest

from belated.core.events import Decision, Event, Opaque, Record, Reward, Settled, Void, encode
from belated.exceptions import (
    InvalidInput,
    JournalClosed,
    JournalError,
    JournalMismatch,
)
from belated.journals import Journal, PostgresJournal
from belated.journals.snapshots import Snapshot
from belated.testing import JournalContract, ManualClock
from tests.integration.damage import filled, meddle
from tests.integration.postgres_server import StartPostgres
from tests.integration.sharing import assert_threads_may_share
from tests.shelf_contract import ShelfContract


class TestPostgresJournal(JournalContract, ShelfContract):
    """The contract, on a real server."""

    @pytest.fixture(autouse=True)
    def _names(self, dsn: str, bandit: str) -> None:
        self.dsn = dsn
        self.names = (f"{bandit}.{n}" for n in count())

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """Open a journal with a new name."""
        journal = PostgresJournal(self.dsn, bandit=next(self.names), partitions=partitions)
        journal._clock = clock
        return journal

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """Open it again over a second connection."""
        reopened = PostgresJournal(self.dsn, bandit=journal.bandit)
        reopened._clock = clock
        return reopened


# --- opening -----------------------------------------------------------------------------------


def test_everything_survives_closing(dsn: str, bandit: str) -> None:
    """Records, stamps, identity and snapshot still exist when the journal is opened again."""
    with PostgresJournal(dsn, bandit=bandit, partitions=4) as journal:
        journal._clock = lambda: 1000
        journal.append([Settled(3, 1), Settled(3, 2)])
        journal.identify({"dim": "8"})
        journal.save(Snapshot(3, 1, "v1", {"block 0": b"0", "ledger": b"1"}))
    with PostgresJournal(dsn, bandit=bandit) as journal:
        journal._clock = lambda: 900
        assert journal.partitions == 4
        assert journal.append([Settled(3, 3)]) == [3]
        assert [record.recorded for record in journal.read(3, 0, 9)] == [1000] * 3
        assert journal.identify({"dim": "9"}) == {"dim": "8"}
        assert journal.load(3) == Snapshot(3, 1, "v1", {"block 0": b"0", "ledger": b"1"})
        journal.save(Snapshot(3, 3, "v1", {"ledger": b"3"}, frozenset({"block 0"})))
        assert journal.load(3) == Snapshot(3, 3, "v1", {"block 0": b"0", "ledger": b"3"})


def test_the_clock_is_the_servers(dsn: str, bandit: str) -> None:
    """Stamps are between two readings of its clock, and a batch has one."""
    now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    with PostgresJournal(dsn, bandit=bandit) as journal:
        ((earliest,),) = meddle(dsn, now)
        journal.append([Void("a", 1), Void("b", 1)])
        ((latest,),) = meddle(dsn, now)
        first, second = (record.recorded for record in journal.read(0, 0, 9))
    assert isinstance(earliest, int)
    assert isinstance(latest, int)
    assert earliest <= first == second <= latest


def test_the_number_of_partitions_is_fixed(dsn: str, bandit: str) -> None:
    """The error has the right number; None accepts it, and means 1 in a new journal."""
    PostgresJournal(dsn, bandit=bandit, partitions=8).close()
    with pytest.raises(JournalMismatch, match="partitions=8"):
        PostgresJournal(dsn, bandit=bandit, partitions=4)
    with PostgresJournal(dsn, bandit=bandit) as journal:
        assert journal.partitions == 8
    with PostgresJournal(dsn, bandit=f"{bandit} too") as journal:
        assert journal.partitions == 1


def test_bandits_of_one_database_are_apart(dsn: str, bandit: str) -> None:
    """Records, positions, stamps, identities and snapshots; names may contain anything."""
    hostile_name = f"{bandit}'; DROP SCHEMA belated; -- %s 🎲"
    with (
        PostgresJournal(dsn, bandit=bandit, partitions=2) as first,
        PostgresJournal(dsn, bandit=hostile_name, partitions=4) as second,
    ):
        first.append([Settled(1, 1)], recorded=[5])
        second.append([Settled(1, 1), Settled(3, 3)], recorded=[3, 3])
        assert [record.event for record in first.read(1, 0, 9)] == [Settled(1, 1)]
        assert (first.last_stamp(1), second.last_stamp(1), second.end(2)) == (5, 3, 0)
        assert (first.identify({"a": "1"}), second.identify({"a": "2"})) == ({"a": "1"}, {"a": "2"})
        first.save(Snapshot(1, 1, "v1", {"ledger": b"one"}))
        assert second.load(1) is None


def test_a_name_or_address_that_is_none_is_refused(dsn: str) -> None:
    """Before connecting; the error does not show the address, which may have a password."""
    with pytest.raises(InvalidInput, match="the bandit's name"):
        PostgresJournal(dsn, bandit="")
    with pytest.raises(InvalidInput, match="postgresql://") as error:
        PostgresJournal("secret? no address", bandit="offers")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"fsync": "off"}, "fsync = off"),
        ({"full_page_writes": "off"}, "full_page_writes = off"),
        ({"synchronous_commit": "off"}, "synchronous_commit = off"),
        ({"synchronous_commit": "local"}, "synchronous_commit = local"),
    ],
)
def test_unsafe_server_settings_are_refused(
    start_postgres: StartPostgres, settings: dict[str, str], complaint: str
) -> None:
    """The error names the setting, and the required value."""
    server = start_postgres(settings)
    try:
        with pytest.raises(JournalError, match=f"{complaint}.*= on"):
            PostgresJournal(server.dsn, bandit="offers")
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ((130_009, False, "on", "on", "on"), "PostgreSQL 13: 14 or later"),
        ((170_001, True, "on", "on", "on"), "a standby.*primary"),
        ((170_001, False, "on", "on", "remote_apply"), None),
    ],
)
def test_what_a_server_must_be(row: tuple[object, ...], complaint: str | None) -> None:
    """Recent enough, a primary, and one that syncs commits."""
    from belated.journals.postgres.session import check_settings

    if complaint is None:
        check_settings(row, "here")
        return
    with pytest.raises(JournalError, match=complaint):
        check_settings(row, "here")


def test_what_was_checked_is_held(dsn: str, bandit: str) -> None:
    """A later change of a setting does not affect an open journal; waits are bounded."""
    try:
        with PostgresJournal(dsn, bandit=bandit, wait=7.0) as journal:
            meddle(dsn, "ALTER SYSTEM SET synchronous_commit = off")
            meddle(dsn, "SELECT pg_reload_conf()")
            while meddle(dsn, "SHOW synchronous_commit") == [("on",)]:
                time.sleep(0.01)
            with pytest.raises(JournalError, match="synchronous_commit"):
                PostgresJournal(dsn, bandit=bandit)
            settings = journal._session._run(
                lambda connection: connection.execute(
                    "SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit',"
                    " 'lock_timeout', 'statement_timeout', 'default_transaction_isolation')"
                ).fetchall()
            )
    finally:
        meddle(dsn, "ALTER SYSTEM RESET synchronous_commit")
        meddle(dsn, "SELECT pg_reload_conf()")
        while meddle(dsn, "SHOW synchronous_commit") == [("off",)]:
            time.sleep(0.01)
    assert {name: value for name, value in settings} == {
        "synchronous_commit": "on",
        "lock_timeout": "7000",
        "statement_timeout": "7500",
        "default_transaction_isolation": "read committed",
    }


def test_without_psycopg_only_using_it_fails() -> None:
    """The package can be imported; the error has the pip command."""
    code = """
import sys
sys.modules["psycopg"] = None
from belated.exceptions import MissingExtra
from belated.journals import PostgresJournal
try:
    PostgresJournal("postgresql://localhost/offers", bandit="offers")
except MissingExtra as error:
    sys.exit("pip install 'belated[postgres]'" not in str(error))
sys.exit(2)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_does_not_load_psycopg() -> None:
    """It is loaded with the first PostgresJournal."""
    code = "import sys, belated.journals; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_people_can_read_the_tables(dsn: str, bandit: str) -> None:
    """A view shows bandit, partition, position and time."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        journal.append([Reward("order-1", 1, 0.5)], recorded=[1_700_000_000_000_000])
    rows = meddle(
        dsn,
        "SELECT bandit, partition, position, recorded AT TIME ZONE 'UTC' || '', event "
        "FROM belated.records WHERE bandit = %s",
        bandit,
    )
    event = encode(Reward("order-1", 1, 0.5))
    assert rows == [(bandit, 0, 1, "2023-11-14 22:13:20", event)]


# --- events that come again --------------------------------------------------------------------


def test_an_event_that_comes_again_keeps_its_place(dsn: str, bandit: str) -> None:
    """Alone, among new ones, twice in a call, by another object: it is stored once."""
    a, b, c, d = (Reward(id, 1, 0.5) for id in "abcd")
    with PostgresJournal(dsn, bandit=bandit) as first, PostgresJournal(dsn, bandit=bandit) as rival:
        assert first.append([a, b]) == [1, 2]
        assert rival.append([b]) == [2]
        assert rival.append([c, a, c, d, b]) == [3, 1, 3, 4, 2]
        assert first.append([Settled(0, 5)]) == first.append([Settled(0, 5)]) == [5]
        assert [r.event for r in first.read(0, 0, 9)] == [a, b, c, d, Settled(0, 5)]


def test_an_event_that_differs_in_anything_is_another(dsn: str, bandit: str) -> None:
    """Time, value, part, revision, kind, the sign of zero."""
    events: list[Event] = [
        Reward("a", 1, 0.0), Reward("a", 1, -0.0), Reward("a", 2, 0.0), Reward("a", 1, 0.0, "x"),
        Reward("a", 1, 0.0, "", 1), Void("a", 1), Void("a", 2), Reward("b", 1, 0.0),
    ]  # fmt: skip
    with PostgresJournal(dsn, bandit=bandit) as journal:
        assert journal.append(events) == list(range(1, 9))


def test_the_same_event_in_other_partitions_is_another(dsn: str, bandit: str) -> None:
    """As an unreadable event of two partitions is when it is imported."""
    opaque = Opaque(b"\xc8from a release to come")
    with PostgresJournal(dsn, bandit=bandit, partitions=2) as journal:
        journal.import_records(
            [Record(0, 1, 5, opaque), Record(1, 1, 5, opaque), Record(1, 2, 5, opaque)]
        )
        assert (journal.end(0), journal.end(1)) == (1, 1)


def test_two_events_with_one_mark_are_not_mixed_up(dsn: str, bandit: str) -> None:
    """If hashes ever collide, the second event is rejected: nothing is dropped silently."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        journal.append([Void("a", 1)])
        meddle(dsn, "UPDATE belated.record SET digest = '\\x00' WHERE bandit = %s", journal.number)
        with pytest.raises(JournalError, match="record_is_new"):
            journal.append([Void("a", 1)])
        assert journal.end(0) == 1


# --- threads, forks ----------------------------------------------------------------------------


def test_threads_may_share_a_journal(dsn: str, bandit: str) -> None:
    """Four threads append and read at once: no event is lost or duplicated, positions are dense."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        assert_threads_may_share(journal)


FORK = """
import os, sys
from belated.core.events import Settled, Void
from belated.journals import PostgresJournal
from belated.journals.snapshots import Snapshot
journal = PostgresJournal(sys.argv[1], bandit=sys.argv[2])
journal.append([Void("before", 1)])
journal.acquire(0)
to_child, from_parent = os.pipe()
child = os.fork()
if child == 0:
    journal.append([Void("child", 1)])
    os.read(to_child, 1)  # until the parent has closed the journal
    journal.append([Void("child", 2)])
    assert journal._epochs.get((os.getpid(), 0)) is None
    os._exit(0)
journal.append([Void("parent", 1)])
os.write(from_parent, b"!")
assert os.waitpid(child, 0)[1] == 0
journal.append([Void("parent", 2)])  # the child has not closed what it inherited
journal.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_journal_may_be_used_on_both_sides_of_a_fork(dsn: str, bandit: str) -> None:
    """Each side has its own connection, and the child owns nothing."""
    subprocess.run([sys.executable, "-W", "error", "-c", FORK, dsn, bandit], check=True)
    with PostgresJournal(dsn, bandit=bandit) as journal:
        events = {record.event for record in journal.read(0, 0, 100)}
    assert events == {
        Void("before", 1), Void("child", 1), Void("child", 2), Void("parent", 1), Void("parent", 2)
    }  # fmt: skip


def test_what_cannot_be_written_leaves_nothing(dsn: str, bandit: str) -> None:
    """A lone surrogate, a time beyond 64 bits, a closed journal."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        with pytest.raises(ValueError, match="surrogate"):
            journal.append([Void("a", 1), Void("\ud800", 1)])
        with pytest.raises(InvalidInput, match="out of range"):
            journal.append([Void("a", 1)], recorded=[2**63])
        assert journal.append([Void("a", 1)]) == [1]
        journal.close()
        with pytest.raises(JournalClosed):
            journal.acquire(0)


def test_large_rows_survive(dsn: str, bandit: str) -> None:
    """A decision of a thousand numbers, and a page of them."""
    import numpy as np

    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    events: list[Event] = [Decision(f"{n}", n, "a", 0, x, 0.5, 1.0, 0) for n in range(300)]
    with PostgresJournal(dsn, bandit=bandit) as journal:
        journal.append(events)
        assert [record.event for record in journal.read(0, 0, 1000)] == events


def test_deallocated_statements_are_prepared_again(dsn: str, bandit: str) -> None:
    """As psycopg does with all of them after a rollback: appends still work."""
    with filled(dsn, bandit) as journal:
        journal._session._run(lambda connection: connection.execute("DEALLOCATE ALL"))
        assert journal.append([Reward("later", 9, 0.5)]) == [4]
        assert journal.append([Reward("later still", 9, 0.5)]) == [5]
