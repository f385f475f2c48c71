"""A connection to PostgreSQL that keeps its promises: checked, bounded in time, renewed if lost."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from belated.exceptions import (
    BelatedError,
    InvalidInput,
    JournalClosed,
    JournalError,
    JournalUnavailable,
    MissingExtra,
    UnsupportedFormat,
)
from belated.journals.postgres.queries import VERSION, Packed, numbered, query

if TYPE_CHECKING:
    import psycopg


_OLDEST_SERVER = 14
#: Looks at which process answers, behind a pooler.
_SAMPLES = 40


def check_settings(row: tuple[Any, ...], place: str) -> None:
    """Refuse a server on which an acknowledged event could be lost or passed over."""
    version, standby, fsync, full_page_writes, synchronous_commit = row
    if version < _OLDEST_SERVER * 10_000:
        message = f"PostgreSQL {version // 10_000}: {_OLDEST_SERVER} or later is needed"
        raise JournalError(f"{place} is {message}")
    if standby:
        message = "is a standby, which lags behind and takes no events: name the primary"
        raise JournalError(f"{place} {message}")
    for name, value, unsafe in (
        ("fsync", fsync, ("off",)),
        ("full_page_writes", full_page_writes, ("off",)),
        ("synchronous_commit", synchronous_commit, ("off", "local")),
    ):
        if value in unsafe:
            message = f"then acknowledged events can be lost: set {name} = on"
            raise JournalError(f"{place} has {name} = {value}, and {message}")


def check_pooler(
    connection: psycopg.Connection[Any], other: psycopg.Connection[Any], place: str
) -> None:
    """Refuse a pooler that gives each transaction any connection (ADR 39).

    It keeps sessions apart if no two of its clients meet the same process, and none meets two.
    """
    mine: set[int] = set()
    theirs: set[int] = set()
    for _ in range(_SAMPLES):
        mine.add(_process(connection))
        theirs.add(_process(other))
    if len(mine) > 1 or len(theirs) > 1 or mine & theirs:
        message = (
            "is behind a pooler that shares connections between transactions, as PgBouncer does "
            "with pool_mode = transaction: settings on which durability rests would not hold. "
            "Connect to the server itself, which gets at most 6 connections of a process, or set "
            "pool_mode = session for this database"
        )
        raise JournalError(f"{place} {message}")


def _process(connection: psycopg.Connection[Any]) -> int:
    """Return the number of the server's process that answers."""
    row = connection.execute(query("process"), prepare=False).fetchone()
    assert row is not None
    return int(row[0])


try:
    import psycopg
    from psycopg import pq
    from psycopg.adapt import Dumper
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.generators import execute
except ModuleNotFoundError:
    raise MissingExtra("PostgreSQL", "postgres") from None
except ImportError:  # psycopg alone, on a machine without the library of PostgreSQL
    message = "psycopg finds no library of PostgreSQL: pip install 'psycopg[binary]'"
    raise BelatedError(message) from None

_GRACE = 1.0  # by which the server gives up before the client does

T = TypeVar("T")
Row = tuple[Any, ...]


class Talk:
    """What can be said to the server over one connection."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def run_query(self, name: str, /, **values: object) -> list[Row]:
        """Run a query of queries.sql; values are bound, never written into its text."""
        cursor = self._connection.execute(query(name), values or None, binary=True)
        return cursor.fetchall() if cursor.description else []

    def run_registered(self, name: str, rows: int, /, **values: object) -> list[Row]:
        """Run a query that finds this many rows, unless the bandit's registration was lost."""
        found = self.run_query(name, **values)
        if len(found) != rows:
            raise psycopg.errors.ForeignKeyViolation(f"{name}: {len(found)} of {rows} rows")
        return found

    def script(self, text: str) -> None:
        """Run several statements of ours."""
        self._connection.execute(text.encode())


class PostgresSession:
    """One connection, one lock: threads take turns.

    A connection that breaks is opened anew, once, and the call is repeated where that is safe. A
    forked process opens its own.

    Args:
        dsn: where the database is, as libpq takes it.
        wait: how many seconds to wait for the server.
    """

    def __init__(self, dsn: str, wait: float) -> None:
        self._given = read_dsn(dsn)
        self._wait = wait
        self._lock = threading.RLock()  # a transaction may look up the number of a bandit
        self._closed = False
        self._connection: Connection | None = None
        self._generation = 0
        self._pid = os.getpid()
        #: For messages; without the password.
        self.place = describe(self._given)

    @property
    def generation(self) -> int:
        """Changes whenever the database may be another: numbers of bandits are then outdated."""
        return self._generation

    def run_query(self, name: str, /, **values: object) -> list[Row]:
        """Run one query, which is a transaction of its own and may be repeated."""
        return self._run(lambda connection: Talk(connection).run_query(name, **values))

    def call(self, name: str, values: Sequence[bytes | None]) -> bytes | None:
        """Run one query whose values are packed, and that has one value; it may be repeated.

        For what is asked all the time: :meth:`run_query` takes four times as long.
        """
        return self._run(lambda connection: connection.call(name, values))

    def transact(self, work: Callable[[Talk], T], *, repeat: bool = True) -> T:
        """Do several things in one transaction.

        Args:
            work: what is to be done.
            repeat: False if it must not be done twice; where it is unknown whether it was, this is
                :class:`JournalUnavailable`.
        """

        def whole(connection: psycopg.Connection) -> T:
            with connection.transaction():
                return work(Talk(connection))

        if not repeat:
            self.run_query("has_tables")  # a connection that was lost long ago is noticed here
        return self._run(whole, repeat=repeat)

    def check_open(self) -> None:
        """Raise if it was closed."""
        if self._closed:
            message = f"the journal in {self.place} was closed: open it again to use it"
            raise JournalClosed(message)

    def check_tables(self) -> None:
        """Refuse a database whose tables are missing, too old or too new, with what to do."""
        if self.run_query("has_tables") != [(True,)]:
            raise JournalError(f"{self.place} has no tables for journals yet: {_HOW_TO_CREATE}")
        [(version, oldest)] = self.run_query("version")
        if (version or 0) < VERSION:
            message = (
                f"the tables in {self.place} have version {version or 0}, and this release needs "
                f'{VERSION}: run `belated schema --from {version or 0} | psql "$DATABASE_URL"` '
                "or PostgresJournal.create_tables(dsn)"
            )
            raise JournalError(message)
        if oldest > VERSION:
            message = (
                f"the tables in {self.place} have version {version}, and this release knows "
                f"{VERSION} at most: upgrade belated"
            )
            raise UnsupportedFormat(message)

    def close(self) -> None:
        """Close the connection for good."""
        self._leave_to_parent()
        with self._lock:
            self._closed = True
            self._disconnect()

    def _run(self, work: Callable[[Connection], T], *, repeat: bool = True) -> T:
        self._leave_to_parent()
        with self._lock, self._translated(repeat):
            self.check_open()
            connection = self._connected()
            try:
                return work(connection)
            except _NoAnswer:
                raise
            except psycopg.errors.ReadOnlySqlTransaction:  # it was demoted: another may lead now
                connection.close()
                if not repeat:
                    raise
            except psycopg.OperationalError:
                if not (repeat and connection.closed):
                    raise
            return work(self._connected())

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = None
            self._connection = self._connect()
            self._generation += 1
        return self._connection

    def _connect(self) -> Connection:
        ours: dict[str, Any] = {
            "fallback_application_name": "belated",
            "connect_timeout": math.ceil(self._wait),
            "tcp_user_timeout": _milliseconds(self._wait),
        }
        if "," in str(self._given.get("host") or self._given.get("hostaddr") or ""):
            ours["target_session_attrs"] = (
                "read-write"  # of several servers that which takes events
            )
        settings = ours | self._given | {"client_encoding": "utf8"}
        connection = Connection.connect(make_conninfo("", **settings), autocommit=True)
        try:
            connection.patience, connection.prepared = self._wait + _GRACE, set()
            self._set_up(connection, settings)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: Connection, settings: dict[str, Any]) -> None:
        """Refuse a server that does not keep what is promised; bound its time."""
        talk = Talk(connection)
        check_settings(talk.run_query("settings")[0], self.place)
        if _process(connection) != connection.pgconn.backend_pid:  # another one answers
            with Connection.connect(make_conninfo("", **settings), autocommit=True) as other:
                other.patience = connection.patience
                check_pooler(connection, other, self.place)
        lock, statement = self._wait, self._wait + _GRACE / 2
        talk.run_query("session", lock=_milliseconds(lock), statement=_milliseconds(statement))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave_to_parent(self) -> None:
        """After a fork the connection is the parent's, and another thread may hold the lock."""
        if self._pid != os.getpid():
            if self._connection is not None:
                _of_parents.append(self._connection)  # to close it would end the parent's
            self._connection = None
            self._lock = threading.RLock()
            self._pid = os.getpid()

    @contextmanager
    def _translated(self, repeat: bool) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._translation(error, repeat) from error

    def _translation(self, error: psycopg.Error, repeat: bool) -> Exception:
        what = _first_line(error)
        if isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction):
            doubt = (
                "nothing was acknowledged, and trying again is safe"
                if repeat
                else "whether it was taken is not known: look at the end of the journal first"
            )
            advice = _advice(error, what)
            return JournalUnavailable(f"{self.place} cannot be used now: {what}; {advice}{doubt}")
        if isinstance(error, psycopg.errors.ForeignKeyViolation):
            self._generation += 1
            return JournalUnavailable(
                f"{self.place} has lost the registration of a bandit ({what}): it was restored to "
                "an earlier state, or a standby without the last commits took over; nothing was "
                "acknowledged, and trying again registers the bandit"
            )
        if isinstance(error, psycopg.DataError):
            return InvalidInput(f"{self.place} refused a value: {what}")
        if isinstance(error, _MISSING):
            return JournalError(f"{self.place}: {what}: {_HOW_TO_CREATE}")
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            message = "grant this role usage of the schema belated and all on its tables"
            return JournalError(f"{self.place}: {what}: {message}")
        return JournalError(f"{self.place}: {what}")


class BorrowedSession(PostgresSession):
    """The connection of another session, for one of several that share it.

    Args:
        lender: whose connection it is; it is closed with that one.
    """

    def __init__(self, lender: PostgresSession) -> None:
        self._lender = lender
        self._closed = False
        self.place = lender.place

    @property
    def generation(self) -> int:
        """Changes whenever the database may be another; see :class:`PostgresSession`."""
        return self._lender.generation

    def close(self) -> None:
        """Use it no more."""
        self._closed = True

    def _run(self, work: Callable[[Connection], T], *, repeat: bool = True) -> T:
        self.check_open()
        return self._lender._run(work, repeat=repeat)


class PostgresLook(PostgresSession):
    """A connection that takes a server as it is, to find out what is wrong with it."""

    def _set_up(self, connection: Connection, settings: dict[str, Any]) -> None:
        """Refuse nothing."""

    def _translation(self, error: psycopg.Error, repeat: bool) -> Exception:
        return JournalUnavailable(f"{self.place}: {_first_line(error)}")


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _advice(error: psycopg.Error, what: str) -> str:
    """What to do, where trying again alone is not enough."""
    for kind, advice in _ADVICE:
        if isinstance(error, kind):
            return f"{advice}; "
    # While connecting there is nothing but the text, which may be in another language.
    if "too many c" in what or "connection slots" in what:
        return "close other connections, or set the server's max_connections higher; "
    return ""


class _PackedDumper(Dumper):
    """Sends what is packed as it is; the statement says which type it has."""

    format = psycopg.pq.Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj


psycopg.adapters.register_dumper(Packed, _PackedDumper)


class _NoAnswer(psycopg.OperationalError):
    """The server is there, but says nothing."""


class Connection(psycopg.Connection[Row]):
    """Gives up on a server that has gone silent: its own time-outs are of no use then."""

    patience = 60.0
    prepared: set[str]

    def call(self, name: str, values: Sequence[bytes | None]) -> bytes | None:
        """Run a query that is prepared once, without all that a cursor does around it."""
        if name in self.prepared:
            # psycopg deallocates all statements after a rollback, and so may a pooler.
            with suppress(psycopg.errors.InvalidSqlStatementName):
                return self._call_prepared(name, values)
        self.pgconn.send_prepare(name.encode(), numbered(name))
        self._answer()
        self.prepared.add(name)
        return self._call_prepared(name, values)

    def _call_prepared(self, name: str, values: Sequence[bytes | None]) -> bytes | None:
        binary = pq.Format.BINARY
        self.pgconn.send_query_prepared(name.encode(), values, [binary] * len(values), binary)
        return self._answer().get_value(0, 0)

    def _answer(self) -> pq.abc.PGresult:
        (result, *_) = self.wait(execute(self.pgconn))
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        answer: pq.abc.PGresult = result
        return answer

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Drive what psycopg does, until nothing has come for too long."""
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Any) -> Any:
        deadline = time.monotonic() + self.patience
        try:
            state = next(gen)
            while True:
                ready = yield state
                now = time.monotonic()
                if ready:
                    deadline = now + self.patience
                elif now > deadline:
                    gen.close()
                    self.pgconn.finish()
                    raise _NoAnswer(f"the server has not answered for {self.patience:g} s")
                state = gen.send(ready)
        except StopIteration as done:
            return done.value


def read_dsn(dsn: str) -> dict[str, Any]:
    """Return the parameters in an address, as libpq reads it."""
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:  # its message repeats the text, and so the password
        message = "the dsn is not one of PostgreSQL: postgresql://user@host:5432/name was expected"
        raise InvalidInput(message) from None


def describe(given: dict[str, Any]) -> str:
    """Return which database it is, and where; without the password."""
    name = given.get("dbname") or given.get("service") or os.environ.get("PGDATABASE", "")
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", "this machine")
    port = given.get("port")
    return f"database {str(name)!r} on {host}{f':{port}' if port else ''}"


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(1000 * seconds))


_HOW_TO_CREATE = 'run `belated schema | psql "$DATABASE_URL"` or PostgresJournal.create_tables(dsn)'
_MISSING = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)
_ADVICE = (
    (psycopg.errors.DiskFull, "make room on the disk of the server"),
    (
        psycopg.errors.LockNotAvailable,
        "another transaction holds the partition: wait for it, or end it",
    ),
)
#: Connections that a fork has copied here: kept, so that nothing closes them.
_of_parents: list[psycopg.Connection[Any]] = []
