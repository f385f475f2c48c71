"""A database that was restored to an older moment, under deciders that were further."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import PostgresJournal
from belated.service import Definition, create_app
from belated.service.serving.spools import SpoolFolder
from tests.integration.postgres_server import PostgresServer, find_programs
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]
OFFERS = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)


def program(name: str, *arguments: object) -> None:
    """One of PostgreSQL."""
    folder = find_programs()
    assert folder is not None
    subprocess.run([str(folder / name), *map(str, arguments)], check=True, capture_output=True)


def wipe(admin: str, base: str) -> None:
    """A database with nothing in it."""
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {base} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {base}".encode())


def test_a_decider_that_is_ahead_of_the_journal_recovers(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """It answers all the while, and then has the model of the learner that was started anew."""
    dsn = f"{postgres.dsn.rpartition('/')[0]}/restored"
    wipe(postgres.dsn, "restored")
    PostgresJournal.create_tables(dsn)
    decides = create_app([OFFERS], dsn, spools=SpoolFolder(tmp_path))
    with served(decides) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        offers = decides.bandits["offers"]

        def decide(count: int, value: float | None = 1.0) -> None:
            for _ in range(count):
                answer = http.post("/v1/offers/decisions", json={"rows": ROWS})
                assert answer.status_code == 201, answer.text
                if value is not None:
                    path = f"/v1/offers/decisions/{answer.json()['id']}/reward"
                    assert http.put(path, json={"value": value}).status_code == 202

        with served(create_app([OFFERS], dsn, learn=True)):
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
        with served(create_app([OFFERS], dsn, learn=True)):
            eventually(lambda: offers.version == 31, "it stays with the model of before")
            assert offers.decider.model.n == 15
            decide(20)
            eventually(lambda: offers.version == 71 and len(offers.decider.unapplied) == 0)
            assert (offers.decider.model.n, offers.decider.model.pending) == (35, 0)


@pytest.mark.parametrize("more", [(), ("--trim",)])
def test_the_drill_gives_the_same_back(postgres: PostgresServer, more: tuple[str, ...]) -> None:
    """As benchmarks/restore.py does it; also of a journal that was trimmed."""
    script = Path(__file__).parents[2] / "benchmarks" / "restore.py"
    done = subprocess.run(
        [sys.executable, str(script), "--events", "5000", *more],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ": the same" in done.stdout
    assert not more or re.match(r"[1-3],\d+ records dropped", done.stdout)
