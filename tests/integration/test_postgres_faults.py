"""A bandit on a PostgreSQL that runs out of space, or whose records or snapshots are damaged.

Each time the error says what is wrong and what to do, no part of a batch is stored, and the same
bandit continues afterwards. The disk is really full: a small one, with the whole server on it.
Only root can mount it; for others the tests of the disk are skipped. Broken connections, and
servers that hang or die, are in test_postgres_trouble.py; damage as the journal alone sees it is in
test_postgres_journal.py.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import psycopg
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.exceptions import CorruptEvent, JournalUnavailable, SnapshotWarning
from belated.journals import PostgresJournal
from belated.journals.cells import cell_name
from tests.integration.damage import flip, meddle
from tests.integration.postgres_server import PostgresServer, StartPostgres
from tests.integration.small_disk import SmallDisk
from tests.waiting import eventually

DIM = 50
OFFER = np.eye(2, DIM)


def opened(dsn: str, name: str, wait: float = 5.0) -> Bandit:
    """Open a bandit on a server."""
    journal = PostgresJournal(dsn, bandit=name, wait=wait)
    try:
        policy = DelayedUCB(DIM, Bernoulli())
        return Bandit(policy=policy, rewards=Explicit(), journal=journal, seed=0)
    except BaseException:
        journal.close()
        raise


def journal_of(bandit: Bandit) -> PostgresJournal:
    """Return its journal with its actual type."""
    assert isinstance(bandit.journal, PostgresJournal)
    return bandit.journal


def assert_whole(bandit: Bandit, decisions: int) -> None:
    """Check that it knows this many decisions, and equals a replay of the journal."""
    bandit.sync()
    assert sum(bandit.decision_counts.values()) == decisions
    assert bandit.as_of("9999-12-31T00:00Z").digest == bandit.digest


# --- no room -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def any_disk() -> Iterator[SmallDisk]:
    """A small disk if it can be mounted, or else the normal one."""
    small_disk = SmallDisk()
    yield small_disk
    small_disk.close()


@pytest.fixture
def disk(any_disk: SmallDisk) -> Iterator[SmallDisk]:
    """A small disk, with free space at the beginning and at the end."""
    if not any_disk.mounted:
        pytest.skip("only root can mount a small disk")
    yield any_disk
    any_disk.make_room()


@pytest.fixture(scope="module")
def narrow(any_disk: SmallDisk, start_postgres: StartPostgres) -> Iterator[PostgresServer]:
    """A server with everything on the small disk, and with few connections."""
    any_disk.place.chmod(0o777)
    settings = {"max_connections": "5", "superuser_reserved_connections": "0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(any_disk.place))
        server = start_postgres(settings)
    try:
        PostgresJournal.create_tables(server.dsn)
        yield server
    finally:
        any_disk.make_room()
        server.stop()


def test_a_full_disk_takes_nothing_of_a_batch(
    narrow: PostgresServer, disk: SmallDisk, bandit: str
) -> None:
    """The error says so; reads work meanwhile, and with free space the same call succeeds."""
    with opened(narrow.dsn, bandit) as live_bandit:
        live_bandit.observe(live_bandit.decide(rows=OFFER).id, 1.0)
        digest, end = live_bandit.digest, live_bandit.journal.end(0)
        disk.fill()
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match=r"No space left.*make room.*safe"):
                live_bandit.decide_many(rows=[OFFER] * 300)
            live_bandit.sync()
            assert (live_bandit.digest, live_bandit.journal.end(0)) == (digest, end)
        disk.make_room()
        assert len(live_bandit.decide_many(rows=[OFFER] * 300)) == 300
        assert_whole(live_bandit, 301)


def test_server_stopped_by_full_disk_recovers(
    narrow: PostgresServer, disk: SmallDisk, bandit: str
) -> None:
    """It stops when its own log has no space; after a restart with free space, everything works."""
    with opened(narrow.dsn, bandit) as live_bandit:
        live_bandit.decide(rows=OFFER)
        disk.fill()
        with suppress(psycopg.Error):
            while True:  # on to the next file of that log, until there is no room for one
                meddle(narrow.dsn, "SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()")
        assert "PANIC" in narrow.log()
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match=r"is unavailable.*safe"):
                live_bandit.decide_many(rows=[OFFER] * 3)
        narrow.kill()  # what may be left of it
        disk.make_room()
        narrow.start()
        assert len(live_bandit.decide_many(rows=[OFFER] * 3)) == 3
        assert_whole(live_bandit, 4)


def test_connections_that_are_all_taken(narrow: PostgresServer, bandit: str) -> None:
    """A bandit that has lost its own waits for a free one, and then continues."""
    connections: list[psycopg.Connection] = []

    def all_taken() -> bool:
        try:
            connections.append(psycopg.connect(narrow.dsn, autocommit=True))
        except psycopg.OperationalError:
            return True
        return False

    with opened(narrow.dsn, bandit) as live_bandit:
        live_bandit.decide(rows=OFFER)
        connection = journal_of(live_bandit)._session._connection
        assert connection is not None
        eventually(all_taken)
        connections[0].execute(
            "SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,)
        )
        eventually(all_taken)
        message = r"too many clients.*close other connections.*safe"
        with pytest.raises(JournalUnavailable, match=message):
            live_bandit.decide_many(rows=[OFFER] * 3)
        with pytest.raises(JournalUnavailable, match=message):
            opened(narrow.dsn, bandit)
        for idle_connection in connections:
            idle_connection.close()
        eventually(lambda: decided(live_bandit, 3))
        assert_whole(live_bandit, 4)


def decided(bandit: Bandit, offers: int) -> bool:
    """Return whether it could decide."""
    try:
        return len(bandit.decide_many(rows=[OFFER] * offers)) == offers
    except JournalUnavailable:
        return False


def test_a_partition_that_another_holds(dsn: str, bandit: str) -> None:
    """The call times out with the reason; the state is unchanged, and calls succeed later."""
    with opened(dsn, bandit, wait=0.2) as live_bandit:
        live_bandit.decide(rows=OFFER)
        digest = live_bandit.digest
        with psycopg.connect(dsn) as blocker:
            blocker.execute(
                "SELECT FROM belated.partition WHERE bandit = %s FOR UPDATE",
                (journal_of(live_bandit).number,),
            )
            start = time.monotonic()
            with pytest.raises(JournalUnavailable, match=r"lock timeout.*locked the partition"):
                live_bandit.decide_many(rows=[OFFER] * 3)
            assert time.monotonic() - start < 20  # it waits for 0.2 s, or for ever
            live_bandit.sync()
            assert live_bandit.digest == digest
        assert len(live_bandit.decide_many(rows=[OFFER] * 3)) == 3
        assert_whole(live_bandit, 4)


# --- damage ------------------------------------------------------------------------------------


def play(bandit: Bandit, rounds: int) -> list[str]:
    """Decide and report rewards for some rounds; return the ids."""
    ids = []
    for n in range(rounds):
        ids.append(bandit.decide(rows=OFFER).id)
        bandit.observe(ids[-1], float(n % 2))
    return ids


def test_fold_stops_at_flipped_bit(dsn: str, bandit: str) -> None:
    """It names the position each time, folds nothing after it, and continues after the repair."""
    with opened(dsn, bandit) as writer, opened(dsn, bandit) as reader:
        settled_ids = play(writer, 3)
        reader.sync()
        damaged_ids = play(writer, 20)
        target = (dsn, "event", "bandit = %s AND position = 21", journal_of(writer).number)
        flip(*target)
        for _ in range(2):
            with pytest.raises(CorruptEvent, match="partition 0, position 21 "):
                reader.sync()
            assert 6 <= reader._fold.positions[0] < 21
            with pytest.raises(CorruptEvent, match="partition 0, position 21 "):
                reader.entry(settled_ids[0])  # it too would read what is new
            (ledger,) = reader._fold.ledgers.values()
            entries = [ledger.entry(id) for id in settled_ids]
            assert all(entry is not None and entry.state == "rewarded" for entry in entries)
            assert all(ledger.entry(id) is None for id in damaged_ids[10:])
        with pytest.raises(CorruptEvent, match="partition 0, position 21 "):
            opened(dsn, bandit)
        flip(*target)
        reader.sync()
        assert reader.digest == writer.digest
        play(reader, 1)
        assert_whole(reader, 24)


def test_snapshot_with_flipped_bit_is_rebuilt(dsn: str, bandit: str) -> None:
    """Whichever piece it is in, the state is the same, and the next opening finds a good one."""
    with opened(dsn, bandit) as live_bandit:
        play(live_bandit, 20)
        live_bandit.decide(rows=OFFER)
        digest = live_bandit.digest
    prefix = cell_name("snapshot-piece", bandit, "")
    query = "SELECT name FROM belated.cell WHERE starts_with(name, %s) AND length(value) > 0"
    count = len(meddle(dsn, query, prefix))
    assert count
    for n in range(count):
        flip(dsn, "value", "name = %s", *meddle(dsn, f"{query} ORDER BY name", prefix)[n])
        with pytest.warns(SnapshotWarning, match="partition 0"):
            rebuilt = opened(dsn, bandit)
        assert rebuilt.digest == digest
        rebuilt.close()
        with opened(dsn, bandit) as reopened:  # a warning would be an error here
            assert reopened.digest == digest
