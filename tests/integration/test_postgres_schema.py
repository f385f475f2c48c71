"""The tables of the PostgreSQL journal: how they are created, and what is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from belated.cli.main import main
from belated.core.events import Settled, Void
from belated.exceptions import JournalError, UnsupportedFormat
from belated.journals import PostgresJournal
from belated.journals.postgres.queries import VERSION, migrations, query, schema

#: All that the tables are made of, as the server describes it.
CATALOG = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default,
               is_identity, identity_generation
        FROM information_schema.columns WHERE table_schema = 'belated'""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'belated'",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'belated'::regnamespace""",
    "functions": """
        SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'belated'::regnamespace""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'belated'",
    "others": """
        SELECT relname, relkind::text, reloptions FROM pg_class
        WHERE relnamespace = 'belated'::regnamespace""",
    "versions": "SELECT version, oldest FROM belated.migration",
}
_numbers = count()


@pytest.fixture
def empty(dsn: str) -> Iterator[str]:
    """An empty database."""
    yield from _database(dsn)


@pytest.fixture
def other(dsn: str) -> Iterator[str]:
    """Another empty database."""
    yield from _database(dsn)


def _database(dsn: str) -> Iterator[str]:
    name = f"fresh_{next(_numbers)}"
    execute(dsn, f"CREATE DATABASE {name}")
    yield dsn.replace("/postgres", f"/{name}")
    execute(dsn, f"DROP DATABASE {name} WITH (FORCE)")


def execute(dsn: str, statements: str) -> list[tuple[object, ...]]:
    """Run statements."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statements.encode())
        return cursor.fetchall() if cursor.description else []


def catalog(dsn: str) -> dict[str, list[str]]:
    """Return the server's description of the tables."""
    return {kind: sorted(map(repr, execute(dsn, text))) for kind, text in CATALOG.items()}


def test_the_printed_tables_are_those_of_all_migrations(
    empty: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`belated schema`, `belated schema --from 0` and create_tables have the same result."""
    assert main(["schema"]) == 0
    execute(empty, capsys.readouterr().out)
    PostgresJournal.create_tables(other)
    printed = catalog(empty)
    assert printed == catalog(other)
    assert all(printed.values())
    execute(other, "DROP SCHEMA belated CASCADE")
    assert main(["schema", "--from", "0"]) == 0
    execute(other, capsys.readouterr().out)
    assert catalog(other) == printed


def test_every_migration_says_its_version() -> None:
    """Older tables were never released: one step leads to the current version."""
    (step,) = migrations()
    assert f"INSERT INTO belated.migration (version, oldest) VALUES ({VERSION}, " in step
    assert step == schema()
    assert migrations(VERSION) == []


def test_tables_of_no_release_are_not_passed_over(
    empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no migration from them, and the error says so at once."""
    assert main(["schema", "--from", str(VERSION - 1)]) == 2
    output = capsys.readouterr()
    assert f"no migration of the tables from version {VERSION - 1} to" in output.err
    assert not output.out
    PostgresJournal.create_tables(empty)
    execute(empty, f"UPDATE belated.migration SET version = {VERSION - 1}")
    with pytest.raises(JournalError, match="there is no migration"):
        PostgresJournal.create_tables(empty)


def test_present_tables_need_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The output says so."""
    assert main(["schema", "--from", str(VERSION)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_what_is_not_a_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line."""
    assert main(["schema", "--from", "99"]) == 2
    assert "between 0 and" in capsys.readouterr().err


def test_a_database_without_tables_is_refused_with_what_to_do(empty: str) -> None:
    """The error has the command; after it, the journal can be opened."""
    with pytest.raises(JournalError, match=r"belated schema \| psql .*create_tables"):
        PostgresJournal(empty, bandit="offers")
    PostgresJournal.create_tables(empty)
    PostgresJournal.create_tables(empty)  # again does nothing
    with PostgresJournal(empty, bandit="offers") as journal:
        assert journal.append([Void("a", 1)]) == [1]


def test_tables_that_disappear_are_said(empty: str) -> None:
    """As after restoring a backup without them."""
    PostgresJournal.create_tables(empty)
    with PostgresJournal(empty, bandit="offers") as journal:
        execute(empty, "DROP SCHEMA belated CASCADE")
        with pytest.raises(JournalError, match="belated schema"):
            journal.read(0, 0, 1)


def test_older_and_newer_tables(empty: str) -> None:
    """Older: the command to run. Newer: they work if compatible, otherwise an upgrade is needed."""
    PostgresJournal.create_tables(empty)
    execute(empty, f"INSERT INTO belated.migration VALUES ({VERSION + 1}, {VERSION})")
    PostgresJournal(empty, bandit="offers").close()
    execute(empty, f"UPDATE belated.migration SET oldest = {VERSION + 1} WHERE version > {VERSION}")
    with pytest.raises(UnsupportedFormat, match="upgrade belated"):
        PostgresJournal(empty, bandit="offers")
    execute(empty, "DELETE FROM belated.migration")
    with pytest.raises(JournalError, match="belated schema --from 0"):
        PostgresJournal(empty, bandit="offers")


def test_a_role_without_rights_is_told_which(empty: str) -> None:
    """With them it can do everything."""
    PostgresJournal.create_tables(empty)
    execute(empty, "CREATE ROLE clerk LOGIN")
    clerk = empty.replace("belated@", "clerk@")
    try:
        with pytest.raises(JournalError, match="grant"):
            PostgresJournal(clerk, bandit="offers")
        execute(
            empty,
            "GRANT USAGE ON SCHEMA belated TO clerk;"
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA belated TO clerk",
        )
        with PostgresJournal(clerk, bandit="offers") as journal:
            assert journal.append([Void("a", 1)]) == [1]
    finally:
        execute(empty, "DROP OWNED BY clerk; DROP ROLE clerk")


def test_every_query_is_described() -> None:
    """A name, a description, and bound parameters."""
    for name in ("append", "read", "tail", "transact", "settings"):
        assert query(name)
    with pytest.raises(KeyError):
        query("no such query")


def test_appends_use_the_indexes_however_the_table_grew(empty: str) -> None:
    """The plan is made while the table is small, where the planner prefers a full scan."""
    scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'record'"
    reads = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = "
    PostgresJournal.create_tables(empty)
    scans_before = execute(empty, scans)  # to make an index counts as one
    with PostgresJournal(empty, bandit="offers") as journal:
        journal.append([Settled(0, 0)])
        execute(empty, "ANALYZE belated.record")
        for n in range(1, 41):
            journal.append([Settled(0, 50 * n + k) for k in range(50)])
    assert execute(empty, scans) == scans_before
    ((entries_read,),) = execute(empty, f"{reads} 'record_pkey'")
    assert isinstance(entries_read, int)
    assert entries_read <= 41  # the last record, once a call
    assert execute(empty, f"{reads} 'record_is_new'") == [(0,)]
