"""Why a spool cannot be used: each reason is an error of its own, and none of another kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from belated.core.events import Void
from belated.exceptions import (
    CorruptJournal,
    JournalUnavailable,
    SpoolInUse,
    SpoolNotPermitted,
)
from belated.journals import MemoryJournal, SpoolJournal
from belated.journals.spool.file import DiskStore, SpoolFile


class Away(MemoryJournal):
    """Takes nothing."""

    def append(self, *events: object, **how: object) -> list[int]:
        """Refuse it."""
        raise JournalUnavailable("gone")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A spool in which an event waits."""
    path = tmp_path / "spool"
    with SpoolJournal(Away(), path, wait=None) as journal:
        journal.append([Void("a", 1)])
    return path


def refuse(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Opening this path fails from now on, as it does for another user; root may open anything."""
    os_open = os.open

    def open(given: str | os.PathLike[str], *how: int) -> int:
        if str(given) == str(path):
            raise PermissionError(13, "Permission denied")
        return os_open(given, *how)

    monkeypatch.setattr(os, "open", open)


def test_one_that_another_has_open_is_in_use(path: Path) -> None:
    """It is free again when that one is closed."""
    store = DiskStore(path)
    with pytest.raises(SpoolInUse, match="a file of its own"):
        DiskStore(path)
    store.close()
    DiskStore(path).close()


@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_file_of_another_user_is_not_permitted(
    path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Which is not the same as in use: nobody may be there to hand over what waits in it."""
    refuse(monkeypatch, path if which == "file" else path.parent)
    with pytest.raises(SpoolNotPermitted, match=r"Permission denied\): let this user") as error:
        DiskStore(path)
    assert not isinstance(error.value, SpoolInUse)
    monkeypatch.undo()
    DiskStore(path).close()  # nothing was left locked


def test_other_trouble_is_neither(tmp_path: Path) -> None:
    """A folder that is not there, or stands where the file should be."""
    for folder in (tmp_path / "missing" / "spool", tmp_path):
        with pytest.raises(JournalUnavailable, match="check that its folder exists") as error:
            DiskStore(folder)
        assert type(error.value) is JournalUnavailable


def test_one_that_was_changed_is_damaged(path: Path) -> None:
    """Which no waiting mends."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptJournal, match="offset"):
        SpoolJournal(MemoryJournal(), path, wait=None)


@pytest.mark.parametrize("call", ["read", "truncate", "sync"])
def test_a_disk_that_fails_makes_it_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever the disk does, it is an error of ours that says which file it was."""

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    path.write_bytes(path.read_bytes() + b"torn")
    store = DiskStore(path)
    monkeypatch.setattr(store, call, fail)
    with pytest.raises(JournalUnavailable, match=r"spool '.*' could not be .* error"):
        SpoolFile(store, bandit="bandit", limit=1 << 20)
    store.close()
