"""Where files lie: a folder of this machine, or of an object store.

A file is there as a whole or not at all, whenever its writer dies.
"""

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

#: Files that are being written; what a dead writer left here is removed after a day.
PARTS, STALE_SECONDS = "_parts", 86_400


class Folder(Protocol):
    """Files by their names, which have slashes."""

    def names(self, below: str) -> list[str]:
        """Return the names of all files below one, in order."""

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""

    def new(self, name: str) -> AbstractContextManager[Path]:
        """Return a path to write to; the file is there under its name once this has ended."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


def open_folder(address: str | Path) -> Folder:
    """Return the folder at a path, or at an address that fsspec knows, as in ``s3://…``.

    Raises:
        InvalidInput: no file system is known for the address.
        MissingExtra: fsspec is not installed.
    """
    text = str(address)
    if "://" not in text:
        return LocalFolder(Path(text))
    if text.startswith("file://"):
        return LocalFolder(Path(text.removeprefix("file://")))
    return ObjectFolder(text)


class LocalFolder:
    """A folder of a file system: files are synced, then renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self, below: str) -> list[str]:
        """Return the names of all files below one, in order."""
        found = (self._path / below).rglob("*")
        return sorted(one.relative_to(self._path).as_posix() for one in found if one.is_file())

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return (self._path / name).read_bytes()

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Return a path to write to; the file is there under its name once this has ended."""
        target, parts = self._path / name, self._path / PARTS
        for folder in (parts, target.parent):
            folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(parts)
        part = parts / uuid4().hex
        try:
            yield part
            sync(part)
            part.replace(target)
            for folder in (target.parent, *target.parent.parents):  # all that may be new
                sync(folder)
                if folder == self._path:
                    break
        finally:
            part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self._path / name).unlink(missing_ok=True)


def _remove_stale(parts: Path) -> None:
    for one in parts.iterdir():
        try:
            if one.stat().st_mtime < time.time() - STALE_SECONDS:
                one.unlink()
        except FileNotFoundError:  # by another who archives
            continue


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on stable storage."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ObjectFolder:
    """A folder of an object store: an object is there once all of it was sent."""

    def __init__(self, address: str) -> None:
        with extra("a folder in an object store", "archive"):
            from fsspec.core import url_to_fs
        try:
            self._files: Any
            self._files, self._path = url_to_fs(address)
        except (ImportError, ValueError) as error:
            scheme = address.partition("://")[0]
            message = f"no file system is installed for {scheme}:// ({error})"
            raise InvalidInput(f"{message}: for s3:// it is `pip install s3fs`", scheme) from None

    def names(self, below: str) -> list[str]:
        """Return the names of all files below one, in order."""
        self._files.invalidate_cache()
        found = self._files.find(f"{self._path}/{below}")
        return sorted(str(one).removeprefix(f"{self._path}/") for one in found)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        data: bytes = self._files.cat_file(f"{self._path}/{name}")
        return data

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Return a path to write to; the file is there under its name once this has ended."""
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "part"
            yield part
            self._files.put_file(str(part), f"{self._path}/{name}")

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{name}")
