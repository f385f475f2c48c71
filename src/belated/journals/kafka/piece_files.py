"""Snapshot pieces as files in a folder or an object store.

A file is named after the checksum of its content, and is written before the list of pieces that
refers to it. Concurrent and fenced writers therefore cannot damage a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from belated.exceptions import JournalUnavailable
from belated.journals.cells import Cells
from belated.journals.folders import open_folder
from belated.journals.snapshots import Pieces, Snapshot, Stored


class PieceFiles(Pieces):
    """Stores the snapshots of one bandit: lists of pieces in cells, and pieces in files.

    Args:
        cells: Cells of the store.
        address: Path of the folder, or an fsspec address such as ``s3://…``.
        bandit: Name of the bandit.
        topic: Name of the bandit's folder.
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
        """Store a snapshot; an owner also removes files that are no longer needed."""
        partition = snapshot.partition
        # List files before saving, so that none of them belongs to a later owner, which starts from
        # this snapshot.
        before = self.files(partition) if expected else []
        saved = super().save(snapshot, checksums, stored, expected, puts)
        needed = {self._file(partition, key) for key in checksums.values()}
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
            for key, data in pieces.items():
                with self._folder.new(self._file(partition, key)) as path:
                    path.write_bytes(data)
        return {}

    def read(self, partition: int, checksums: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the pieces that exist, by checksum."""
        pieces, missing = {}, []
        with self._translated():
            for key in checksums:
                try:
                    pieces[key] = self._folder.read(self._file(partition, key))
                except FileNotFoundError:
                    missing.append(key)
        return pieces | super().read(partition, missing)  # pieces saved before files were enabled

    def _file(self, partition: int, key: bytes) -> str:
        return f"{self._topic}/{partition}/{key.hex()}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # fsspec has no common base class of errors
            message = f"snapshots cannot be written to or read from {self._place}: {error}"
            raise JournalUnavailable(f"{message}; it is safe to retry") from error
