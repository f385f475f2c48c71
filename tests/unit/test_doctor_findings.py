"""What the doctor makes of the answers of a server, a folder and a store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from belated.exceptions import JournalError
from belated.journals.postgres.queries import VERSION
from belated.journals.postgres.rights import Role
from belated.service.operating import doctor
from belated.service.operating.doctor import Finding, examine

SOUND: dict[str, list[tuple[Any, ...]]] = {
    "settings": [(150_000, False, "on", "on", "on")],
    "standbys": [(0, "", "on")],
    "has_tables": [(True,)],
    "version": [(VERSION, 1)],
}


class Server:
    """Answers as it is told; its clock is as far from ours as is said."""

    name = "postgresql"
    place = "PostgreSQL at db1"

    def __init__(self, seconds: float = 0.0, **answers: list[tuple[Any, ...]]) -> None:
        self._answers, self._seconds = SOUND | answers, seconds

    def inspect(self) -> Server:
        """It is there."""
        return self

    def run_query(self, name: str) -> list[tuple[Any, ...]]:
        """One that is known, or fails."""
        if name == "clock":
            return [(time.time_ns() // 1000 + round(1e6 * self._seconds),)]
        if name not in self._answers:
            raise JournalError(f"{name} was refused")
        return self._answers[name]

    def close(self) -> None:
        """Nothing is held."""


def findings(monkeypatch: pytest.MonkeyPatch, server: Server) -> dict[str, Finding]:
    """What is found of it, by the check; rights are those of another test."""

    def rights(look: Server, roles: list[Role]) -> Finding:
        return Finding("rights", "ok", "")

    monkeypatch.setattr(doctor, "_rights", rights)
    results = doctor.examine_postgres(server, ["decider"])  # type: ignore[arg-type]
    return {finding.check: finding for finding in results}


def test_a_sound_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is well."""
    by_check = findings(monkeypatch, Server())
    assert {finding.state for finding in by_check.values()} == {"ok"}
    assert {"store", "version", "primary", "fsync", "failover", "clock", "tables"} <= {*by_check}


@pytest.mark.parametrize(
    ("server", "check", "state", "what"),
    [
        (Server(settings=[(130_004, False, "on", "on", "on")]), "version", "wrong", "13"),
        (Server(settings=[(150_000, True, "on", "on", "on")]), "primary", "wrong", "standby"),
        (Server(settings=[(150_000, False, "off", "on", "on")]), "fsync", "wrong", "off"),
        (
            Server(settings=[(150_000, False, "on", "on", "local")]),
            "synchronous_commit",
            "wrong",
            "local",
        ),
        (Server(standbys=[(1, "", "on")]), "failover", "warning", "a standby is connected"),
        (Server(standbys=[(2, "a", "local")]), "failover", "warning", "2 standbys are"),
        (Server(standbys=[(2, "a", "on")]), "failover", "ok", "commits wait for a"),
        (Server(seconds=60.0), "clock", "warning", "server's by 60.0 s"),
        (Server(seconds=-60.0), "clock", "warning", "server's by 60.0 s"),
        (Server(has_tables=[(False,)]), "tables", "wrong", "they do not exist"),
        (Server(version=[(1, 1)]), "tables", "wrong", f"version 1, but {VERSION} is required"),
        (Server(version=[(None, 1)]), "tables", "wrong", f"{VERSION} is required"),
        (Server(version=[(VERSION + 2, VERSION + 1)]), "tables", "wrong", "newer"),
    ],
)
def test_what_is_wrong_with_a_server(
    monkeypatch: pytest.MonkeyPatch, server: Server, check: str, state: str, what: str
) -> None:
    """It is told, with how to mend it; all else is well."""
    by_check = findings(monkeypatch, server)
    finding = by_check.pop(check)
    assert (finding.state, bool(finding.mend)) == (state, state != "ok")
    assert what in finding.what
    assert {result.state for result in by_check.values()} == {"ok"}


def test_a_question_that_fails_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the server said."""
    server = Server()
    del server._answers["standbys"]
    by_check = findings(monkeypatch, server)
    assert (by_check["store"].state, by_check["store"].what) == ("wrong", "standbys was refused")
    assert "clock" not in by_check


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Path], Path]:
    """A configuration with a spool in some folder."""

    def write(folder: Path) -> Path:
        config = tmp_path / "belated.toml"
        config.write_text(
            f"""
            [store]
            address = "sqlite:///{tmp_path}/offers.db"
            [server]
            spool_dir = "{folder}"
            spool_max_bytes = 1000000
            [bandits.offers]
            policy = "DelayedUCB(dim=2, family=Bernoulli())"
            rewards = "Explicit()"
            """,
            encoding="utf-8",
        )
        return config

    return write


def spool(file: Path) -> dict[str, Finding]:
    """What is found of the spool and the process."""
    return {
        finding.check: finding
        for finding in examine(file)
        if "spool" in finding.check or "open" in finding.check
    }


def test_a_spool_that_cannot_be_written(file: Callable[[Path], Path], tmp_path: Path) -> None:
    """Nothing beyond is asked of it."""
    (tmp_path / "taken").write_text("a file")
    by_check = spool(file(tmp_path / "taken"))
    assert by_check["spool"].state == "wrong"
    assert "cannot write to" in by_check["spool"].what
    assert "spool room" not in by_check


@pytest.mark.parametrize(("seconds", "state"), [(1e-7, "warning"), (0.002, "ok")])
def test_a_sync_that_takes_no_time_is_none(
    file: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    state: str,
) -> None:
    """It may be memory."""
    monkeypatch.setattr(doctor, "sync_time", lambda path: seconds)
    by_check = spool(file(tmp_path / "spool"))
    assert by_check["spool"].state == state
    assert by_check["spool of offers"].state == "ok"


def test_a_disk_that_is_nearly_full(
    file: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what the spools may grow to."""
    usage = shutil.disk_usage(tmp_path)
    for free, state in ((999_999, "warning"), (1_000_000, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert spool(file(tmp_path / "spool"))["spool room"].state == state


def test_few_open_files(
    file: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is one."""
    resource = pytest.importorskip("resource")
    config = file(tmp_path / "spool")
    for soft, state in ((4095, "warning"), (4096, "ok"), (resource.RLIM_INFINITY, "ok")):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert spool(config)["open files"].state == state
