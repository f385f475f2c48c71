"""A file on a real disk, for one process at a time."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from belated.exceptions import (
    JournalError,
    JournalUnavailable,
    SpoolInUse,
    SpoolNotPermitted,
)

try:
    import fcntl
except ImportError:  # not a system of the POSIX kind
    fcntl = None  # type: ignore[assignment]


class DiskStore:
    """A file that is locked as long as it is open; made if it is not there.

    Args:
        path: of the file, on a local disk.

    Raises:
        SpoolInUse: another process has it open.
        SpoolNotPermitted: this user may not read and write it.
        JournalUnavailable: it cannot be opened for another reason.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file = -1
        if fcntl is None:
            raise JournalError("a spool needs file locks, which this system does not have")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sync_folder()
        except OSError as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise
        _open_stores.add(self)

    def __repr__(self) -> str:
        return repr(str(self._path))

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def sync(self) -> None:
        """Wait until the disk has everything."""
        if hasattr(fcntl, "F_FULLFSYNC"):  # where fsync stops at the cache of the disk
            fcntl.fcntl(self._file, fcntl.F_FULLFSYNC)
        else:
            os.fsync(self._file)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from an offset on."""
        parts = []
        while size and (part := os.pread(self._file, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        """Keep the first bytes only."""
        os.ftruncate(self._file, size)

    def close(self) -> None:
        """Let go of the file and its lock."""
        _open_stores.discard(self)
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def _failure(self, error: OSError) -> JournalUnavailable:
        """What a spool that cannot be opened means to whoever wants it."""
        place = repr(str(self._path))
        if isinstance(error, BlockingIOError):
            message = "give each process, and each journal in it, a file of its own"
            return SpoolInUse(f"the spool {place} is in use: {message}")
        what = f"could not open the spool {place}: {error.strerror}"
        if isinstance(error, PermissionError):
            message = "let this user read and write it and its folder, or choose another"
            return SpoolNotPermitted(f"{what}; {message}")
        message = "see that its folder is there, and that folder and file may be written to"
        return JournalUnavailable(f"{what}; {message}")

    def _sync_folder(self) -> None:
        """A file whose name was not synced is lost with the power, whatever it holds."""
        folder = os.open(self._path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# A fork would hold the lock too, even when the process that took it is long gone.
_open_stores: weakref.WeakSet[DiskStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_open_stores):
        store.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
