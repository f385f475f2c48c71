"""``belated doctor``: sound settings are ok, others are named with a remedy."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.cli.main import main
from belated.core.events import Event, Void
from belated.exceptions import JournalUnavailable
from belated.fold.fold import Fold
from belated.journals import MemoryJournal, SpoolJournal, Store, open_store
from belated.journals.log import Requests
from belated.service import Definition
from belated.service.operating import doctor
from belated.service.operating.doctor import Finding, examine, examine_bandits
from tests.integration.postgres_server import StartPostgres


class Away(MemoryJournal):
    """A journal that is unavailable."""

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Raise an error."""
        raise JournalUnavailable("it is away")


#: Examines a store; the bandit is called offers.
Examine = Callable[..., dict[str, Finding]]


@pytest.fixture
def examined(tmp_path: Path) -> Examine:
    """Return the findings by the name of the check."""

    def look(address: str, *, partitions: int = 1, server: str = "") -> dict[str, Finding]:
        file = tmp_path / "belated.toml"
        file.write_text(
            f"""
            [store]
            address = "{address}"
            [server]
            {server}
            [bandits.offers]
            policy = "DelayedUCB(dim=2, family=Bernoulli())"
            rewards = "Explicit()"
            partitions = {partitions}
            """,
            encoding="utf-8",
        )
        return {one.check: one for one in examine(file)}

    return look


def fill(store: Store) -> None:
    """Give the bandit a journal, a leader and a model."""
    store.journal("offers", partitions=1).close()
    coordination = store.coordination("offers")
    epoch = coordination.acquire_lease("somebody", 60)
    assert epoch is not None
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=1)
    coordination.publish(fold.export_model(time.time_ns() // 1000).write(), epoch)
    coordination.close()


@pytest.fixture
def offers(address: str, store: Store) -> str:
    """A store in which the bandit has a journal, a leader and a model."""
    fill(store)
    return address


@pytest.fixture
def offers_in_postgres(dsn: str) -> str:
    """The same, in PostgreSQL."""
    fill(open_store(dsn))
    return dsn


EVERYWHERE = {
    "config", "store", "journal of offers", "stamps of offers", "leader of offers",
    "model of offers", "spool", "spool room", "spool of offers", "open files",
}  # fmt: skip
OF_STORE = {
    "postgresql": {
        "version", "primary", "fsync", "full_page_writes", "synchronous_commit", "failover",
        "clock", "rights", "tables",
    },
    "sqlite": {
        "local disk", "sync", "disk room", "permissions", "write-ahead log", "integrity",
    },
}  # fmt: skip


def test_all_is_well(
    examined: Examine,
    offers: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line per check, as text and as JSON; the exit code is 0."""
    monkeypatch.setattr(doctor, "SYNC", 0.0)  # tests may run in memory
    monkeypatch.setattr(doctor, "FILES", 1)
    monkeypatch.setattr(doctor, "FREE", 1)
    spool = f'spool_dir = "{tmp_path}/spool"\nspool_max_bytes = 100000'
    found = examined(offers, server=spool)
    assert {one.state for one in found.values()} == {"ok"}, found
    assert EVERYWHERE | OF_STORE[open_store(offers).name] == found.keys()
    assert "somebody; its lease expires in" in found["leader of offers"].what
    assert main(["doctor", str(tmp_path / "belated.toml")]) == 0
    assert "ok       model of offers: it is " in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "belated.toml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert told["findings"][0] == {"check": "config", "state": "ok", "what": "bandits: offers"}


def test_a_server_that_loses_events_is_wrong(
    examined: Examine, start_postgres: StartPostgres, tmp_path: Path
) -> None:
    """Each setting is named; without tables nothing else is checked."""
    server = start_postgres(
        {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "local"}
    )
    try:
        found = examined(server.dsn)
        assert main(["doctor", str(tmp_path / "belated.toml")]) == 1
    finally:
        server.stop()
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        assert found[name].state == "wrong"
        assert "acknowledged events can be lost" in found[name].what
        assert f"set {name} = on" in found[name].mend
    assert (found["tables"].state, found["tables"].what) == ("wrong", "they do not exist")
    assert found["spool"].state == "warning"
    assert found["store"].state == "ok"
    assert "journal of offers" not in found


@pytest.mark.parametrize(
    ("settings", "state", "said"),
    [
        ({}, "warning", "commits do not wait for it: a failover can lose events"),
        ({"synchronous_commit": "remote_write"}, "warning", "can lose events"),
        ({"synchronous_commit": "on"}, "ok", "commits wait for *"),
    ],
)
def test_a_standby_that_may_lack_events(
    examined: Examine,
    start_postgres: StartPostgres,
    settings: dict[str, str],
    state: str,
    said: str,
) -> None:
    """A failover to it could lose acknowledged events, unless commits wait for its disk."""
    names = {"synchronous_standby_names": "*"} if settings else {}
    server = start_postgres(names | settings)
    try:
        assert examined(server.dsn)["failover"].what == "no standby is connected"
        # A standby is whoever has a connection for replication.
        with psycopg.connect(f"{server.dsn}?replication=true", autocommit=True):
            found = examined(server.dsn)["failover"]
    finally:
        server.stop()
    assert (found.state, said in found.what) == (state, True), found


def test_a_database_that_is_not_there(examined: Examine) -> None:
    """The error shows the address; everything else is still checked."""
    found = examined("postgresql://localhost:1/belated?password=secret")
    assert found["store"].state == "wrong"
    assert "'belated' on localhost:1" in found["store"].what
    assert "secret" not in str(found)
    assert "open files" in found


def test_a_file_with_mistakes(tmp_path: Path) -> None:
    """All mistakes are listed, and nothing else is checked."""
    file = tmp_path / "belated.toml"
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    found = examine(file)
    assert len(found) == 3
    assert {one.state for one in found} == {"wrong"}


def test_a_clock_that_had_jumped(examined: Examine, address: str, store: Store) -> None:
    """The end of the effect is shown as long as the last stamp is ahead of the clock."""
    store.journal("offers", partitions=1).close()
    assert examined(address)["stamps of offers"].state == "ok"
    with store.journal("jumped") as journal:
        journal.append([Void("a", 1)], recorded=[journal.now() + 86_400_000_000])
    made = Definition("jumped", DelayedUCB(2, Bernoulli()), Explicit())
    finding = {one.check: one for one in examine_bandits(store, [made])}["stamps of jumped"]
    assert finding.state == "wrong"
    assert "s ahead of the store's clock" in finding.what
    assert "no window ends before 20" in finding.what
    assert "NTP" in finding.mend


def test_a_role_without_rights(examined: Examine, offers_in_postgres: str) -> None:
    """The missing privileges are named."""
    offers = offers_in_postgres
    with psycopg.connect(offers, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS poor")
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA belated TO poor")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA belated TO poor")
    found = examined(offers.replace("belated@", "poor@"))
    assert found["rights"].state == "wrong"
    assert "INSERT on cell" in found["rights"].what
    assert "GRANT USAGE ON SCHEMA belated TO poor" in found["rights"].mend
    assert "GRANT INSERT ON belated.record TO poor" in found["rights"].mend
    with psycopg.connect(offers, autocommit=True) as connection:
        connection.execute("DROP OWNED BY poor; DROP ROLE poor")


def test_what_does_not_fit_or_was_left(
    examined: Examine, offers: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions, a leader that is gone, an unusable model, spools of dead processes, disk full."""
    coordination = store.coordination("offers")
    epoch = coordination.acquire_lease("somebody", 60)
    assert epoch is not None
    coordination.publish(b"\x63 of a later release", epoch)
    coordination.release_lease("somebody")
    coordination.close()
    spool = SpoolJournal(Away(bandit="offers"), tmp_path / "offers.0.spool", wait=None)
    spool.append([Void("a", 1), Void("b", 1)])
    spool.close()
    (tmp_path / "offers.1.spool").write_bytes(b"nothing of ours, but long enough to be looked at")
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    found = examined(offers, partitions=4, server=f'spool_dir = "{tmp_path}"')
    assert found["journal of offers"].state == "wrong"
    assert "partitions: 1, but 4 in the configuration" in found["journal of offers"].what
    assert found["leader of offers"].state == "warning"
    assert found["model of offers"].state == "wrong"
    assert found["spool room"].state == "warning"
    assert found["spool of offers"].state == "wrong"
    (tmp_path / "offers.1.spool").unlink()
    found = examined(offers, server=f'spool_dir = "{tmp_path}"')
    assert found["spool of offers"].state == "warning"
    assert "2 undelivered events of stopped processes in 1 files" in found["spool of offers"].what


def test_a_file_that_is_not_there_yet(examined: Examine, tmp_path: Path) -> None:
    """It is reported but not created; a missing folder is wrong."""
    found = examined(f"sqlite:///{tmp_path}/new.db")
    assert (found["store"].state, found["store"].mend) == (
        "warning",
        "start the service, which creates it",
    )
    assert not (tmp_path / "new.db").exists()
    assert "journal of offers" not in found
    found = examined(f"sqlite:///{tmp_path}/none/new.db")
    assert found["store"].state == "wrong"
    assert "is not writable" in found["store"].what


def test_a_file_that_does_not_keep_its_promises(
    examined: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readable by others, without a log, on a remote disk, or damaged."""
    path = tmp_path / "belated.db"
    fill(open_store(f"sqlite:///{path}"))
    path.chmod(0o644)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    monkeypatch.setattr(doctor, "file_system", lambda folder: "nfs4")
    monkeypatch.setattr(doctor, "SYNC", 10.0)
    found = examined(f"sqlite:///{path}")
    assert (found["permissions"].state, found["permissions"].mend) == (
        "warning",
        f"chmod 600 {path}",
    )
    assert found["write-ahead log"].state == "wrong"
    assert (found["local disk"].state, found["sync"].state) == ("wrong", "warning")
    assert found["spool"].state == "ok"  # it would be on the same disk
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    found = examined(f"sqlite:///{path}")
    assert found["integrity"].state == "wrong"
    path.write_bytes(b"something else entirely, and long enough to be looked at" * 99)
    found = examined(f"sqlite:///{path}")
    assert "not a belated journal" in found["integrity"].what
    assert "journal of offers" not in found


def test_what_a_folder_is_on_is_told(tmp_path: Path) -> None:
    """By the nearest mount point."""
    assert doctor.file_system(Path("/proc/self")) == "proc"
    assert doctor.file_system(tmp_path) not in (None, "proc", *doctor.REMOTE)
