"""A database that is restored to an older state while deciders are running."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Void
from belated.exceptions import JournalMismatch, JournalUnavailable
from belated.journals import PostgresJournal
from belated.journals.cells import cell_name
from belated.journals.postgres.store import PostgresStore
from belated.journals.store import Batch
from belated.service import Definition, Service
from belated.service.serving.spools import SpoolFolder
from tests.integration.postgres_server import PostgresServer, find_programs
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]
OFFERS = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)


def program(name: str, *arguments: object) -> None:
    """Return the path of a PostgreSQL program."""
    folder = find_programs()
    assert folder is not None
    subprocess.run([str(folder / name), *map(str, arguments)], check=True, capture_output=True)


def wipe(admin: str, base: str) -> None:
    """Empty a database."""
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {base} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {base}".encode())


def test_a_decider_that_is_ahead_of_the_journal_recovers(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """It responds all the time, and then has the model of the restarted learner."""
    dsn = f"{postgres.dsn.rpartition('/')[0]}/restored"
    wipe(postgres.dsn, "restored")
    PostgresJournal.create_tables(dsn)
    decides = Service([OFFERS], dsn, spools=SpoolFolder(tmp_path))
    with served(decides) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        offers = decides.bandits["offers"]

        def decide(count: int, value: float | None = 1.0) -> None:
            for _ in range(count):
                answer = http.post("/v1/offers/decisions", json={"rows": ROWS})
                assert answer.status_code == 201, answer.text
                if value is not None:
                    path = f"/v1/offers/decisions/{answer.json()['id']}/reward"
                    assert http.put(path, json={"value": value}).status_code == 202

        with served(Service([OFFERS], dsn, learn=True)):
            decide(10)
            eventually(lambda: offers.version == 21)  # the first record says what the bandit is
            program("pg_dump", "-Fc", "-d", dsn, "-f", tmp_path / "backup")
            decide(20)
            eventually(lambda: offers.version == 61)
        # Learners are stopped; deciders need not be.
        wipe(postgres.dsn, "restored")
        decide(5)  # while there are no tables
        assert offers.spool is not None
        assert offers.spool.journal_down
        # In one transaction: a decider must not write into tables that are not filled yet.
        program("pg_restore", "--single-transaction", "-d", dsn, tmp_path / "backup")
        eventually(lambda: offers.spool is not None and offers.spool.queued == 0)
        with served(Service([OFFERS], dsn, learn=True)):
            eventually(lambda: offers.version == 31, "it stays with the model of before")
            assert offers.decider.model.n == 15
            decide(20)
            eventually(lambda: offers.version == 71 and len(offers.decider.unapplied) == 0)
            assert (offers.decider.model.n, offers.decider.model.pending) == (35, 0)


def ids_in(journal: PostgresJournal) -> list[str]:
    """Return the ids of all events in a journal of one partition."""
    return [record.event.id for record in journal.read(0, 0, 100) if isinstance(record.event, Void)]


def lose_registration(dsn: str, bandit: str) -> None:
    """Remove a bandit, as a standby without the last commits does; connections stay open."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        number = journal.number
    with psycopg.connect(dsn) as connection:
        for table in ("record", "partition"):
            connection.execute(f"DELETE FROM belated.{table} WHERE bandit = %s".encode(), [number])
        parameters = [cell_name("bandit", bandit)]
        connection.execute("DELETE FROM belated.cell WHERE name = %s", parameters)


def test_bandit_lost_by_a_restore_never_writes_to_another_journal(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Its next append fails and writes nothing; the one after registers the bandit again."""
    dsn = f"{postgres.dsn.rpartition('/')[0]}/numbers"
    wipe(postgres.dsn, "numbers")
    PostgresJournal.create_tables(dsn)
    PostgresJournal(dsn, bandit="old").close()
    program("pg_dump", "-Fc", "-d", dsn, "-f", tmp_path / "backup")
    with (
        PostgresJournal(dsn, bandit="lost") as old_journal,
        closing(PostgresStore(dsn).session()) as session,
    ):
        journals = [session.journal(name) for name in ("old", "lost")]
        identity = {"family": "Bernoulli()", "dim": "2", "features": ""}
        old_journal.identify(identity)
        old_journal.append([Void("before", 1)])
        wipe(postgres.dsn, "numbers")
        program("pg_restore", "--single-transaction", "-d", dsn, tmp_path / "backup")
        with PostgresJournal(dsn, bandit="new") as new_journal:
            with pytest.raises(JournalUnavailable, match="lost the registration of a bandit"):
                old_journal.append([Void("refused", 1)])
            with pytest.raises(JournalUnavailable, match="lost the registration of a bandit"):
                session.append_all(
                    [Batch(journal, [Void("refused together", 1)]) for journal in journals]
                )
            assert (ids_in(new_journal), ids_in(journals[0])) == ([], [])
            old_journal.append([Void("after", 1)])
            session.append_all([Batch(journal, [Void("together", 1)]) for journal in journals])
            assert ids_in(new_journal) == []
            assert ids_in(journals[0]) == ["together"]
            assert ids_in(old_journal) == ids_in(journals[1]) == ["after", "together"]
        assert old_journal.identify({}) == identity


def test_a_registration_lost_under_an_open_connection_is_noticed(dsn: str, bandit: str) -> None:
    """Behind a pooler a failover closes no connection: no record is written without a bandit."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        number = journal.number
        journal.append([Void("before", 1)])
        lose_registration(dsn, bandit)
        with pytest.raises(JournalUnavailable, match="retrying registers the bandit"):
            journal.append([Void("refused", 1)])
        with psycopg.connect(dsn) as connection:
            count = "SELECT count(*) FROM belated.record WHERE bandit = %s"
            assert connection.execute(count, [number]).fetchone() == (0,)
        assert journal.append([Void("after", 1)]) == [1]
        assert ids_in(journal) == ["after"]


def test_a_bandit_registered_again_with_other_partitions_is_refused(dsn: str, bandit: str) -> None:
    """Its events would be routed to partitions in which they are never looked up."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        lose_registration(dsn, bandit)
        with PostgresJournal(dsn, bandit=bandit, partitions=4) as registered_again:
            with pytest.raises(JournalUnavailable):
                journal.append([Void("refused", 1)])
            with pytest.raises(JournalMismatch, match="has 4 partitions, not 1"):
                journal.append([Void("refused", 1)])
            assert [registered_again.end(partition) for partition in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("more", [(), ("--trim",)])
def test_the_drill_gives_the_same_back(postgres: PostgresServer, more: tuple[str, ...]) -> None:
    """As in benchmarks/restore.py; also for a trimmed journal."""
    script = Path(__file__).parents[2] / "benchmarks" / "restore.py"
    result = subprocess.run(
        [sys.executable, str(script), "--events", "5000", *more],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert ": the same" in result.stdout
    assert not more or re.match(r"[1-3],\d+ records dropped", result.stdout)
