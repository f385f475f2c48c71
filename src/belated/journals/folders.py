"""Folders on this machine or in an object store, with atomic file writes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from belated.exceptions import InvalidInput, extra

#: Folder for unfinished files; age in seconds after which files left by dead writers are removed.
PARTS, STALE_SECONDS = "_parts", 86_400


class Folder(Protocol):
    """The files in a folder, by name; names contain slashes between subfolders."""

    def names(self, below: str) -> list[str]:
        """Return the names of all files below a folder, sorted."""

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""

    def new(self, name: str) -> AbstractContextManager[Path]:
        """Return a path to write to; the file gets its name when the block ends."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""


def open_folder(address: str | Path) -> Folder:
    """Return the folder at a path, or at an fsspec address such as ``s3://…``.

    Raises:
        InvalidInput: no file system is installed for the address.
        MissingExtra: fsspec is not installed.
    """
    text = str(address)
    if "://" not in text:
        return LocalFolder(Path(text))
    if text.startswith("file://"):
        return LocalFolder(Path(text.removeprefix("file://")))
    return ObjectFolder(text)


class LocalFolder:
    """A folder in a file system; files are synced, then renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self, below: str) -> list[str]:
        """Return the names of all files below a folder, sorted."""
        paths = (self._path / below).rglob("*")
        return sorted(path.relative_to(self._path).as_posix() for path in paths if path.is_file())

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return (self._path / name).read_bytes()

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Return a path to write to; the file gets its name when the block ends."""
        target, parts = self._path / name, self._path / PARTS
        for folder in (parts, target.parent):
            folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(parts)
        part = parts / uuid4().hex
        try:
            yield part
            sync(part)
            part.replace(target)
            for folder in (target.parent, *target.parent.parents):  # any of these may be new
                sync(folder)
                if folder == self._path:
                    break
        finally:
            part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self._path / name).unlink(missing_ok=True)


def _remove_stale(parts: Path) -> None:
    for part in parts.iterdir():
        with suppress(FileNotFoundError):  # another process may have removed it
            if part.stat().st_mtime < time.time() - STALE_SECONDS:
                part.unlink()


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to stable storage."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ObjectFolder:
    """A folder in an object store; an object appears when its upload is complete."""

    def __init__(self, address: str) -> None:
        with extra("a folder in an object store", "archive"):
            from fsspec.core import url_to_fs
        try:
            self._files: Any
            self._files, self._path = url_to_fs(address)
        except (ImportError, ValueError) as error:
            scheme = address.partition("://")[0]
            message = f"no file system is installed for {scheme}:// ({error})"
            raise InvalidInput(f"{message}: for s3://, run `pip install s3fs`", scheme) from None

    def names(self, below: str) -> list[str]:
        """Return the names of all files below a folder, sorted."""
        self._files.invalidate_cache()
        paths = self._files.find(f"{self._path}/{below}")
        return sorted(str(path).removeprefix(f"{self._path}/") for path in paths)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        data: bytes = self._files.cat_file(f"{self._path}/{name}")
        return data

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Return a path to write to; the file gets its name when the block ends."""
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "part"
            yield part
            self._files.put_file(str(part), f"{self._path}/{name}")

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{name}")
