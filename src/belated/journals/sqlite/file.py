"""A SQLite file with durability checks, error translation, locking and fork safety."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct, error
from typing import BinaryIO, NamedTuple, TypeVar

from belated.exceptions import (
    BelatedError,
    CorruptJournal,
    JournalClosed,
    JournalError,
    JournalReplaced,
    JournalUnavailable,
    NotAJournal,
    UnsupportedFormat,
)

# Row numbers combine the bandit (11 bits), the partition (12 bits) and the position (40 bits).
POSITIONS = 1 << 40
_PARTITIONS = 1 << 12
BANDITS = 1 << 11


def place_of(bandit: int, partition: int, position: int) -> int:
    """Return the row number of a record.

    >>> place_of(1, 2, 3) == 1 << 52 | 2 << 40 | 3
    True
    """
    return (bandit * _PARTITIONS + partition) * POSITIONS + position


def split_place(place: int) -> tuple[int, int]:
    """Return the partition and position of a row number.

    >>> split_place(place_of(1, 2, 3))
    (2, 3)
    """
    return place // POSITIONS % _PARTITIONS, place % POSITIONS


_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}
_NOT_ALLOWED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


def translated(
    error: sqlite3.DatabaseError | UnicodeDecodeError, verb: str, path: Path
) -> Exception:
    """Translate an error of SQLite; return other errors unchanged."""
    if isinstance(error, UnicodeDecodeError):  # raised for an error message about the schema
        message = f"{str(path)!r} is damaged (its schema is not text): restore a backup"
        return CorruptJournal(message)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return _not_a_journal(path)
    if code == sqlite3.SQLITE_CORRUPT:
        message = (
            f"{str(path)!r} is damaged ({error}): restore a backup, or save what can be read "
            "with the `.recover` command of sqlite3"
        )
        return CorruptJournal(message)
    if code in _NOT_ALLOWED:
        message = (
            f"could not {verb} {str(path)!r} ({error}): check that its folder exists, and that "
            "the folder and the file are writable"
        )
        return JournalUnavailable(message)
    if code in _TRANSIENT:
        message = (
            f"could not {verb} {str(path)!r}: {error}; nothing was acknowledged, so it is safe to "
            "retry"
        )
        return JournalUnavailable(message)
    return error


#: Device and inode number.
Inode = tuple[int, int]


def inode_of(path: str | Path) -> Inode | None:
    """Return the device and inode of the file at a path; None if the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_LAYOUT = Struct("<8sq32sI")
_MAGIC = b"blat en2"


class LastRecord(NamedTuple):
    """The last committed record: its row number, and the digest of its event.

    The digest is unchanged when the event of an erased decision is overwritten.
    """

    place: int
    digest: bytes


class EndFile:
    """A small file that identifies the last committed record, to detect a truncated journal.

    The file is written after every commit, but synced only at checkpoints, so that a commit needs
    no second sync.

    Args:
        journal: Path of the journal file.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal.with_name(journal.name + ".end")
        self._file: BinaryIO | None = None

    def read(self) -> LastRecord | None:
        """Return the last record; None if the file is missing or incomplete."""
        with suppress(OSError, error):
            magic, place, digest, checksum = _LAYOUT.unpack(self.path.read_bytes())
            if magic == _MAGIC and checksum == _checksum(place, digest):
                return LastRecord(place, digest)
        return None

    def write(self, last: LastRecord) -> None:
        """Write the last record; errors are ignored, because the file is optional."""
        with suppress(OSError):
            if self._file is None:
                opened = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
                self._file = open(opened, "r+b", buffering=0)  # noqa: SIM115 - kept open
            self._file.seek(0)
            self._file.write(_LAYOUT.pack(_MAGIC, *last, _checksum(*last)))

    def sync(self) -> None:
        """Sync the file to stable storage."""
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _checksum(place: int, digest: bytes) -> int:
    return zlib.crc32(b"%d " % place + digest)


#: Application id in the header of journal files: "blat" in ASCII.
APPLICATION_ID = 0x626C6174
#: The version of the tables in schema.sql.
FORMAT = 4

_SCHEMA = Path(__file__).with_name("schema.sql")
_PAGE = 4096
_CHECKPOINT_BYTES = 1000 * _PAGE  # SQLite's default
_CHECKPOINT_SECONDS = 60.0  # limits what is lost if the write-ahead log is damaged
_making = threading.Lock()

T = TypeVar("T")


class SQLiteFile:
    """A SQLite connection shared by threads; calls of threads and writes of processes take turns.

    Args:
        path: Path of the file, created if it does not exist.
        wait: Seconds to wait for other processes.
    """

    def __init__(self, path: str | os.PathLike[str], wait: float) -> None:
        self.path = Path(path)
        self._wait = wait
        self._lock = threading.Lock()
        self._closed = False
        self._since_checkpoint = 0
        self._checkpoint_at = 0.0
        self._log = self.path.with_name(self.path.name + "-wal")
        self._paths = str(self.path), str(self._log)  # checked by every call
        self._end = EndFile(self.path)
        self._last: LastRecord | None = None
        self._connection: sqlite3.Connection | None = None
        self._inode: Inode | None = None
        self._log_inode: Inode | None = None
        self._pid = os.getpid()
        with self._lock, self._translated("open"):
            self._connect()
        _open_files.add(self)

    def read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run single read statements; safe against interrupts, like :meth:`write`."""
        return self._run(act, None)

    def write(self, act: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run statements in a durable transaction, which is rolled back on errors.

        An exception between any two instructions (``KeyboardInterrupt``, a timeout) leaves neither
        the lock held nor a transaction open. A public context manager could not guarantee this,
        because Python may raise the exception on entering ``__exit__``, before anything is
        released.

        Args:
            act: Runs the statements.
            size: Approximate number of bytes written.
        """
        return self._run(act, size)

    def _run(self, act: Callable[[sqlite3.Connection], T], size: int | None) -> T:
        """Run statements in a transaction that writes ``size`` bytes, or only reads if None."""
        scope = self._statements() if size is None else self._transaction(size)
        with self._lock:
            try:
                with scope as connection:
                    return act(connection)
            except (BelatedError, sqlite3.Error):
                raise
            except BaseException:  # close the connection, which also closes all open cursors
                interrupted, self._connection, self._last = self._connection, None, None
                if interrupted is not None:
                    interrupted.rollback()
                    interrupted.close()
                raise

    @contextmanager
    def _statements(self) -> Iterator[sqlite3.Connection]:
        with self._translated("read"):
            connection = self._connect()
            self._check_in_place()
            yield connection

    @contextmanager
    def _transaction(self, size: int) -> Iterator[sqlite3.Connection]:
        with self._translated("write to"):
            connection = self._connect()
            try:
                # IMMEDIATE takes the write lock before the first read, so that data stays current.
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                self._check_in_place()
                connection.execute("COMMIT")
            except BaseException:
                self._last = None
                with suppress(sqlite3.ProgrammingError):  # the connection was closed
                    connection.rollback()  # a no-op if SQLite rolled back because the disk is full
                raise
            self._check_in_place()
            if self._last is not None:
                self._end.write(self._last)
                self._last = None
            self._checkpoint_if_due(connection, size)

    def note_last(self, last: LastRecord) -> None:
        """Remember the last record written; call this only inside :meth:`write`.

        The next time the file is opened, this record must exist.
        """
        self._last = last

    def check_open(self) -> None:
        """Raise JournalClosed if the file was closed."""
        if self._closed:
            message = f"the journal {str(self.path)!r} was closed: open it again to use it"
            raise JournalClosed(message)

    def close(self) -> None:
        """Close the connection permanently."""
        with self._lock:
            self._closed = True
            self._disconnect()
        _open_files.discard(self)

    def _connect(self) -> sqlite3.Connection:
        self.check_open()
        if self._connection is None:
            self._connection = _open(self.path, self._wait, self._end)
            self._inode = self._inode or inode_of(self.path)
            self._log_inode = None
            self._pid = os.getpid()
            self._checkpoint_at = time.monotonic() + _CHECKPOINT_SECONDS
            # Count a log left by other processes, so that the first write checkpoints a long log.
            self._since_checkpoint = self._log.stat().st_size if self._log.exists() else 0
        elif self._pid != os.getpid():
            message = (
                f"the journal {str(self.path)!r} was open in the parent process when this process "
                "was forked outside of Python: close it in the parent before the fork"
            )
            raise JournalError(message)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            if self._since_checkpoint:
                with suppress(sqlite3.Error):
                    self._checkpoint(self._connection)
            self._connection.close()
            self._connection = None
            self._end.close()
            # No other process has the file open, and the log is empty.
            if not self._log.exists() and inode_of(self.path) == self._inode:
                self._end.remove()

    def _check_in_place(self) -> None:
        """Raise JournalReplaced if the file at the path is no longer the open one.

        SQLite continues to write to a removed file, which is lost when the process ends.
        """
        path, log = self._paths
        log_inode = inode_of(log)
        self._log_inode = self._log_inode or log_inode
        if (self._inode, self._log_inode) != (inode_of(path), log_inode):
            message = (
                f"the journal {str(self.path)!r}, or its write-ahead log, was removed or replaced "
                "while it was open: events are no longer acknowledged. Put the file back, or "
                "restart the process to use the new file"
            )
            raise JournalReplaced(message)

    def _checkpoint_if_due(self, connection: sqlite3.Connection, size: int) -> None:
        """Checkpoint the write-ahead log while no other process can write.

        SQLite's automatic checkpoints allow concurrent commits. Before version 3.51.3, this could,
        very rarely, lose a commit: https://www.sqlite.org/wal.html#walresetbug
        """
        self._since_checkpoint += 2 * _PAGE + size
        late = time.monotonic() >= self._checkpoint_at
        if self._since_checkpoint >= _CHECKPOINT_BYTES or late:
            self._checkpoint(connection)

    def empty_log(self) -> None:
        """Checkpoint the write-ahead log completely, and truncate it.

        Raises:
            JournalUnavailable: other processes are reading, so the log still contains old bytes.
        """
        with self._lock, self._translated("empty the log of"):
            connection = self._connect()
            self._end.sync()
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            message = (
                f"the events in {str(self.path)!r} are overwritten, but its write-ahead log still "
                "holds the old bytes because other processes are reading: try again"
            )
            raise JournalUnavailable(message)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        self._since_checkpoint = 0
        self._checkpoint_at = time.monotonic() + _CHECKPOINT_SECONDS
        self._end.sync()
        # The commit is already durable. If other processes hold locks for long, or the disk is
        # full, a later checkpoint completes the work.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA busy_timeout = 200")
            connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * self._wait)}")

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise translated(error, verb, self.path) from error


class BorrowedFile(SQLiteFile):
    """Shares the connection of another object; closing this object leaves the connection open.

    Args:
        lender: Owner of the connection.
    """

    def __init__(self, lender: SQLiteFile) -> None:
        self.path = lender.path
        self._lender = lender
        self._closed = False

    def note_last(self, last: LastRecord) -> None:
        """Remember the last record written; see :meth:`SQLiteFile.note_last`."""
        self._lender.note_last(last)

    def empty_log(self) -> None:
        """Truncate the write-ahead log."""
        self._lender.empty_log()

    def close(self) -> None:
        """Close this object, but not the connection."""
        self._closed = True

    def _run(self, act: Callable[[sqlite3.Connection], T], size: int | None) -> T:
        self.check_open()
        return self._lender._run(act, size)


def open_file(place: str | os.PathLike[str] | SQLiteFile, wait: float) -> SQLiteFile:
    """Open a file, or share the connection of a file that is already open."""
    return BorrowedFile(place) if isinstance(place, SQLiteFile) else SQLiteFile(place, wait)


def _open(path: Path, wait: float, end: EndFile) -> sqlite3.Connection:
    """Connect with the settings that durability requires, and verify them."""
    if _make_private(path):
        end.remove()
    last = end.read()  # read before the journal, because commits are written to the journal first
    connection = sqlite3.connect(
        path, timeout=wait, isolation_level=None, check_same_thread=False, cached_statements=32
    )
    # Damaged text must not prevent reading; everything that matters has a checksum.
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        fresh = _is_fresh(connection, path)  # before changing anything in the file
        mode = _retry_while_busy(wait, lambda: _pragma(connection, "journal_mode = WAL"))
        if mode != "wal":
            message = (
                f"{str(path)!r} cannot use a write-ahead log (journal_mode is {mode!r}): put the "
                "journal on a local disk, not on a network file system, or use MemoryJournal"
            )
            raise JournalError(message)
        for setting in ("synchronous = FULL", "fullfsync = ON", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {setting}")
        # Zero the bytes of erased events and replaced snapshot pieces in the file.
        connection.execute("PRAGMA secure_delete = ON")
        if _pragma(connection, "synchronous") != 2:
            message = f"{str(path)!r}: SQLite refuses synchronous=FULL, so nothing would be durable"
            raise JournalError(message)
        if last is not None:
            _check_last(connection, path, last, fresh)
        if fresh:
            _create(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_last(connection: sqlite3.Connection, path: Path, last: LastRecord, fresh: bool) -> None:
    """Raise CorruptJournal if the file has lost an acknowledged record."""
    row = None
    if not fresh:
        select = "SELECT CAST(digest AS BLOB) FROM record WHERE place = ?"
        row = connection.execute(select, (last.place,)).fetchone()
    if row != (last.digest,):
        partition, position = split_place(last.place)
        message = (
            f"{str(path)!r} has lost acknowledged events: the record at partition {partition}, "
            f"position {position} was committed, but is missing or different now. The write-ahead "
            "log was damaged, or the file was replaced by an older copy: restore a backup, or, to "
            f"continue without these events, remove {str(path) + '.end'!r}"
        )
        raise CorruptJournal(message)


def _make_private(path: Path) -> bool:
    """Create a missing file that only its owner can read.

    SQLite would use the default permissions. The write-ahead log inherits the file's permissions.

    Returns:
        Whether the file is new.
    """
    if str(path) == ":memory:":  # a database in memory is not a file
        return False
    # Closing a file releases all of SQLite's locks on it in this process. Existing files are
    # therefore not touched, and no other thread may open the new file before it is closed here.
    with _making, suppress(OSError):  # SQLite reports errors when it opens the file
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return True
    return False


def _is_fresh(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is empty; raise if it is neither empty nor a readable journal."""
    # Use one statement, because another process may be creating the tables.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application == 0 and version == 0 and tables == 0:
        return True
    check_format(application, version, path)
    return False


def check_format(application: int, version: int, path: Path) -> None:
    """Raise if a file is not a journal, or was created by a newer release."""
    if application != APPLICATION_ID:
        raise _not_a_journal(path)
    if version > FORMAT:
        message = (
            f"{str(path)!r} has format {version}, but this release supports at most {FORMAT}: "
            "upgrade belated"
        )
        raise UnsupportedFormat(message)


def _not_a_journal(path: Path) -> NotAJournal:
    return NotAJournal(f"{str(path)!r} is not a belated journal: choose another file")


def _create(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if _is_fresh(connection, path):  # another process may have created the tables
        for statement in _SCHEMA.read_text(encoding="utf-8").split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, pragma: str) -> object:
    (value,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return value


def _retry_while_busy(wait: float, attempt: Callable[[], object]) -> object:
    """Retry while busy, because SQLite does not wait when two processes create a file's log."""
    deadline = time.monotonic() + wait
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


# SQLite tracks locks per process. A forked child would believe that it holds its parent's locks,
# even for its own connections, and could lose commits. All connections are therefore closed before
# a fork, and reopened when needed.
_open_files: weakref.WeakSet[SQLiteFile] = weakref.WeakSet()
_waiting_for_fork: list[SQLiteFile] = []


def _before_fork() -> None:
    for file in list(_open_files):
        file._lock.acquire()
        _waiting_for_fork.append(file)
        file._disconnect()
    _making.acquire()


def _after_fork() -> None:
    _making.release()
    while _waiting_for_fork:
        _waiting_for_fork.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
