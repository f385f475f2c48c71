"""The file of a spool: pending events, synced before they are acknowledged.

The file is a header line followed by frames. A frame consists of the length of its body, a CRC-32
of the body, and a CRC-32 of both values and the offset of the frame, 4 bytes each, followed by the
body. The first frame holds the name of the bandit, and every other frame the events of one call,
which are therefore stored atomically. Each frame is synced before the next one is written, so only
the last frame can be incomplete; any other mismatch means that the file was changed after it was
written.
"""

from __future__ import annotations

import os
import struct
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from belated.exceptions import (
    CorruptJournal,
    JournalError,
    JournalMismatch,
    JournalUnavailable,
    NotAJournal,
    SpoolInUse,
    SpoolNotPermitted,
    UnsupportedFormat,
)
from belated.journals.folders import sync

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"belated spool 1\n"
_ANY_VERSION = b"belated spool "
_HEADER = struct.Struct("<III")
_CHUNK = 1 << 20


class SpoolStorage(Protocol):
    """Append-only storage of a spool."""

    def append(self, data: bytes) -> None:
        """Append bytes; if this raises an error, some bytes may have been written."""

    def sync(self) -> None:
        """Wait until everything written so far is on stable storage."""

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes starting at an offset; fewer only at the end."""

    def truncate(self, size: int) -> None:
        """Truncate the storage to ``size`` bytes."""

    def close(self) -> None:
        """Close the storage."""


class SpooledBatch(msgspec.Struct, frozen=True, array_like=True):
    """The events of one call.

    Attributes:
        since: Time of the call, in microseconds since 1970.
        partitions: Partition of each event; stored because unreadable events cannot be routed.
        events: The encoded events.
        recorded: Timestamps passed by the caller. None means the time of the journal's clock.
        requests: Requests of decisions, by index in ``events``.
    """

    since: int
    partitions: list[int]
    events: list[bytes]
    recorded: list[int] | None
    requests: dict[int, bytes] = {}


_read_batch = msgspec.msgpack.Decoder(SpooledBatch).decode


class Page(msgspec.Struct, frozen=True):
    """The first pending batches, and the offset after them."""

    batches: list[SpooledBatch]
    end: int

    @property
    def count(self) -> int:
        """Number of events."""
        return sum(len(batch.events) for batch in self.batches)


class SpoolFile:
    """A queue of batches in a file. Not thread-safe.

    Args:
        store: Storage of the file; messages contain its ``repr``.
        bandit: Name of the bandit.
        limit: Maximum size in bytes.

    Attributes:
        waiting: Number of pending events.
        oldest: Time of the oldest pending batch, in microseconds since 1970; None if there is none.

    Raises:
        NotAJournal: the file is not a spool.
        UnsupportedFormat: the file was written by a newer release.
        JournalMismatch: the file belongs to another bandit.
        CorruptJournal: the file was changed after it was written; the message names the offset.
        JournalUnavailable: the file cannot be read or written.
    """

    def __init__(self, store: SpoolStorage, *, bandit: str, limit: int) -> None:
        self._store = store
        self._place = repr(store)
        self._limit = limit
        self._start = self._open(bandit)
        self._head = self._start  # all frames before this offset were delivered
        self._end = self._start
        self._ragged = False  # whether there may be an incomplete frame after the end
        self.waiting = 0
        self.oldest: int | None = None
        for offset, body in self._frames(self._start):
            batch = self._batch(offset, body)
            self._count(batch)
            self._end = offset + _HEADER.size + len(body)
        if self._read(self._end, 1):  # an incomplete frame, which was never acknowledged
            try:
                store.truncate(self._end)
                store.sync()
            except OSError as error:
                raise self._unwritable(error) from error

    @property
    def size(self) -> int:
        """Size of the pending batches in bytes."""
        return self._end - self._head

    def put(self, batch: SpooledBatch) -> None:
        """Append a batch durably.

        Raises:
            JournalUnavailable: the file is full or cannot be written; nothing was stored.
        """
        frame = _framed(msgspec.msgpack.encode(batch), self._end)
        if self._end + len(frame) > self._limit:
            message = (
                f"the spool {self._place} is full: it has {self._end} of {self._limit} bytes, and "
                f"{len(frame)} more do not fit. Check why its journal is unavailable, or increase "
                "the size limit of the spool. Nothing was acknowledged, so it is safe to retry"
            )
            raise JournalUnavailable(message)
        try:
            if self._ragged:
                self._store.truncate(self._end)
            self._ragged = True
            self._store.append(frame)
            self._store.sync()
        except OSError as error:
            with suppress(OSError):  # if this fails, the next call truncates the file
                self._store.truncate(self._end)
                self._ragged = False
            raise self._unwritable(error) from error
        self._ragged = False
        self._end += len(frame)
        self._count(batch)

    def page(self, limit: int) -> Page:
        """Return the first pending batch, and more batches up to ``limit`` events in total."""
        batches: list[SpooledBatch] = []
        end, count = self._head, 0
        for offset, body in self._frames(self._head, self._end):
            batch = self._batch(offset, body)
            count += len(batch.events)
            if batches and count > limit:
                break
            batches.append(batch)
            end = offset + _HEADER.size + len(body)
        return Page(batches, end)

    def drop(self, page: Page) -> None:
        """Remove the first page, which the journal has accepted."""
        self._head = page.end
        self.waiting -= page.count
        self.oldest = None
        # The next call of `page` raises the error.
        with suppress(CorruptJournal, JournalUnavailable):
            self.oldest = next((batch.since for batch in self.page(1).batches), None)
        if self._head == self._end:
            # If this write fails or is lost, the events are delivered again, which is safe.
            with suppress(OSError):
                self._store.truncate(self._start)
                self._head = self._end = self._start
                self._store.sync()

    def close(self) -> None:
        """Close the storage."""
        self._store.close()

    def _count(self, batch: SpooledBatch) -> None:
        if self.oldest is None:
            self.oldest = batch.since
        self.waiting += len(batch.events)

    def _open(self, bandit: str) -> int:
        """Check or write the beginning of the file; return the offset of the first batch."""
        beginning = beginning_of(bandit)
        stored = self._read(0, len(beginning))
        if len(stored) < len(beginning) and beginning.startswith(stored):  # new or unfinished
            try:
                self._store.truncate(0)
                self._store.append(beginning)
                self._store.sync()
            except OSError as error:
                raise self._unwritable(error) from error
        elif not stored.startswith(_ANY_VERSION):
            raise NotAJournal(f"{self._place} is not a spool: choose another file")
        elif not stored.startswith(_MAGIC):
            raise UnsupportedFormat(
                f"a newer release wrote the spool {self._place}: upgrade belated"
            )
        elif stored != beginning:
            _, body = next(self._frames(len(_MAGIC)), (0, b""))
            message = (
                f"the spool {self._place} belongs to bandit {body.decode(errors='replace')!r}, not "
                f"{bandit!r}: give each bandit its own spool"
            )
            raise JournalMismatch(message)
        return len(beginning)

    def _frames(self, offset: int, end: int = 1 << 62) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and body of each complete frame, starting at an offset."""
        size = _CHUNK
        while True:
            data = self._read(offset, min(size, end - offset))
            used = 0
            while (body := self._body(data, used, offset)) is not None:
                yield offset + used, body
                used += _HEADER.size + len(body)
            if len(data) < size:
                return
            offset += used
            size = _CHUNK if used else 2 * size  # the frame is larger than the chunk

    def _body(self, data: bytes, at: int, base: int) -> bytes | None:
        """Return the body of the frame at index ``at`` of the data; None if it is incomplete."""
        if len(data) < at + _HEADER.size:
            return None
        length, check, own = _HEADER.unpack_from(data, at)
        if own != _header_check(length, check, base + at):
            raise self._damaged(base + at)
        body = data[at + _HEADER.size : at + _HEADER.size + length]
        if len(body) < length:
            return None
        if zlib.crc32(body) != check:
            raise self._damaged(base + at)
        return body

    def _batch(self, offset: int, body: bytes) -> SpooledBatch:
        try:
            return _read_batch(body)
        except msgspec.DecodeError:
            raise self._damaged(offset) from None

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return self._store.read(offset, size)
        except OSError as error:
            message = f"the spool {self._place} could not be read ({error})"
            raise JournalUnavailable(f"{message}: check its disk, then try again") from error

    def _unwritable(self, error: OSError) -> JournalUnavailable:
        return JournalUnavailable(
            f"the spool {self._place} could not be written to ({error}): check whether its disk is "
            "full. Nothing was acknowledged, so it is safe to retry"
        )

    def _damaged(self, offset: int) -> CorruptJournal:
        return CorruptJournal(
            f"the spool {self._place} was changed after it was written, at offset {offset}; "
            "everything before that is intact. Make a copy, truncate the file there "
            f"(`truncate -s {offset}`), and open it again"
        )


def beginning_of(bandit: str) -> bytes:
    """Return the content of an empty spool."""
    return _MAGIC + _framed(bandit.encode(), len(_MAGIC))


def _framed(body: bytes, offset: int) -> bytes:
    check = zlib.crc32(body)
    return _HEADER.pack(len(body), check, _header_check(len(body), check, offset)) + body


def _header_check(length: int, check: int, offset: int) -> int:
    return zlib.crc32(struct.pack("<IIQ", length, check, offset))


class DiskStore:
    """A file that is locked while it is open; created if it does not exist.

    Args:
        path: Path of the file, on a local disk.

    Raises:
        SpoolInUse: another process has the file open.
        SpoolNotPermitted: the user has no permission to read and write the file.
        JournalUnavailable: the file cannot be opened for another reason.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file = -1
        if fcntl is None:
            raise JournalError("a spool needs file locks, which this system does not have")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A file whose directory entry was not synced can be lost in a power cut.
            sync(self._path.absolute().parent)
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
        """Append bytes."""
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(self._file, remaining) :]

    def sync(self) -> None:
        """Sync the file to stable storage."""
        if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS, fsync does not flush the disk's cache
            fcntl.fcntl(self._file, fcntl.F_FULLFSYNC)
        else:
            os.fsync(self._file)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes starting at an offset."""
        parts = []
        while size and (part := os.pread(self._file, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        os.ftruncate(self._file, size)

    def close(self) -> None:
        """Close the file, which releases its lock."""
        _open_stores.discard(self)
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def _failure(self, error: OSError) -> JournalUnavailable:
        """Translate an error that occurred while the file was opened."""
        place = repr(str(self._path))
        if isinstance(error, BlockingIOError):
            remedy = "give each process, and each journal in it, a file of its own"
            return SpoolInUse(f"the spool {place} is in use: {remedy}")
        message = f"could not open the spool {place} ({error.strerror})"
        if isinstance(error, PermissionError):
            remedy = "let this user read and write the file and its folder, or choose another path"
            return SpoolNotPermitted(f"{message}: {remedy}")
        remedy = "check that its folder exists, and that the folder and the file are writable"
        return JournalUnavailable(f"{message}: {remedy}")


# Open files, closed in a forked child because it would hold the lock after the parent has ended.
_open_stores: weakref.WeakSet[DiskStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_open_stores):
        store.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
