"""Pieces of snapshots as files, in a folder or an object store.

A file is named by the checksum of what it holds, and is there before the list of pieces says so: so
whoever saves at the same moment, or is fenced, spoils nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from belated.exceptions import JournalUnavailable
from belated.journals.cells import Cells
from belated.journals.folders import open_folder
from belated.journals.snapshots import Pieces, Snapshot, Stored


class PieceFiles(Pieces):
    """The snapshots of one bandit: lists of pieces in cells, and the pieces in files.

    Args:
        cells: Cells of the store.
        address: Of the folder: a path, or an address that fsspec knows, as in ``s3://…``.
        bandit: Name of the bandit.
        topic: Names the folder of the bandit.
    """

    in_files = True

    def __init__(self, cells: Cells, address: str, bandit: str, topic: str) -> None:
        super().__init__(cells, "snapshot", bandit)
        self._place = address
        self._folder = open_folder(address)
        self._topic = topic

    def save(
        self,
        snapshot: Snapshot,
        checksums: Mapping[str, bytes],
        stored: Stored,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
    ) -> bool:
        """Store a snapshot; then remove files that no snapshot needs, if its saver owns it."""
        partition = snapshot.partition
        # What is listed before it is saved, no later owner can have written: it begins with this.
        before = self.files(partition) if expected else []
        saved = super().save(snapshot, checksums, stored, expected, puts)
        needed = {self._file(partition, one) for one in checksums.values()}
        with self._translated():
            for name in before if saved else ():
                if name not in needed:
                    self._folder.remove(name)
        return saved

    def files(self, partition: int) -> list[str]:
        """Return the names of the files of a partition."""
        with self._translated():
            return self._folder.names(f"{self._topic}/{partition}")

    def write(self, partition: int, pieces: Mapping[bytes, bytes]) -> dict[str, bytes]:
        """Write a file for each piece."""
        with self._translated():
            for named, data in pieces.items():
                with self._folder.new(self._file(partition, named)) as path:
                    path.write_bytes(data)
        return {}

    def read(self, partition: int, named: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return pieces by checksum, but for those that are missing."""
        found, missing = {}, []
        with self._translated():
            for one in named:
                try:
                    found[one] = self._folder.read(self._file(partition, one))
                except FileNotFoundError:
                    missing.append(one)
        return found | super().read(partition, missing)  # from before there were files

    def _file(self, partition: int, named: bytes) -> str:
        return f"{self._topic}/{partition}/{named.hex()}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each kind of object store has its own
            message = f"snapshots cannot be written to or read from {self._place}: {error}"
            raise JournalUnavailable(f"{message}; trying again is safe") from error
