"""A file of SQLite that keeps its promises: opened, checked, locked, and safe across a fork."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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

# A place is one number: 11 bits of bandit, 12 of partition, 40 of position.
POSITIONS = 1 << 40
_PARTITIONS = 1 << 12
BANDITS = 1 << 11


def place_of(bandit: int, partition: int, position: int) -> int:
    """Where a record is.

    >>> place_of(1, 2, 3) == 1 << 52 | 2 << 40 | 3
    True
    """
    return (bandit * _PARTITIONS + partition) * POSITIONS + position


def split_place(place: int) -> tuple[int, int]:
    """The partition and the position of a place.

    >>> split_place(place_of(1, 2, 3))
    (2, 3)
    """
    return place // POSITIONS % _PARTITIONS, place % POSITIONS


_PASSING = {
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
    """The error to raise in its place; itself, if there is none."""
    if isinstance(error, UnicodeDecodeError):  # raised for SQLite's message about the schema
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
            f"could not {verb} {str(path)!r}: {error}; see that its folder is there, and that "
            "folder and file may be written to"
        )
        return JournalUnavailable(message)
    if code in _PASSING:
        message = (
            f"could not {verb} {str(path)!r}: {error}; nothing was acknowledged, and trying "
            "again is safe"
        )
        return JournalUnavailable(message)
    return error


#: Device and number.
Inode = tuple[int, int]


def inode_of(path: str | Path) -> Inode | None:
    """Return what identifies the file at a path; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


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


#: Says in the file's header that it is a journal: "blat" in ASCII.
APPLICATION_ID = 0x626C6174
#: The version of the tables in schema.sql.
FORMAT = 4

_SCHEMA = Path(__file__).with_name("schema.sql")
_PAGE = 4096
_CHECKPOINT_BYTES = 1000 * _PAGE  # after which SQLite too would do it
_CHECKPOINT_SECONDS = 60.0  # what is in its place cannot be lost with the write-ahead log
_making = threading.Lock()

T = TypeVar("T")


class SQLiteFile:
    """One connection, one lock. Threads take turns; so do processes, when they write.

    Args:
        path: of the file; made if it is not there.
        wait: how many seconds to wait for another process.
    """

    def __init__(self, path: str | os.PathLike[str], wait: float) -> None:
        self.path = Path(path)
        self._wait = wait
        self._lock = threading.Lock()
        self._closed = False
        self._since_checkpoint = 0
        self._checkpoint_at = 0.0
        self._log = self.path.with_name(self.path.name + "-wal")
        self._paths = str(self.path), str(self._log)  # looked at in every call
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
        """Run single statements that read; safe against interrupts, as :meth:`write` is."""
        return self._run(act, self._statements())

    def write(self, act: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run statements in a transaction: durable at the end, undone by an error.

        An exception may be raised between any two instructions (``KeyboardInterrupt``, a time-out):
        it leaves neither the lock held nor a transaction open. A context manager could not promise
        this: Python may raise it on entering ``__exit__``, before anything is released.

        Args:
            act: runs the statements.
            size: about how many bytes will be written.
        """
        return self._run(act, self._transaction(size))

    def _run(
        self,
        act: Callable[[sqlite3.Connection], T],
        scope: AbstractContextManager[sqlite3.Connection],
    ) -> T:
        with self._lock:
            try:
                with scope as connection:
                    return act(connection)
            except (BelatedError, sqlite3.Error):
                raise
            except BaseException:  # cursors may be open too: they end with the connection
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
                # IMMEDIATE takes the lock before anything is read: what is read stays true.
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                self._check_in_place()
                connection.execute("COMMIT")
            except BaseException:
                self._last = None
                with suppress(sqlite3.ProgrammingError):  # the connection was closed
                    connection.rollback()  # nothing, if SQLite did: when the disk is full
                raise
            self._check_in_place()
            if self._last is not None:
                self._end.write(self._last)
                self._last = None
            self._checkpoint_if_due(connection, size)

    def note_last(self, last: LastRecord) -> None:
        """Note, within :meth:`write`, which record is the last: it is looked for when opened."""
        self._last = last

    def check_open(self) -> None:
        """Raise if it was closed."""
        if self._closed:
            message = f"the journal {str(self.path)!r} was closed: open it again to use it"
            raise JournalClosed(message)

    def close(self) -> None:
        """Close the connection for good."""
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
            # Others may have left a long log and gone: then the first write here clears it.
            self._since_checkpoint = self._log.stat().st_size if self._log.exists() else 0
        elif self._pid != os.getpid():
            message = (
                f"the journal {str(self.path)!r} is open in the process this one was forked from, "
                "in a way Python was not told of: close it there before the fork"
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
            # No one else has it open: all is in its place.
            if not self._log.exists() and inode_of(self.path) == self._inode:
                self._end.remove()

    def _check_in_place(self) -> None:
        """Raise if the file at the path is no longer the one that is open.

        SQLite goes on writing to a file that was removed, and all of it is lost with the process.
        """
        path, log = self._paths
        there = inode_of(log)
        self._log_inode = self._log_inode or there
        if (self._inode, self._log_inode) != (inode_of(path), there):
            message = (
                f"the journal {str(self.path)!r}, or its write-ahead log, was removed or replaced "
                "while it was open: nothing is acknowledged any more. Put the file back, or "
                "restart to use the one that is there now"
            )
            raise JournalReplaced(message)

    def _checkpoint_if_due(self, connection: sqlite3.Connection, size: int) -> None:
        """Move what is in the write-ahead log to its place, while no one else can write.

        SQLite's own checkpoints let others commit meanwhile. Before 3.51.3 this could, very
        seldom, make it forget a commit: https://www.sqlite.org/wal.html#walresetbug
        """
        self._since_checkpoint += 2 * _PAGE + size
        late = time.monotonic() >= self._checkpoint_at
        if self._since_checkpoint >= _CHECKPOINT_BYTES or late:
            self._checkpoint(connection)

    def empty_log(self) -> None:
        """Move all that is in the write-ahead log to its place, and cut the log to nothing.

        Raises:
            JournalUnavailable: others are in the way; old bytes stay in the log for now.
        """
        with self._lock, self._translated("empty the log of"):
            connection = self._connect()
            self._end.sync()
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            message = (
                f"{str(self.path)!r} is overwritten, and its write-ahead log still holds the old "
                "bytes: others are reading; try again"
            )
            raise JournalUnavailable(message)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        self._since_checkpoint = 0
        self._checkpoint_at = time.monotonic() + _CHECKPOINT_SECONDS
        self._end.sync()
        # The commit is safe already. If others are in the way for long, or the disk is full, this
        # does what it can, and a later one does the rest.
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
    """The connection of another object, for one of several that share it.

    Args:
        lender: whose connection it is; it is closed with that one.
    """

    def __init__(self, lender: SQLiteFile) -> None:
        self.path = lender.path
        self._lender = lender
        self._closed = False

    def read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run single statements that read."""
        self.check_open()
        return self._lender.read(act)

    def write(self, act: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Run statements in a transaction."""
        self.check_open()
        return self._lender.write(act, size)

    def note_last(self, last: LastRecord) -> None:
        """Note, within :meth:`write`, which record is the last."""
        self._lender.note_last(last)

    def empty_log(self) -> None:
        """Cut the write-ahead log to nothing."""
        self._lender.empty_log()

    def close(self) -> None:
        """Use it no more."""
        self._closed = True


def open_file(place: str | os.PathLike[str] | SQLiteFile, wait: float) -> SQLiteFile:
    """A connection of its own to a file, or a share in one that is open."""
    return BorrowedFile(place) if isinstance(place, SQLiteFile) else SQLiteFile(place, wait)


def _open(path: Path, wait: float, end: EndFile) -> sqlite3.Connection:
    """A connection with the settings without which nothing is promised, read back."""
    if _make_private(path):
        end.remove()
    last = end.read()  # before the file is: a commit comes first
    connection = sqlite3.connect(
        path, timeout=wait, isolation_level=None, check_same_thread=False, cached_statements=32
    )
    # Text that is damaged must not hinder reading; whatever matters is under a checksum.
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        fresh = _is_fresh(connection, path)  # before anything in the file is changed
        mode = _patiently(wait, lambda: _pragma(connection, "journal_mode = WAL"))
        if mode != "wal":
            message = (
                f"{str(path)!r} cannot have a write-ahead log (journal_mode is {mode!r}): put the "
                "journal on a local disk, not on a network file system, or use MemoryJournal"
            )
            raise JournalError(message)
        for setting in ("synchronous = FULL", "fullfsync = ON", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {setting}")
        # What is erased leaves no bytes behind, in snapshots that were replaced either.
        connection.execute("PRAGMA secure_delete = ON")
        if _pragma(connection, "synchronous") != 2:
            message = f"{str(path)!r}: SQLite does not take synchronous=FULL; nothing would be safe"
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
    """Refuse a file that has lost what was acknowledged."""
    found = None
    if not fresh:
        find = "SELECT CAST(digest AS BLOB) FROM record WHERE place = ?"
        found = connection.execute(find, (last.place,)).fetchone()
    if found != (last.digest,):
        partition, position = split_place(last.place)
        message = (
            f"{str(path)!r} has lost acknowledged events: the record at partition {partition}, "
            f"position {position} was committed, and is gone or another one. Its write-ahead log "
            "was damaged, or an older copy was put in its place: restore a backup; or, to go on "
            f"without them, remove {str(path) + '.end'!r}"
        )
        raise CorruptJournal(message)


def _make_private(path: Path) -> bool:
    """Make a file that is not there so that only its owner can read it, and what lies beside it.

    SQLite itself would let everyone read it; its log takes over the rights of the file.

    Returns:
        Whether the file is new.
    """
    if str(path) == ":memory:":  # a name that means no file to SQLite
        return False
    # One thread at a time: to close a file takes SQLite's locks on it from the whole process. So
    # none may open the new file before it is closed here, and a file that is there is not touched.
    with _making, suppress(OSError):  # SQLite is about to say what is wrong
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return True
    return False


def _is_fresh(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is still empty; an error if it is neither that nor a journal we can read."""
    # One statement sees one state of the file, also while another process is creating the tables.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application == 0 and version == 0 and tables == 0:
        return True
    check_format(application, version, path)
    return False


def check_format(application: int, version: int, path: Path) -> None:
    """Refuse a file that is no journal, or that a newer release has made."""
    if application != APPLICATION_ID:
        raise _not_a_journal(path)
    if version > FORMAT:
        message = (
            f"{str(path)!r} has format {version}, and this release knows {FORMAT} at most: "
            "upgrade belated"
        )
        raise UnsupportedFormat(message)


def _not_a_journal(path: Path) -> NotAJournal:
    return NotAJournal(f"{str(path)!r} is no journal of belated: choose another file")


def _create(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if _is_fresh(connection, path):  # no other process was faster
        for statement in _SCHEMA.read_text(encoding="utf-8").split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, pragma: str) -> object:
    (value,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return value


def _patiently(wait: float, attempt: Callable[[], object]) -> object:
    """Try for a while: SQLite does not wait by itself when two processes make a file's log."""
    deadline = time.monotonic() + wait
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


# SQLite keeps what it knows of its locks in the process. A child that inherits this believes to
# hold locks that only its parent has, even on a connection of its own, and a file can lose commits.
# So no connection may live through a fork: they are closed before, and opened anew when needed.
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
