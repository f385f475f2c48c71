"""A durable journal in PostgreSQL, shared by processes on any number of machines."""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from belated.core.events import (
    Decision,
    Event,
    Opaque,
    Overwritten,
    Record,
    Settled,
    digest_of,
    encode,
)
from belated.core.ids import check_id, check_partitions, erased_key_of, partition_of
from belated.exceptions import JournalMismatch
from belated.journals.arrivals import (
    LAST_SETTLEMENTS,
    Clock,
    FirstDecisions,
    arrange_imported,
    check_partition,
    check_range,
    check_requests,
    erased_key_in,
    route,
    stamps_for,
    subject_of,
)
from belated.journals.bandits import Registration, check_partition_count, find_bandit, register
from belated.journals.indexed import StoredJournal, T
from belated.journals.log import EMPTY, Appended, AppendedAfter, Requests, Tail
from belated.journals.outcomes import OutcomeMessage
from belated.journals.pages import ColumnPage
from belated.journals.postgres import open_session
from belated.journals.postgres.cells import PostgresCells, put_within
from belated.journals.postgres.queries import (
    Packed,
    migrations,
    pack_bytes,
    pack_integers,
    pack_texts,
    unpack_bigints,
)
from belated.journals.shelf import ACTS, act_cells, has_acts
from belated.model.kernels.pages import PADDING

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


#: Prefixes of the marks of events without an id; the seventh byte of a key is never 0.
SETTLED, _OTHER = bytes(8), bytes(7) + b"\1"
#: A NUL character in JSON, which PostgreSQL cannot store; the group matches preceding backslashes.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
#: Number of bytes of an erased key in a mark: 8 of the id's key, and 8 of a cryptographic hash.
INDEXED = 16
#: The byte after the key, which separates decisions from other records of an id.
DECISION, _OF_DECISION = b"\1", b"\2"


class Arrivals:
    """The parameters of an ``append`` query; duplicate events are sent only once.

    Attributes:
        values: Parameters of the query, in order.
        duplicates: Number of events not written because they are already stored or repeated.
    """

    def __init__(
        self,
        bandits: Sequence[Registration],
        partitions: Sequence[int],
        events: Sequence[Event | Opaque],
        stamps: Sequence[int] | None = None,
    ) -> None:
        data = [encode(event) for event in events]
        digests = [digest_of(encoded) for encoded in data]
        marks = [mark_of(event, digest) for event, digest in zip(events, digests, strict=True)]
        numbers = [bandit.number for bandit in bandits]
        # For each event, its index among the sent events; None if all are sent.
        self._sent: list[int] | None = None
        self.duplicates = 0
        if len(set(marks)) < len(marks):
            first: dict[tuple[int, int, bytes], int] = {}
            keys = list(zip(numbers, partitions, marks, strict=True))
            unique = [n for n, key in enumerate(keys) if first.setdefault(key, n) == n]
            index_of = {n: index for index, n in enumerate(unique)}
            self._sent = [index_of[first[key]] for key in keys]
            self.duplicates = len(keys) - len(unique)
            numbers, partitions = [numbers[n] for n in unique], [partitions[n] for n in unique]
            marks, data = [marks[n] for n in unique], [data[n] for n in unique]
            digests = [digests[n] for n in unique]
            stamps = None if stamps is None else [stamps[n] for n in unique]
        self.values: dict[str, Packed | None] = {
            "bandits": pack_integers(numbers, 4),
            "partitions": pack_integers(partitions, 2),
            "marks": pack_bytes(marks),
            "crcs": pack_integers([zlib.crc32(encoded) for encoded in data], 8),
            "digests": pack_bytes(digests),
            "events": pack_bytes(data),
            "stamps": None if stamps is None else pack_integers(stamps, 8),
            "owners": None,
            "homes": None,
            "decided": None,
            "kept": None,
            "requests": None,
            "behind": None,
        }
        self._digests = digests

    def refuse_second(self, ids: Sequence[tuple[Registration, str]]) -> None:
        """Make the query write nothing if one of these ids has a decision.

        Args:
            ids: Pairs of bandit and id.
        """
        bandits = [bandit for bandit, _ in ids]
        keys = [erased_key_of(id) for _, id in ids]
        homes = [partition_of(key, b.partitions) for key, b in zip(keys, bandits, strict=True)]
        self.values["owners"] = pack_integers([bandit.number for bandit in bandits], 4)
        self.values["homes"] = pack_integers(homes, 2)
        self.values["decided"] = pack_bytes([key[:INDEXED] + DECISION for key in keys])

    def add_requests(self, events: Sequence[Event | Opaque], requests: Requests | None) -> None:
        """Make the query store the requests of decisions among the events."""
        check_requests(events, requests)
        if not requests:
            return
        indices = range(len(events)) if self._sent is None else self._sent
        by_index: dict[int, bytes] = {}
        for n, request in requests.items():
            by_index.setdefault(indices[n], request)
        self.values["kept"] = pack_integers([index + 1 for index in by_index], 8)
        self.values["requests"] = pack_bytes(list(by_index.values()))

    def follow(self, last: Record) -> None:
        """Make the query return the timestamp if ``last`` is the last record of the partition."""
        self.values["behind"] = Packed(last.digest + last.recorded.to_bytes(8, signed=True))

    def send(self, session: PostgresSession) -> list[int] | None:
        """Return the query's result; None if an id of :meth:`refuse_second` may have a decision."""
        result = session.call("append", list(self.values.values()))
        return None if result is None else unpack_bigints(result)

    def records_after(
        self, last: Record, events: Sequence[Event], result: list[int]
    ) -> list[Record]:
        """Return the records of the events if they directly follow ``last``, otherwise none."""
        *positions, recorded = result
        follows = len(positions) == len(self._digests) and positions[0] == last.position + 1
        if not follows or self._sent is not None:  # repeated events share a record
            return []
        return [
            Record(last.partition, position, recorded, event, digest)
            for position, event, digest in zip(positions, events, self._digests, strict=True)
        ]

    def is_duplicate(self, result: list[int]) -> list[bool]:
        """Return, for each event, whether it was skipped because it is stored or repeated."""
        seen: set[int] = set()
        duplicate = []
        for index in self._sent or range(len(self._digests)):
            duplicate.append(result[index] < 0 or index in seen)
            seen.add(index)
        return duplicate

    def positions(self, result: list[int]) -> list[int]:
        """Return the position of each event, given the result of the query."""
        positions = result[: len(self._digests)]
        if positions and min(positions) < 0:  # the position of a stored event is negated
            self.duplicates += sum(position < 0 for position in positions)
            positions = [abs(position) for position in positions]
        if self._sent is None:
            return positions
        return [positions[index] for index in self._sent]


def check_of(partition: int, position: int, recorded: int, data: bytes) -> int:
    """Return the checksum of a row's values, computed as in the database."""
    return zlib.crc32(data) ^ position ^ recorded ^ partition << 40


def mark_of(event: Event | Opaque, digest: bytes) -> bytes:
    """Return the key by which duplicates of an event are detected; see schema.sql."""
    key = erased_key_in(event)
    if key is not None:
        kind = DECISION if isinstance(event, Decision) else _OF_DECISION
        return key[:INDEXED] + kind + digest[:8]
    return (SETTLED if isinstance(event, Settled) else _OTHER) + digest[:8]


def beyond(mark: bytes) -> bytes:
    """Return an upper bound on all marks with this prefix."""
    return mark + b"\xff" * 9


#: Exclusive upper bound on bandit numbers.
_NUMBERS = 1 << 31
#: Number of recent records to search for settlements first.
_RECENT = 2_000


class PostgresJournal(StoredJournal):
    """A journal in PostgreSQL; appended events are on stable storage when the call returns.

    Any number of threads, processes and machines may append concurrently. Within a partition,
    appends are serialized, and positions follow the order of commits. Timestamps come from the
    server's clock. Positions are consecutive and records have checksums, so that missing and
    changed records are detected. Identical events are stored once; a duplicate gets the position of
    the stored event.

    The tables must exist; see :meth:`create_tables`. The server must be a primary of version 14 or
    later that syncs commits; any other server is refused. Requires the ``postgres`` extra. See the
    how-to on PostgreSQL.

    Args:
        dsn: Address of the database: ``postgresql://user@host/name``, or any other libpq form.
        bandit: Name of the bandit within the database.
        partitions: Number of partitions, a power of two that is fixed when the bandit is first
            opened. None means the existing number, or 1 for a new bandit.
        wait: Seconds to wait for the server and for locks before raising
            :class:`JournalUnavailable`.
    """

    #: Number of duplicates received and not written.
    duplicates = 0
    _registration: Registration
    _generation: int

    def __init__(
        self,
        dsn: str | PostgresSession,
        *,
        bandit: str,
        partitions: int | None = None,
        wait: float = 10.0,
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        requested = None if partitions is None else check_partitions(partitions)
        #: Replaces the server's clock in tests.
        self._clock: Clock | None = None  # type: ignore[assignment]
        self._session = open_session(dsn, wait)
        self._place = self._session.place
        self._open_shelf(PostgresCells(self._session))
        try:
            self._register(Registration(bandit, 0, requested or 1), requested)
        except BaseException:
            self._session.close()
            raise
        self._partitions = self._registration.partitions

    @staticmethod
    def create_tables(dsn: str, *, wait: float = 10.0) -> None:
        """Create the tables in a database, or migrate the tables of an older release.

        Call this once per database; it is idempotent. If programs are not allowed to create tables,
        ``belated schema`` prints the same statements for psql.

        Args:
            dsn: Address of the database.
            wait: Seconds to wait for the server.
        """

        def create(talk: Talk) -> None:
            talk.run_query("lock_tables")
            version = 0
            if talk.run_query("has_tables") == [(True,)]:
                version = talk.run_query("version")[0][0] or 0
            for step in migrations(version):
                talk.script(step)

        session = open_session(dsn, wait, check=False)
        try:
            session.transact(create)
        finally:
            session.close()

    def close(self) -> None:
        """Close the connection; any later call raises :class:`JournalClosed`."""
        self.cells.close()
        self._session.close()

    # --- the number of the bandit ----------------------------------------------------------------

    # The number is valid only in the database from which it was read. Whenever the database may be
    # a different one (after a reconnect, a restore or a failover), the name is resolved again, and
    # registered again if the database has lost it. Numbers are random, so that the number of a lost
    # bandit is never reused. With a sequence, a database restored to an earlier state, or a standby
    # without the last commits, would reuse it, and processes that remember the number would write
    # to the wrong journal.

    @property
    def number(self) -> int:
        """The number of the bandit in the database."""
        return self.registration.number

    @property
    def registration(self) -> Registration:
        """The registry entry of the bandit."""
        if self._generation != self._session.generation:
            self._register(self._registration, self._partitions)
        return self._registration

    def _update_identity(
        self, change: Callable[[dict[str, str] | None], dict[str, str]]
    ) -> dict[str, str]:
        assert self.number
        identity = super()._update_identity(change)
        self._registration = msgspec.structs.replace(self._registration, identity=identity)
        return identity

    def _register(self, new: Registration, requested: int | None) -> None:
        """Find the bandit in the database; register it if it is new or was lost."""
        generation = self._session.generation
        _, entry = find_bandit(self.cells, self._bandit)
        while entry is None:
            draft = msgspec.structs.replace(new, number=1 + secrets.randbelow(_NUMBERS - 1))
            # The rows that appends lock must exist before the cell is written.
            values = {"bandit": draft.number, "partitions": draft.partitions}
            self._session.run_query("make_partitions", **values)
            entry = register(self.cells, draft)
        check_partition_count(self._bandit, self._place, requested, entry.partitions)
        self._registration = entry
        if entry.topic is not None:
            where = f"in the Kafka topic {entry.topic!r}"
            message = f"the records of bandit {self._bandit!r} of {self._place} are {where}"
            remedy = "open it by its `kafka:` address, or choose another name"
            raise JournalMismatch(f"{message}: {remedy}")
        self._generation = generation

    def _parameters(self, partition: int) -> dict[str, int]:
        return {"bandit": self.number, "partition": partition}

    # --- the log ---------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events atomically; see :meth:`Log.append`.

        An event that is identical to a stored event in its partition is not written again, and gets
        the position of the stored event.
        """
        arrivals = self._arrivals(events, recorded, requests)
        self._session.check_open()
        if not events:
            return []
        if has_acts(events):
            return self._session.transact(lambda talk: self._append_within(talk, events, arrivals))
        result = arrivals.send(self._session)
        assert result is not None
        return self._positions(arrivals, result)

    def _append_within(
        self, talk: Talk, events: Sequence[Event | Opaque], arrivals: Arrivals
    ) -> list[int]:
        """Append within a transaction, and copy operator actions to their cells."""
        ((result,),) = talk.run_query("append", **arrivals.values)
        duplicates = arrivals.is_duplicate(result)
        positions = self._positions(arrivals, result)
        puts: dict[str, bytes] = {}
        for event, position, is_duplicate in zip(events, positions, duplicates, strict=True):
            if subject_of(event) in ACTS and not is_duplicate:
                home = route(event, self._partitions)  # type: ignore[arg-type]
                place = {**self._parameters(home), "after": position - 1, "limit": 1}
                ((_, *row),) = talk.run_query("read", **place)
                puts |= act_cells(self._bandit, self._record_of((home, position, *row)))
        if puts:
            put_within(talk, puts)
        return positions

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Append events and return their records; see :meth:`FollowedLog.append_after`."""
        arrivals = self._arrivals(events, requests=requests)
        arrivals.follow(last)
        self._session.check_open()
        if not events:
            return AppendedAfter([], [])
        if has_acts(events):
            return AppendedAfter(self.append(events, requests=requests), [])
        result = arrivals.send(self._session)
        assert result is not None
        records = arrivals.records_after(last, events, result)
        return AppendedAfter(self._positions(arrivals, result), records)

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events, but no second decision per id; see :meth:`UniqueLog.append_unique`."""
        if not ids:
            return Appended(self.append(events, requests=requests), {})
        self._session.check_open()
        if not has_acts(events):
            first = FirstDecisions(events, ids)
            arrivals = self._arrivals(first.events, requests=first.requests(requests))
            arrivals.refuse_second([(self.registration, id) for id in ids])
            if (result := arrivals.send(self._session)) is not None:
                return first.appended(self._positions(arrivals, result))
        return self._session.transact(lambda talk: self._append_new(talk, events, ids, requests))

    def _append_new(
        self, talk: Talk, events: Sequence[Event], ids: Collection[str], requests: Requests | None
    ) -> Appended:
        """Look up the ids under a lock, then append; skip decisions whose id has a decision."""
        self._lock_partitions(talk, {route(event, self._partitions) for event in events})
        stored = self._find(talk, {erased_key_of(id) for id in ids}, 0)
        first = FirstDecisions(events, ids, stored)
        if not first.events:
            return first.appended([])
        arrivals = self._arrivals(first.events, requests=first.requests(requests))
        return first.appended(self._append_within(talk, first.events, arrivals))

    def _arrivals(
        self,
        events: Sequence[Event],
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> Arrivals:
        partitions = [route(event, self._partitions) for event in events]
        stamps = None
        if recorded is not None or self._clock is not None:
            stamps = stamps_for(events, recorded, self._clock or (lambda: 0))
        arrivals = Arrivals([self.registration] * len(events), partitions, events, stamps)
        arrivals.add_requests(events, requests)
        return arrivals

    def _positions(self, arrivals: Arrivals, result: list[int]) -> list[int]:
        positions = arrivals.positions(result)
        self.duplicates += arrivals.duplicates
        return positions

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their original timestamps; see :meth:`Log.import_records`.

        Duplicate events after the first are ignored. If the connection breaks during the commit,
        the outcome is unknown, and :class:`JournalUnavailable` says so.
        """
        whole = list(records)
        events = [record.event for record in whole]
        stamps = [record.recorded for record in whole]
        # Check the order before anything is locked.
        arranged = arrange_imported(whole, self._partitions, lambda _: EMPTY)
        homes = [record.partition for record in arranged]
        self._session.check_open()
        if not whole:
            return
        arrivals = Arrivals([self.registration] * len(whole), homes, events, stamps)
        arrivals.add_requests(events, requests)

        def work(talk: Talk) -> None:
            self._lock_partitions(talk, set(homes))
            arrange_imported(whole, self._partitions, lambda home: self._tail(talk, home))
            self._append_within(talk, events, arrivals)

        self._session.transact(work, repeat=False)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`.

        Raises:
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        check_range(partition, after, limit, self._partitions)
        rows = self._session.run_query(
            "read", bandit=self.number, partition=partition, after=after, limit=limit
        )
        checked = (
            (
                position,
                recorded,
                check == check_of(partition, position, recorded, data),
                digest,
                data,
            )
            for position, recorded, check, digest, data in rows
        )
        return self._records(partition, after, checked)

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return records after a position as columns; see :meth:`ColumnLog.read_columns`."""
        check_range(partition, after, limit, self._partitions)
        [columns] = self._session.run_query(
            "read_columns", bandit=self.number, partition=partition, after=after, limit=limit
        )
        *integers, digests, lengths, events = (column or b"" for column in columns)
        position, stamp, check = (
            np.frombuffer(column, dtype=">i8").astype(np.int64) for column in integers
        )
        size = np.frombuffer(lengths, dtype=">i4").astype(np.int64)
        has_gaps = not np.array_equal(position, after + 1 + np.arange(len(position)))
        if len(digests) == 32 * len(position) and not has_gaps:
            page = ColumnPage(
                position,
                stamp,
                np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32),
                np.frombuffer(events + bytes(PADDING), dtype=np.uint8),
                np.cumsum(size),
            )
            expected = page.crcs(np.zeros(len(position), dtype=np.int64)) ^ position ^ stamp
            if np.array_equal(expected ^ partition << 40, check):
                return page
        return ColumnPage.of_records(self.read(partition, after, limit))  # raises the exact error

    def _find(
        self, talk: Talk | PostgresSession, keys: Collection[bytes], others: int | None = None
    ) -> list[Record]:
        ordered = sorted(keys)
        marks = [key[:INDEXED] for key in ordered]
        decisions = [mark + DECISION for mark in marks]
        rows = talk.run_query(
            "records_of",
            bandit=self.number,
            partitions=pack_integers([partition_of(key, self._partitions) for key in ordered], 2),
            least=pack_bytes(decisions),
            decided=pack_bytes([beyond(mark) for mark in decisions]),
            beyond=pack_bytes([beyond(mark) for mark in marks]),
            limit=others,
        )
        records = map(self._record_of, sorted(rows))
        return [record for record in records if erased_key_in(record.event) in keys]

    def _write(self, act: Callable[[Talk], T], size: int = 0) -> T:
        return self._session.transact(act)

    def _read(self, act: Callable[[PostgresSession], T]) -> T:
        return act(self._session)

    def _lock_partitions(self, talk: Talk, partitions: Collection[int]) -> None:
        homes = sorted(partitions)
        talk.run_registered("lock", len(homes), bandit=self.number, partitions=homes)

    def _replace(self, talk: Talk, record: Record, event: Overwritten) -> None:
        # The server's files contain the old bytes until the tables are rewritten; see the how-to.
        data = encode(event)
        place = {**self._parameters(record.partition), "position": record.position}
        check = check_of(record.partition, record.position, record.recorded, data)
        talk.run_query("overwrite", **place, check=check, event=data)
        talk.run_query("drop_request", **place)

    def settlements(self, partition: int) -> list[Record]:
        """Return the most recent settlements of a partition, in order."""
        check_partition(partition, self._partitions)
        values = {**self._parameters(partition), "least": SETTLED, "beyond": beyond(SETTLED)}
        values["limit"] = LAST_SETTLEMENTS
        rows = self._session.run_query("settled_lately", **values, recent=_RECENT)
        # If there are no settlements among the recent records, there are few in total.
        rows = rows or self._session.run_query("settled", **values)
        return [self._record_of(row) for row in sorted(rows)]

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored requests of decisions, by position."""
        check_partition(partition, self._partitions)
        values = {**self._parameters(partition), "positions": pack_integers(positions, 8)}
        return dict(self._session.run_query("requests", **values))

    def _drop(self, talk: Talk, partition: int, start: int, limit: int) -> int:
        values = {**self._parameters(partition), "start": start, "limit": limit}
        ((count,),) = talk.run_query("drop", **values)
        talk.run_query("drop_outcomes", **values)
        return int(count)

    def put_outcomes(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Store outcomes in the table ``outcome``; see :meth:`OutcomeLog.put_outcomes`."""
        self._session.run_query(
            "put_outcomes",
            **self._parameters(partition),
            ids=pack_texts([outcome.id for outcome in outcomes]),
            versions=pack_integers([outcome.version for outcome in outcomes], 8),
            messages=pack_texts(
                [_NUL.sub(rb"\1\\ufffd", outcome.data).decode() for outcome in outcomes]
            ),
        )

    def now(self) -> int:
        """Return the time of the server's clock, in microseconds since 1970."""
        self._session.check_open()
        if self._clock is not None:
            return self._clock()
        return int(self._session.run_query("clock")[0][0])

    def _record_of(self, row: tuple[Any, ...]) -> Record:
        """Return the record of a row that was found by its mark."""
        partition, position, recorded, check, digest, data = row
        intact = check == check_of(partition, position, recorded, data)
        checked = [(position, recorded, intact, digest, data)]
        return self._records(partition, position - 1, checked)[0]

    def _tail(self, talk: Talk | PostgresSession, partition: int) -> Tail:
        rows = talk.run_query("tail", **self._parameters(partition))
        return Tail(*rows[0]) if rows else EMPTY
