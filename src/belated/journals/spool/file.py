"""What waits for a journal, in a file: synced before it is acknowledged, checked when read back.

The file is one line that says what it is, then frames. A frame is the length of its body, a CRC-32
of the body and one of the header itself with the frame's offset, 4 bytes each, then the body. The
first frame holds the name of the bandit, every other one the events of one call: so a call is there
whole or not at all. Only the last frame can be torn, for each is synced before the next is written,
and a torn one is too short: whatever is wrong in another way was changed after it was written.
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
except ImportError:  # not a system of the POSIX kind
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"belated spool 1\n"
_ANY_VERSION = b"belated spool "
_HEADER = struct.Struct("<III")
_CHUNK = 1 << 20


class SpoolStorage(Protocol):
    """Bytes that grow at their end: all that is asked of a disk."""

    def append(self, data: bytes) -> None:
        """Add bytes at the end; after an error some of them may be there."""

    def sync(self) -> None:
        """When this returns, all that was done before survives a loss of power."""

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from an offset on; fewer than ``size`` only at the end."""

    def truncate(self, size: int) -> None:
        """Keep the first ``size`` bytes only."""

    def close(self) -> None:
        """Let go of it."""


class SpooledBatch(msgspec.Struct, frozen=True, array_like=True):
    """The events of one call.

    Attributes:
        since: when they came, in microseconds since 1970.
        partitions: of each event; what a later release wrote cannot be asked.
        events: the bytes of each.
        recorded: the times given with them, None for the journal's clock.
        requests: what some of the decisions were chosen from, by their place among the events.
    """

    since: int
    partitions: list[int]
    events: list[bytes]
    recorded: list[int] | None
    requests: dict[int, bytes] = {}


_read_batch = msgspec.msgpack.Decoder(SpooledBatch).decode


class Page(msgspec.Struct, frozen=True):
    """The first batches that wait, and the offset behind them."""

    batches: list[SpooledBatch]
    end: int

    @property
    def count(self) -> int:
        """How many events they are."""
        return sum(len(batch.events) for batch in self.batches)


class SpoolFile:
    """Batches in the order in which they came. Not for several threads at once.

    Args:
        store: where the bytes are; its ``repr`` names it in messages.
        bandit: whose events they are.
        limit: how many bytes there may be.

    Attributes:
        waiting: how many events wait.
        oldest: when the oldest of them came, in microseconds since 1970; None if none waits.

    Raises:
        NotAJournal: it is something else.
        UnsupportedFormat: a newer release wrote it.
        JournalMismatch: it is of another bandit.
        CorruptJournal: it was changed after it was written; names the offset.
        JournalUnavailable: its disk refuses.
    """

    def __init__(self, store: SpoolStorage, *, bandit: str, limit: int) -> None:
        self._store = store
        self._place = repr(store)
        self._limit = limit
        self._start = self._open(bandit)
        self._head = self._start  # what lies before it was handed over
        self._end = self._start
        self._ragged = False  # whether there may be something behind the end
        self.waiting = 0
        self.oldest: int | None = None
        for offset, body in self._frames(self._start):
            batch = self._batch(offset, body)
            self._count(batch)
            self._end = offset + _HEADER.size + len(body)
        if self._read(self._end, 1):  # torn: no one was told that it is safe
            try:
                store.truncate(self._end)
                store.sync()
            except OSError as error:
                raise self._unwritable(error) from error

    @property
    def size(self) -> int:
        """How many bytes what waits takes."""
        return self._end - self._head

    def put(self, batch: SpooledBatch) -> None:
        """Keep a batch; it is safe when this returns.

        Raises:
            JournalUnavailable: there is no room, or the disk refuses; nothing was kept.
        """
        frame = _framed(msgspec.msgpack.encode(batch), self._end)
        if self._end + len(frame) > self._limit:
            message = (
                f"the spool {self._place} has {self._end} bytes of {self._limit}, and "
                f"{len(frame)} more do not fit: see why its journal is away, or open it with a "
                "greater limit; nothing was acknowledged, and trying again is safe"
            )
            raise JournalUnavailable(message)
        try:
            if self._ragged:
                self._store.truncate(self._end)
            self._ragged = True
            self._store.append(frame)
            self._store.sync()
        except OSError as error:
            with suppress(OSError):  # else the next call does it
                self._store.truncate(self._end)
                self._ragged = False
            raise self._unwritable(error) from error
        self._ragged = False
        self._end += len(frame)
        self._count(batch)

    def page(self, limit: int) -> Page:
        """The first batches that wait: the first one, and more as long as they are few events."""
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
        """The journal has this page, which was the first: it need not wait any longer."""
        self._head = page.end
        self.waiting -= page.count
        self.oldest = None
        with suppress(CorruptJournal, JournalUnavailable):  # whoever reads the next page is told
            self.oldest = next((batch.since for batch in self.page(1).batches), None)
        if self._head == self._end:
            # If this fails, or is lost with the power, they are handed over again: that is safe.
            with suppress(OSError):
                self._store.truncate(self._start)
                self._head = self._end = self._start
                self._store.sync()

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def _count(self, batch: SpooledBatch) -> None:
        if self.oldest is None:
            self.oldest = batch.since
        self.waiting += len(batch.events)

    def _open(self, bandit: str) -> int:
        """See what it is, or make it; returns where the first batch is."""
        beginning = beginning_of(bandit)
        found = self._read(0, len(beginning))
        if len(found) < len(beginning) and beginning.startswith(found):  # new, or torn
            try:
                self._store.truncate(0)
                self._store.append(beginning)
                self._store.sync()
            except OSError as error:
                raise self._unwritable(error) from error
        elif not found.startswith(_ANY_VERSION):
            raise NotAJournal(f"{self._place} is no spool: choose another file")
        elif not found.startswith(_MAGIC):
            raise UnsupportedFormat(
                f"a newer release wrote the spool {self._place}: upgrade belated"
            )
        elif found != beginning:
            _, body = next(self._frames(len(_MAGIC)), (0, b""))
            message = (
                f"{body.decode(errors='replace')!r} is the bandit whose events wait in the spool "
                f"{self._place}, not {bandit!r}: give each bandit a spool of its own"
            )
            raise JournalMismatch(message)
        return len(beginning)

    def _frames(self, offset: int, end: int = 1 << 62) -> Iterator[tuple[int, bytes]]:
        """Offset and body of each frame from an offset on, up to one that is too short."""
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
            size = _CHUNK if used else 2 * size  # the frame is larger

    def _body(self, data: bytes, at: int, base: int) -> bytes | None:
        """The body of the frame at a place in the data, None if it is not all there."""
        if len(data) < at + _HEADER.size:
            return None
        length, check, own = _HEADER.unpack_from(data, at)
        if own != _own_check(length, check, base + at):
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
            message = f"the spool {self._place} could not be read: {error}; see whether its disk is"
            raise JournalUnavailable(f"{message} there, and intact; then retry") from error

    def _unwritable(self, error: OSError) -> JournalUnavailable:
        return JournalUnavailable(
            f"the spool {self._place} could not be written to: {error}; see whether its disk is "
            "full; nothing was acknowledged, and trying again is safe"
        )

    def _damaged(self, offset: int) -> CorruptJournal:
        return CorruptJournal(
            f"the spool {self._place} was changed after it was written, at offset {offset}: what "
            "comes before is intact. Keep a copy, cut the file off there "
            f"(`truncate -s {offset}`), and open it again"
        )


def beginning_of(bandit: str) -> bytes:
    """What a spool in which nothing waits consists of."""
    return _MAGIC + _framed(bandit.encode(), len(_MAGIC))


def _framed(body: bytes, offset: int) -> bytes:
    check = zlib.crc32(body)
    return _HEADER.pack(len(body), check, _own_check(len(body), check, offset)) + body


def _own_check(length: int, check: int, offset: int) -> int:
    return zlib.crc32(struct.pack("<IIQ", length, check, offset))


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
            # A file whose name was not synced is lost with the power, whatever it holds.
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


# A fork would hold the lock too, even when the process that took it is long gone.
_open_stores: weakref.WeakSet[DiskStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_open_stores):
        store.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
