"""Pieces of snapshots as files, in a folder or an object store.

A file is named by the checksum of what it holds, and is there before the database says so: so
whoever saves at the same moment, or is fenced, spoils nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from belated.exceptions import JournalUnavailable
from belated.journals.folders import open_folder
from belated.journals.snapshots import checksum


class PieceFiles:
    """The files of one bandit.

    Args:
        address: Of the folder: a path, or an address that fsspec knows, as in ``s3://…``.
        topic: Names the bandit.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._place = address
        self._folder = open_folder(address)
        self._topic = topic

    def write(self, partition: int, pieces: Iterable[bytes]) -> None:
        """Have a file for each."""
        with self._translated():
            for data in pieces:
                with self._folder.new(self._name(partition, checksum(data))) as path:
                    path.write_bytes(data)

    def read(self, partition: int, named: bytes) -> bytes | None:
        """Return the piece that has a checksum; None if there is no such file."""
        with self._translated():
            try:
                return self._folder.read(self._name(partition, named))
            except FileNotFoundError:
                return None

    def names(self, partition: int) -> list[str]:
        """Return the files of a partition."""
        with self._translated():
            return self._folder.names(f"{self._topic}/{partition}")

    def sweep(self, partition: int, names: Iterable[str], kept: Iterable[bytes]) -> None:
        """Remove some files of a partition, but for pieces that have these checksums."""
        needed = {self._name(partition, one) for one in kept}
        with self._translated():
            for name in names:
                if name not in needed:
                    self._folder.remove(name)

    def _name(self, partition: int, named: bytes) -> str:
        return f"{self._topic}/{partition}/{named.hex()}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each kind of object store has its own
            message = f"snapshots cannot be written to or read from {self._place}: {error}"
            raise JournalUnavailable(f"{message}; trying again is safe") from error
