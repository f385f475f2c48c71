"""Connections to PostgreSQL with checked settings, timeouts and reconnects."""

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
#: Number of queries for detecting a pooler.
_SAMPLES = 40


def check_settings(row: tuple[Any, ...], place: str) -> None:
    """Raise JournalError if acknowledged events could be lost or skipped on a server."""
    version, standby, fsync, full_page_writes, synchronous_commit = row
    if version < _OLDEST_SERVER * 10_000:
        message = f"PostgreSQL {version // 10_000}: {_OLDEST_SERVER} or later is required"
        raise JournalError(f"{place} is {message}")
    if standby:
        message = "is a standby, which is read-only and may lag: connect to the primary"
        raise JournalError(f"{place} {message}")
    for name, value, unsafe in (
        ("fsync", fsync, ("off",)),
        ("full_page_writes", full_page_writes, ("off",)),
        ("synchronous_commit", synchronous_commit, ("off", "local")),
    ):
        if value in unsafe:
            message = f"so acknowledged events can be lost: set {name} = on"
            raise JournalError(f"{place} has {name} = {value}, {message}")


def check_pooler(
    connection: psycopg.Connection[Any], other: psycopg.Connection[Any], place: str
) -> None:
    """Raise JournalError behind a pooler that shares connections between transactions (ADR 39).

    A session pooler assigns each client a separate server process.
    """
    own: set[int] = set()
    other_processes: set[int] = set()
    for _ in range(_SAMPLES):
        own.add(_process(connection))
        other_processes.add(_process(other))
    if len(own) > 1 or len(other_processes) > 1 or own & other_processes:
        message = (
            "is behind a pooler that shares connections between transactions, as PgBouncer does "
            "with pool_mode = transaction: session settings that durability depends on would not "
            "apply. Connect to the server directly (a process opens at most 6 connections), or "
            "set pool_mode = session for this database"
        )
        raise JournalError(f"{place} {message}")


def _process(connection: psycopg.Connection[Any]) -> int:
    """Return the id of the server process."""
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
except ImportError:  # psycopg is installed, but libpq is missing
    message = "psycopg cannot load libpq: pip install 'psycopg[binary]'"
    raise BelatedError(message) from None

_GRACE = 1.0  # seconds by which the client's timeout exceeds the server's

T = TypeVar("T")
Row = tuple[Any, ...]


class Talk:
    """Runs queries over one connection."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def run_query(self, name: str, /, **values: object) -> list[Row]:
        """Run a query of queries.sql with bound parameters."""
        cursor = self._connection.execute(query(name), values or None, binary=True)
        return cursor.fetchall() if cursor.description else []

    def run_registered(self, name: str, rows: int, /, **values: object) -> list[Row]:
        """Run a query that must return ``rows`` rows; fewer mean that a registration was lost."""
        result = self.run_query(name, **values)
        if len(result) != rows:
            raise psycopg.errors.ForeignKeyViolation(f"{name}: {len(result)} of {rows} rows")
        return result

    def script(self, text: str) -> None:
        """Run several statements."""
        self._connection.execute(text.encode())


class PostgresSession:
    """A connection shared by threads, whose calls are serialized.

    If the connection breaks, it is reopened once, and the call is repeated if this is safe. A
    forked process opens a new connection.

    Args:
        dsn: Address of the database, in any libpq form.
        wait: Seconds to wait for the server.
    """

    def __init__(self, dsn: str, wait: float) -> None:
        self._given = read_dsn(dsn)
        self._wait = wait
        # Reentrant, because transactions may look up the number of a bandit.
        self._lock = threading.RLock()
        self._closed = False
        self._connection: Connection | None = None
        self._generation = 0
        self._pid = os.getpid()
        #: Location for error messages, without the password.
        self.place = describe(self._given)

    @property
    def generation(self) -> int:
        """A number that changes whenever the database, and so bandit numbers, may have changed."""
        return self._generation

    def run_query(self, name: str, /, **values: object) -> list[Row]:
        """Run one query in its own transaction; it may be repeated."""
        return self._run(lambda connection: Talk(connection).run_query(name, **values))

    def call(self, name: str, values: Sequence[bytes | None]) -> bytes | None:
        """Run one query with packed parameters and a single result; it may be repeated.

        Use this for frequent queries; :meth:`run_query` takes four times as long.
        """
        return self._run(lambda connection: connection.call(name, values))

    def transact(self, work: Callable[[Talk], T], *, repeat: bool = True) -> T:
        """Run ``work`` in one transaction.

        Args:
            work: Runs queries.
            repeat: False if the transaction must not be repeated; if its outcome is unknown,
                :class:`JournalUnavailable` is raised.
        """

        def whole(connection: psycopg.Connection) -> T:
            with connection.transaction():
                return work(Talk(connection))

        if not repeat:
            self.run_query("has_tables")  # detects a connection that was lost earlier
        return self._run(whole, repeat=repeat)

    def check_open(self) -> None:
        """Raise JournalClosed if the session is closed."""
        if self._closed:
            message = f"the journal in {self.place} was closed: open it again to use it"
            raise JournalClosed(message)

    def check_tables(self) -> None:
        """Raise if the tables are missing, too old or too new."""
        if self.run_query("has_tables") != [(True,)]:
            raise JournalError(f"{self.place} has no tables for journals: {_HOW_TO_CREATE}")
        [(version, oldest)] = self.run_query("version")
        if (version or 0) < VERSION:
            message = (
                f"the tables in {self.place} have version {version or 0}, but this release needs "
                f'{VERSION}: run `belated schema --from {version or 0} | psql "$DATABASE_URL"` '
                "or PostgresJournal.create_tables(dsn)"
            )
            raise JournalError(message)
        if oldest > VERSION:
            message = (
                f"the tables in {self.place} have version {version}, but this release supports "
                f"at most {VERSION}: upgrade belated"
            )
            raise UnsupportedFormat(message)

    def close(self) -> None:
        """Close the connection permanently."""
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
            except psycopg.errors.ReadOnlySqlTransaction:  # another server may be primary
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
        defaults: dict[str, Any] = {
            "fallback_application_name": "belated",
            "connect_timeout": math.ceil(self._wait),
            "tcp_user_timeout": _milliseconds(self._wait),
        }
        if "," in str(self._given.get("host") or self._given.get("hostaddr") or ""):
            defaults["target_session_attrs"] = "read-write"  # selects the primary of several hosts
        settings = defaults | self._given | {"client_encoding": "utf8"}
        connection = Connection.connect(make_conninfo("", **settings), autocommit=True)
        try:
            connection.patience, connection.prepared = self._wait + _GRACE, set()
            self._set_up(connection, settings)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: Connection, settings: dict[str, Any]) -> None:
        """Check the settings of the server, and set timeouts."""
        talk = Talk(connection)
        check_settings(talk.run_query("settings")[0], self.place)
        if _process(connection) != connection.pgconn.backend_pid:  # behind a pooler
            with Connection.connect(make_conninfo("", **settings), autocommit=True) as second:
                second.patience = connection.patience
                check_pooler(connection, second, self.place)
        lock, statement = self._wait, self._wait + _GRACE / 2
        talk.run_query("session", lock=_milliseconds(lock), statement=_milliseconds(statement))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave_to_parent(self) -> None:
        """After a fork, leave the connection to the parent, and replace the lock."""
        if self._pid != os.getpid():
            if self._connection is not None:
                _inherited.append(self._connection)  # closing it would end the parent's connection
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
        cause = _first_line(error)
        if isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction):
            outcome = (
                "nothing was acknowledged, so it is safe to retry"
                if repeat
                else "the outcome of the call is unknown: check the end of the journal first"
            )
            advice = _advice(error, cause)
            return JournalUnavailable(f"{self.place} is unavailable: {cause}; {advice}{outcome}")
        if isinstance(error, psycopg.errors.ForeignKeyViolation):
            self._generation += 1
            return JournalUnavailable(
                f"{self.place} has lost the registration of a bandit ({cause}): it was restored to "
                "an earlier state, or a standby without the last commits took over. Nothing was "
                "acknowledged; retrying registers the bandit again"
            )
        if isinstance(error, psycopg.DataError):
            return InvalidInput(f"{self.place} rejected a value: {cause}")
        if isinstance(error, _MISSING):
            return JournalError(f"{self.place}: {cause}: {_HOW_TO_CREATE}")
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            remedy = "grant this role USAGE on the schema belated and privileges on its tables"
            return JournalError(f"{self.place}: {cause}: {remedy}")
        return JournalError(f"{self.place}: {cause}")


class BorrowedSession(PostgresSession):
    """Shares the connection of another session; closing this object leaves the connection open.

    Args:
        lender: Owner of the connection.
    """

    def __init__(self, lender: PostgresSession) -> None:
        self._lender = lender
        self._closed = False
        self.place = lender.place

    @property
    def generation(self) -> int:
        """The owner's generation; see :attr:`PostgresSession.generation`."""
        return self._lender.generation

    def close(self) -> None:
        """Close this object, but not the connection."""
        self._closed = True

    def _run(self, work: Callable[[Connection], T], *, repeat: bool = True) -> T:
        self.check_open()
        return self._lender._run(work, repeat=repeat)


class PostgresInspection(PostgresSession):
    """A connection without checks, for diagnosing a server."""

    def _set_up(self, connection: Connection, settings: dict[str, Any]) -> None:
        """Skip the checks."""

    def _translation(self, error: psycopg.Error, repeat: bool) -> Exception:
        return JournalUnavailable(f"{self.place}: {_first_line(error)}")


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _advice(error: psycopg.Error, what: str) -> str:
    """Return a remedy if retrying alone is not enough."""
    for kind, advice in _ADVICE:
        if isinstance(error, kind):
            return f"{advice}; "
    # Errors while connecting have no code, and their text may be translated.
    if "too many c" in what or "connection slots" in what:
        return "close other connections, or increase the server's max_connections; "
    return ""


class _PackedDumper(Dumper):
    """Sends packed parameters unchanged; the statement casts them."""

    format = psycopg.pq.Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj


psycopg.adapters.register_dumper(Packed, _PackedDumper)


class _NoAnswer(psycopg.OperationalError):
    """The server did not respond in time."""


class Connection(psycopg.Connection[Row]):
    """A connection with a client-side timeout, which also detects a hanging server."""

    patience = 60.0
    prepared: set[str]

    def call(self, name: str, values: Sequence[bytes | None]) -> bytes | None:
        """Run a query as a prepared statement, without the overhead of a cursor."""
        if name in self.prepared:
            # psycopg deallocates all statements after a rollback, and poolers may, too.
            with suppress(psycopg.errors.InvalidSqlStatementName):
                return self._call_prepared(name, values)
        self.pgconn.send_prepare(name.encode(), numbered(name))
        self._result()
        self.prepared.add(name)
        return self._call_prepared(name, values)

    def _call_prepared(self, name: str, values: Sequence[bytes | None]) -> bytes | None:
        binary = pq.Format.BINARY
        self.pgconn.send_query_prepared(name.encode(), values, [binary] * len(values), binary)
        return self._result().get_value(0, 0)

    def _result(self) -> pq.abc.PGresult:
        (result, *_) = self.wait(execute(self.pgconn))
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        checked: pq.abc.PGresult = result
        return checked

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a psycopg generator with a timeout between responses."""
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
                    raise _NoAnswer(f"the server has not responded for {self.patience:g} s")
                state = gen.send(ready)
        except StopIteration as stop:
            return stop.value


def read_dsn(dsn: str) -> dict[str, Any]:
    """Parse an address as libpq does."""
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:  # whose message contains the password
        message = "the dsn is not a PostgreSQL address: use postgresql://user@host:5432/name"
        raise InvalidInput(message) from None


def describe(given: dict[str, Any]) -> str:
    """Return the name and host of a database, without the password."""
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
    (psycopg.errors.DiskFull, "make room on the server's disk"),
    (
        psycopg.errors.LockNotAvailable,
        "wait for or end the transaction that has locked the partition",
    ),
)
#: Connections inherited by a fork, referenced so that they are not closed.
_inherited: list[psycopg.Connection[Any]] = []
