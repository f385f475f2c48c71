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
        return {finding.check: finding for finding in examine(file)}

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
    findings = examined(offers, server=spool)
    assert {finding.state for finding in findings.values()} == {"ok"}, findings
    assert EVERYWHERE | OF_STORE[open_store(offers).name] == findings.keys()
    assert "somebody; its lease expires in" in findings["leader of offers"].what
    assert main(["doctor", str(tmp_path / "belated.toml")]) == 0
    assert "ok       model of offers: it is " in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "belated.toml"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["findings"][0] == {"check": "config", "state": "ok", "what": "bandits: offers"}


def test_a_server_that_loses_events_is_wrong(
    examined: Examine, start_postgres: StartPostgres, tmp_path: Path
) -> None:
    """Each setting is named; without tables nothing else is checked."""
    server = start_postgres(
        {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "local"}
    )
    try:
        findings = examined(server.dsn)
        assert main(["doctor", str(tmp_path / "belated.toml")]) == 1
    finally:
        server.stop()
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        assert findings[name].state == "wrong"
        assert "acknowledged events can be lost" in findings[name].what
        assert f"set {name} = on" in findings[name].mend
    assert (findings["tables"].state, findings["tables"].what) == ("wrong", "they do not exist")
    assert findings["spool"].state == "warning"
    assert findings["store"].state == "ok"
    assert "journal of offers" not in findings


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
            finding = examined(server.dsn)["failover"]
    finally:
        server.stop()
    assert (finding.state, said in finding.what) == (state, True), finding


def test_a_database_that_is_not_there(examined: Examine) -> None:
    """The error shows the address; everything else is still checked."""
    findings = examined("postgresql://localhost:1/belated?password=secret")
    assert findings["store"].state == "wrong"
    assert "'belated' on localhost:1" in findings["store"].what
    assert "secret" not in str(findings)
    assert "open files" in findings


def test_a_file_with_mistakes(tmp_path: Path) -> None:
    """All mistakes are listed, and nothing else is checked."""
    file = tmp_path / "belated.toml"
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    findings = examine(file)
    assert len(findings) == 3
    assert {finding.state for finding in findings} == {"wrong"}


def test_a_clock_that_had_jumped(examined: Examine, address: str, store: Store) -> None:
    """The end of the effect is shown as long as the last stamp is ahead of the clock."""
    store.journal("offers", partitions=1).close()
    assert examined(address)["stamps of offers"].state == "ok"
    with store.journal("jumped") as journal:
        journal.append([Void("a", 1)], recorded=[journal.now() + 86_400_000_000])
    spec = Definition("jumped", DelayedUCB(2, Bernoulli()), Explicit())
    finding = {item.check: item for item in examine_bandits(store, [spec])}["stamps of jumped"]
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
    findings = examined(offers.replace("belated@", "poor@"))
    assert findings["rights"].state == "wrong"
    assert "INSERT on cell" in findings["rights"].what
    assert "GRANT USAGE ON SCHEMA belated TO poor" in findings["rights"].mend
    assert "GRANT INSERT ON belated.record TO poor" in findings["rights"].mend
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
    findings = examined(offers, partitions=4, server=f'spool_dir = "{tmp_path}"')
    assert findings["journal of offers"].state == "wrong"
    assert "partitions: 1, but 4 in the configuration" in findings["journal of offers"].what
    assert findings["leader of offers"].state == "warning"
    assert findings["model of offers"].state == "wrong"
    assert findings["spool room"].state == "warning"
    assert findings["spool of offers"].state == "wrong"
    (tmp_path / "offers.1.spool").unlink()
    findings = examined(offers, server=f'spool_dir = "{tmp_path}"')
    assert findings["spool of offers"].state == "warning"
    assert (
        "2 undelivered events of stopped processes in 1 files" in findings["spool of offers"].what
    )


def test_a_file_that_is_not_there_yet(examined: Examine, tmp_path: Path) -> None:
    """It is reported but not created; a missing folder is wrong."""
    findings = examined(f"sqlite:///{tmp_path}/new.db")
    assert (findings["store"].state, findings["store"].mend) == (
        "warning",
        "start the service, which creates it",
    )
    assert not (tmp_path / "new.db").exists()
    assert "journal of offers" not in findings
    findings = examined(f"sqlite:///{tmp_path}/none/new.db")
    assert findings["store"].state == "wrong"
    assert "is not writable" in findings["store"].what


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
    findings = examined(f"sqlite:///{path}")
    assert (findings["permissions"].state, findings["permissions"].mend) == (
        "warning",
        f"chmod 600 {path}",
    )
    assert findings["write-ahead log"].state == "wrong"
    assert (findings["local disk"].state, findings["sync"].state) == ("wrong", "warning")
    assert findings["spool"].state == "ok"  # it would be on the same disk
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    findings = examined(f"sqlite:///{path}")
    assert findings["integrity"].state == "wrong"
    path.write_bytes(b"something else entirely, and long enough to be looked at" * 99)
    findings = examined(f"sqlite:///{path}")
    assert "not a belated journal" in findings["integrity"].what
    assert "journal of offers" not in findings


def test_what_a_folder_is_on_is_told(tmp_path: Path) -> None:
    """By the nearest mount point."""
    assert doctor.file_system(Path("/proc/self")) == "proc"
    assert doctor.file_system(tmp_path) not in (None, "proc", *doctor.REMOTE)
