"""PostgreSQL in production: behind a pooler, in pairs, and with its own timeouts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from belated.core.events import Void
from belated.exceptions import JournalError, JournalUnavailable
from belated.journals import PostgresJournal, open_store
from tests.integration.pooler import pooled
from tests.integration.postgres_server import PostgresServer, require_programs
from tests.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with tables."""
    require_programs()
    postgres = PostgresServer()
    PostgresJournal.create_tables(postgres.dsn)
    yield postgres
    postgres.stop()


def _alone() -> Iterator[PostgresServer]:
    require_programs()
    postgres = PostgresServer()
    PostgresJournal.create_tables(postgres.dsn)
    yield postgres
    postgres.stop()


#: A server and another that takes over. A standby would know the same bandits by the same numbers;
#: so do two that are both empty.
first = pytest.fixture(_alone)
second = pytest.fixture(_alone)


# --- poolers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_connections_is_refused_at_the_start(
    server: PostgresServer, mode: str
) -> None:
    """The error says what it is, why not, and what to do; nothing was written."""
    with pooled(server, mode) as dsn:
        with pytest.raises(JournalError, match=r"pool_mode = transaction.*pool_mode = session"):
            PostgresJournal(dsn, bandit="pooled")
        with pytest.raises(JournalError, match="shares connections between transactions"):
            open_store(dsn).session()
    assert "pooled" not in [check.name for check in open_store(server.dsn).describe()]


def test_a_pooler_that_keeps_sessions_apart_works(server: PostgresServer) -> None:
    """Two journals over it, and many calls of each."""
    with (
        pooled(server, "session") as dsn,
        PostgresJournal(dsn, bandit="sessions") as first_journal,
        PostgresJournal(dsn, bandit="sessions") as second_journal,
    ):
        for n in range(10):
            assert first_journal.append([Void(f"one {n}", n)]) == [2 * n + 1]
            assert second_journal.append([Void(f"two {n}", n)]) == [2 * n + 2]


# --- two servers ---------------------------------------------------------------------------------


def pair_of(*servers: PostgresServer) -> str:
    """Return an address with several hosts, in this order."""
    hosts = ",".join(f"127.0.0.1:{host.port}" for host in servers)
    return f"postgresql://belated@{hosts}/postgres"


def read_only(server: PostgresServer, state: str) -> None:
    """Have a server refuse events, or accept them again, and wait until it does."""

    def shown() -> tuple[str] | None:
        with psycopg.connect(server.dsn) as connection:
            return connection.execute("SHOW default_transaction_read_only").fetchone()

    server.execute(f"ALTER SYSTEM SET default_transaction_read_only = {state}")
    server.execute("SELECT pg_reload_conf()")
    eventually(lambda: shown() == (state,))


def test_of_two_hosts_the_one_that_is_there(first: PostgresServer, second: PostgresServer) -> None:
    """Whichever is first in the address; if it stops, calls go to the other one.

    Each server has its own number for the bandit, which is looked up again after the first failure.
    """
    address = pair_of(first, second)
    open_store(second.dsn).journal("failover").close()
    with open_store(address).journal("failover") as journal:
        assert journal.append([Void("a", 1)]) == [1]
        first.kill()
        with pytest.raises(JournalUnavailable, match="lost the registration"):
            journal.append([Void("b", 2)])
        assert journal.append([Void("b", 2)]) == [1]  # by the one that takes over
        assert [record.event for record in journal.read(0, 0, 10)] == [Void("b", 2)]
    with open_store(address).journal("failover") as journal:
        assert journal.end(0) == 1
    with open_store(second.dsn).journal("failover") as journal:
        assert journal.end(0) == 1


def test_of_two_hosts_the_one_that_takes_events(
    first: PostgresServer, second: PostgresServer
) -> None:
    """A standby, or one that was made read-only, is skipped, also while a journal is open."""
    address = pair_of(first, second)
    with open_store(address).journal("demoted") as journal:
        assert journal.append([Void("a", 1)]) == [1]
        read_only(first, "on")
        with open_store(address).journal("demoted") as demoted:
            assert demoted.append([Void("b", 2)]) == [1]
        journal._session._connection.execute("SET default_transaction_read_only = on")  # type: ignore[attr-defined]
        with pytest.raises(JournalUnavailable, match="lost the registration"):
            journal.append([Void("c", 3)])
        assert journal.append([Void("c", 3)]) == [2]  # after the record of `demoted`
    with open_store(second.dsn).journal("demoted") as journal:
        assert journal.end(0) == 2


def test_where_no_host_takes_events_it_says_so(first: PostgresServer) -> None:
    """It continues as soon as one of them accepts events."""
    read_only(first, "on")
    address = pair_of(first, first)
    with pytest.raises(JournalUnavailable, match="read-only"):
        open_store(address).journal("nobody")
    read_only(first, "off")
    with open_store(address).journal("nobody") as journal:
        assert journal.append([Void("a", 1)]) == [1]


# --- time-outs -----------------------------------------------------------------------------------


def test_time_outs_of_a_role_do_not_matter(server: PostgresServer) -> None:
    """Statements have the journal's timeout; an idle session is reconnected."""
    server.execute("CREATE ROLE hurried SUPERUSER LOGIN")
    server.execute("ALTER ROLE hurried SET statement_timeout = '200ms'")
    server.execute("ALTER ROLE hurried SET idle_session_timeout = '100ms'")
    server.execute("ALTER ROLE hurried SET idle_in_transaction_session_timeout = '200ms'")
    server.execute("ALTER ROLE hurried SET lock_timeout = '200ms'")
    address = server.dsn.replace("belated@", "hurried@")
    with open_store(address).journal("hurried") as journal:
        for n in range(3):
            assert journal.append([Void(f"v{n}", n)]) == [n + 1]
            time.sleep(0.3)  # the server ends the session
        assert journal.end(0) == 3
        journal.identify({"family": "any"})  # a transaction of several statements
        setting = journal._session._connection.execute("SHOW statement_timeout")  # type: ignore[attr-defined]
        assert setting.fetchone() == ("10500ms",)
