"""Spools of dead processes are delivered or reported, whoever owns the files."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Void
from belated.exceptions import JournalUnavailable, SpoolNotPermitted
from belated.journals import MemoryStore, SpoolJournal, Store
from belated.journals.spool.file import DiskStore
from belated.service import Definition, Service
from belated.service.serving.spools import LeftSpools, SpoolFolder, SpoolRecovery
from tests.integration.serving import served
from tests.waiting import eventually


def leave_behind(path: Path, bandit: str, *ids: str) -> None:
    """Leave a spool, as a process that died while its store was unavailable."""
    journal = MemoryStore().journal(bandit)

    def unavailable(*arguments: Any, **options: Any) -> NoReturn:
        raise JournalUnavailable("it is unavailable")

    journal.append = unavailable  # type: ignore[method-assign]
    spool = SpoolJournal(journal, path, wait=None)
    spool.append([Void(id, 1) for id in ids])
    spool.close()


@pytest.fixture
def take_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Remove the permissions of a file, as if it belonged to another user; simulated for root."""
    blocked_paths: set[str] = set()
    open_file = os.open

    def refusing(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if os.fspath(path) in blocked_paths:
            raise PermissionError(13, "Permission denied", path)
        return open_file(path, flags, *arguments, **options)

    def take(path: Path) -> None:
        if os.geteuid() == 0:
            blocked_paths.add(str(path))
        path.chmod(0)

    def give(path: Path) -> None:
        blocked_paths.discard(str(path))
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)

    monkeypatch.setattr(os, "open", refusing)
    take.give_back = give  # type: ignore[attr-defined]
    return take


def test_file_of_another_user_is_reported_and_delays_nothing(
    store: Store,
    bandit: str,
    tmp_path: Path,
    take_away: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the log and the metrics; other spools are delivered, and this one once it is readable."""
    name = bandit.replace(" ", "-")
    for number in range(3):
        leave_behind(tmp_path / f"{name}.{number}.spool", name, f"left {number}")
    take_away(tmp_path / f"{name}.1.spool")
    app = Service(
        [Definition(name, DelayedUCB(2, Bernoulli()), Explicit())],
        store,
        spools=SpoolFolder(tmp_path),
    )
    with caplog.at_level(logging.WARNING, "belated.service"), served(app) as serving:
        served_bandit = app.bandits[name]
        eventually(lambda: served_bandit.left_spools == LeftSpools(1, 0, {"not_permitted": 1}))
        text = httpx.get(f"{serving.url}/metrics").text
        assert f'belated_spool_left_files{{bandit="{name}"}} 1.0' in text
        assert f'belated_spool_left_events{{bandit="{name}"}} 0.0' in text
        metric = f'belated_spool_unreadable_files{{bandit="{name}",reason='
        assert f'{metric}"not_permitted"}} 1.0' in text
        assert f'{metric}"damaged"}} 0.0' in text
        (line,) = [record for record in caplog.records if hasattr(record, "file")]
        assert line.file == str(tmp_path / f"{name}.1.spool")
        assert "let this user read and write the file" in line.why  # type: ignore[attr-defined]
        with store.journal(name) as journal:
            assert len(journal.records_of(["left 0", "left 1", "left 2"])) == 2
        take_away.give_back(tmp_path / f"{name}.1.spool")
        eventually(lambda: served_bandit.left_spools == LeftSpools(0, 0))
        assert httpx.post(f"{serving.url}/v1/{name}/decisions", json={"rows": [[1, 0]]}).is_success
    with store.journal(name) as journal:
        assert len(journal.records_of(["left 0", "left 1", "left 2"])) == 3


def test_what_cannot_be_delivered_yet_is_counted(bandit: str, tmp_path: Path) -> None:
    """While the store is unavailable."""

    class Unavailable(MemoryStore):
        def journal(self, *arguments: Any, **options: Any) -> NoReturn:
            raise JournalUnavailable("it is unavailable")

    leave_behind(tmp_path / "offers.0.spool", "offers", "a", "b")
    leave_behind(tmp_path / "offers.1.spool", "offers", "c")
    recovery = SpoolRecovery(SpoolFolder(tmp_path), Unavailable(), ["offers"])
    assert recovery.left("offers") == LeftSpools(0, 0)
    recovery.step()
    assert recovery.left("offers") == LeftSpools(2, 3)
    store = MemoryStore()
    recovery = SpoolRecovery(SpoolFolder(tmp_path), store, ["offers"])
    recovery.step()
    assert recovery.left("offers") == LeftSpools(0, 0)
    with store.journal("offers") as journal:
        assert len(journal.records_of(["a", "b", "c"])) == 3


def test_one_error_of_the_disk_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a file or the whole folder fails: the others, and the next check, continue."""
    for number in range(2):
        leave_behind(tmp_path / f"offers.{number}.spool", "offers", f"left {number}")
    store = MemoryStore()
    recovery = SpoolRecovery(SpoolFolder(tmp_path), store, ["offers"])
    open_file = os.open

    def broken(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if os.fspath(path).endswith("offers.0.spool"):
            raise OSError(5, "Input/output error", path)
        return open_file(path, flags, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", broken)
        recovery.step()
        assert recovery.left("offers") == LeftSpools(1, 0, {"unreadable": 1})
        with store.journal("offers") as journal:
            assert len(journal.records_of(["left 0", "left 1"])) == 1
    with monkeypatch.context() as patch:
        patch.setattr(SpoolFolder, "files", lambda folder, name: os.listdir("/nowhere at all"))
        assert recovery.step() > 0
        assert recovery.left("offers") == LeftSpools(1, 0, {"unreadable": 1, "folder": 1})
    recovery.step()
    assert recovery.left("offers") == LeftSpools(0, 0)
    with store.journal("offers") as journal:
        assert len(journal.records_of(["left 0", "left 1"])) == 2


def test_each_reason_why_a_file_cannot_be_read_is_told_apart(
    tmp_path: Path, take_away: Any
) -> None:
    """A spool in use does not count: its process delivers it."""
    for number in range(4):
        leave_behind(tmp_path / f"offers.{number}.spool", "offers", "a", "b")
    take_away(tmp_path / "offers.1.spool")
    (tmp_path / "offers.2.spool").write_bytes(b"something else" * 9)
    folder = SpoolFolder(tmp_path)
    store = DiskStore(tmp_path / "offers.3.spool")
    counts = {path.name: count for path, count in folder.left("offers").items()}
    assert counts == {
        "offers.0.spool": 2,
        "offers.1.spool": "not_permitted",
        "offers.2.spool": "damaged",
    }
    store.close()


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for a free number ends; a file of another user is skipped."""
    open_file = os.open

    def refusing(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if os.fspath(path).endswith(".spool"):
            raise PermissionError(13, "Permission denied", path)
        return open_file(path, flags, *arguments, **options)

    (tmp_path / "offers.0.spool").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        with pytest.raises(SpoolNotPermitted, match=r"offers\.1\.spool"):
            SpoolFolder(tmp_path).open(MemoryStore().journal("offers"))
