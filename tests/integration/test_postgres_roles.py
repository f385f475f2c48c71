"""A role for each process, with the privileges of the how-to: sufficient, and not more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.cli.main import main
from belated.core.events import Erased, Overwritten, Trimmed, Void
from belated.core.ids import erased_key_of
from belated.exceptions import JournalError
from belated.journals import open_store
from belated.journals.postgres.rights import ROLES, Role, rights_of
from belated.journals.snapshots import Snapshot
from belated.service.operating.doctor import examine
from tests.integration.postgres_server import PostgresServer, StartPostgres
from tests.integration.processes import ROWS, Process, later

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "postgres.md"
#: What the how-to has for psql.
(GRANTS,) = re.findall(r"```sql\n(CREATE ROLE.+?)```", HOWTO.read_text(encoding="utf-8"), re.S)


@pytest.fixture(scope="module")
def server(start_postgres: StartPostgres) -> Iterator[PostgresServer]:
    """A server with the tables and the roles."""
    postgres = start_postgres()
    try:
        open_store(postgres.dsn).create_tables()
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(GRANTS.encode())
        yield postgres
    finally:
        postgres.stop()


def address_for(server: PostgresServer, role: Role) -> str:
    """Return the address with which a process of this kind connects."""
    return server.dsn.replace("belated@", f"belated_{role}@")


#: Writes a configuration; returns its file.
Configure = Callable[..., Path]


@pytest.fixture
def configure(server: PostgresServer, tmp_path: Path) -> Configure:
    """Write the configuration of a process of some kind."""

    def write(role: Role, *lines: str) -> Path:
        file = tmp_path / f"{role}.toml"
        file.write_text(
            f'[store]\naddress = "{address_for(server, role)}"\n[server]\nport = 0\n'
            + "learn = false\n"
            + "\n".join(lines)
            + '\n[bandits.offers]\npolicy = "DelayedUCB(dim=2, family=Bernoulli())"\n'
            + "rewards = \"DefaultAfter('1s')\"\npartitions = 2\n",
            encoding="utf-8",
        )
        return file

    return write


def test_each_role_suffices_for_its_process(
    server: PostgresServer, configure: Configure, tmp_path: Path
) -> None:
    """From an empty database: keys, decisions, rewards, a retry, a model, a mode."""
    operator = str(configure("operator"))
    options = ["--bandit", "offers", "--scope", "decide", "--config", operator]
    assert main(["keys", "create", "shop", *options]) == 0
    decider = Process(tmp_path / "decider", "serve", str(configure("decider")))
    learner = Process(tmp_path / "learner", "learn", str(configure("learner")))
    try:
        decider.heard("serving")
        learner.heard("this learner leads")
        decision_id = decider.decide(id="mine")
        assert decider.decide(id="mine") == decision_id
        decider.reward(decision_id)
        decider.decide()  # nobody rewards it: the learner settles it
        assert decider.ask("GET", f"/v1/offers/decisions/{decision_id}")[0] == 200
        later(lambda: decider.state()["observations"] >= 2)
        assert main(["mode", "offers", "freeze", "--config", operator]) == 0
        later(lambda: decider.state()["mode"] == "freeze")
        learner.send(15)  # it saves a snapshot
        assert learner.ended() == 0
        assert not learner.mentions("permission denied")
        assert not decider.mentions("permission denied")
    finally:
        decider.kill()
        learner.kill()
    with psycopg.connect(server.dsn) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM belated.cell WHERE starts_with(name, 'snapshot/offers/')"
        ).fetchone() or (0,)
    assert count == 2


def test_a_maintainer_can_trim_and_overwrite(server: PostgresServer) -> None:
    """And nothing else."""
    with open_store(server.dsn).journal("old") as journal:
        journal.append([Void("a", 1), Void("b", 1), Erased(erased_key_of("b"), 1)])
        journal.save(Snapshot(0, 3, "v1", {}))
    with open_store(address_for(server, "maintainer")).journal("old") as journal:
        assert journal.overwrite([erased_key_of("b")]) == 1
        journal.rebase(Snapshot(0, 1, "v1", {"ledger": b"one"}), Trimmed(0, 1, 1, 1), 1)
        assert journal.drop(0, 10) == 1
        assert [record.event for record in journal.read(0, 1, 1)] == [
            Overwritten(erased_key_of("b"))
        ]
    for statement in ("TRUNCATE belated.cell", "UPDATE belated.record SET position = 7"):
        with (
            psycopg.connect(address_for(server, "maintainer")) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement.encode())


def test_only_operators_change_keys(server: PostgresServer) -> None:
    """An attacker in a decider or learner cannot create keys."""
    for role in ROLES:
        with closing(open_store(address_for(server, role)).keys()) as keys:
            key = (f"id of {role}", f"for {role}", ["*"], ["read"], None, role.encode())
            if role == "operator":
                assert keys.create(*key)
                assert keys.revoke("id of operator")
                continue
            with pytest.raises(JournalError, match=r"security policy|may not change"):
                keys.create(*key)


def test_no_process_can_change_what_was_appended(server: PostgresServer) -> None:
    """Neither records nor requests, by any statement."""
    with open_store(server.dsn).journal("others") as journal:
        journal.append([])
    for role in set(ROLES) - {"maintainer"}:
        for table in ("record", "request"):
            for statement in (
                f"UPDATE belated.{table} SET position = position + 1",
                f"DELETE FROM belated.{table}",
                f"TRUNCATE belated.{table}",
                f"DROP TABLE belated.{table}",
                f"ALTER TABLE belated.{table} ADD COLUMN more text",
            ):
                with (
                    psycopg.connect(address_for(server, role)) as connection,
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                ):
                    connection.execute(statement.encode())


@pytest.mark.parametrize("role", ROLES)
def test_the_doctor_asks_for_what_a_process_needs_and_no_more(
    server: PostgresServer, configure: Configure, role: Role
) -> None:
    """With the privileges of the how-to, all is well; without any one of them, it is not."""
    file = configure(role)
    checks = {check.check: check for check in examine(file, role)}
    assert checks["rights"].state == "ok", checks["rights"]
    assert "wrong" not in {check.state for check in checks.values()}, checks
    for table, right in rights_of([role]):
        if table in ("record", "cell"):
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute(f"REVOKE {right} ON belated.{table} FROM belated_{role}")
                try:
                    rights = {check.check: check for check in examine(file, role)}["rights"]
                finally:
                    connection.execute(f"GRANT {right} ON belated.{table} TO belated_{role}")
            assert f"{right} on {table}" in rights.what
            assert f"GRANT {right} ON belated.{table} TO belated_{role}" in rights.mend


def test_a_decider_is_not_enough_to_learn(configure: Configure) -> None:
    """A configuration with `learn = true` needs both."""
    file = configure("decider")
    file.write_text(file.read_text().replace("learn = false", "learn = true"), encoding="utf-8")
    checks = {check.check: check for check in examine(file)}
    assert checks["rights"].state == "wrong"
    assert "GRANT DELETE ON belated.cell TO belated_decider" in checks["rights"].mend


def test_a_program_with_a_bandit_needs_both(server: PostgresServer) -> None:
    """It decides, and saves what it has learned."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE program LOGIN IN ROLE belated_decider, belated_learner")
    address = server.dsn.replace("belated@", "program@") + "?bandit=held"
    with Bandit(policy=DelayedUCB(2, Bernoulli()), rewards=Explicit(), journal=address) as bandit:
        assert bandit.observe(bandit.decide(rows=ROWS).id, 1.0).status == "rewarded"
        bandit.save()
