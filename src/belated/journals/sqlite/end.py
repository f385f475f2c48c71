"""The end of a journal file, kept beside it: the last record whose commit was acknowledged.

SQLite drops the rest of its write-ahead log at the first damaged frame, and says nothing. What is
dropped is always the newest, so it is enough to know one record, the last. If it is there when the
file is opened, so is all that was committed before it. Once the file is closed and its log is gone,
all is in its place, and this file goes too.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from struct import Struct, error
from typing import BinaryIO, NamedTuple

_LAYOUT = Struct("<8sq32sI")
_MAGIC = b"blat en2"


class LastRecord(NamedTuple):
    """The last record that was committed: its place, and the digest of its event.

    The digest stays when the event of an erased decision is overwritten; the checksum does not.
    """

    place: int
    digest: bytes


class EndFile:
    """A small file that is written after every commit, and synced now and then.

    A commit waits for no second sync: a process that dies loses nothing that it has written, and
    what was last synced is there after a power cut too.

    Args:
        journal: The journal file.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal.with_name(journal.name + ".end")
        self._file: BinaryIO | None = None

    def read(self) -> LastRecord | None:
        """Return the last record; None if it is not known, or the file was torn."""
        with suppress(OSError, error):
            magic, place, digest, checksum = _LAYOUT.unpack(self.path.read_bytes())
            if magic == _MAGIC and checksum == _checksum(place, digest):
                return LastRecord(place, digest)
        return None

    def write(self, last: LastRecord) -> None:
        """Note the last record; a file that cannot be written is done without."""
        with suppress(OSError):
            if self._file is None:
                opened = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
                self._file = open(opened, "r+b", buffering=0)  # noqa: SIM115 - kept open
            self._file.seek(0)
            self._file.write(_LAYOUT.pack(_MAGIC, *last, _checksum(*last)))

    def sync(self) -> None:
        """Have what was written on stable storage."""
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Forget the record: its file is gone, or its log is."""
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _checksum(place: int, digest: bytes) -> int:
    return zlib.crc32(b"%d " % place + digest)
