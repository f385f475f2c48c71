"""A journal in PostgreSQL: durable, and shared by processes on any number of machines."""

from __future__ import annotations

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
from belated.journals.bandits import Registration, check_wanted, find_bandit, register_as
from belated.journals.indexed import StoredJournal, T
from belated.journals.log import EMPTY, Appended, AppendedAfter, Requests, Tail
from belated.journals.pages import ColumnPage
from belated.journals.postgres import open_session
from belated.journals.postgres.cells import PostgresCells, put_within
from belated.journals.postgres.queries import (
    Packed,
    migrations,
    pack_bytes,
    pack_integers,
    unpack_bigints,
)
from belated.journals.shelf import ACTS, act_cells, has_acts
from belated.model.kernels.pages import PADDING

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


#: What the marks of events without an id begin with. No key does: its seventh byte is not 0.
SETTLED, _OTHER = bytes(8), bytes(7) + b"\1"
#: Bytes of an erased key in a mark: 8 of the id's key, 8 of a hash that nobody can make collide.
INDEXED = 16
#: What follows them: decisions are found whatever else there is.
DECISION, _OF_DECISION = b"\1", b"\2"


class Arrivals:
    """What goes to the server: every event once, with what tells it from others.

    Attributes:
        values: of the query ``append``, in their order there.
        duplicates: how many were not written, as far as is known: they are there, or stand twice.
    """

    def __init__(
        self,
        bandits: Sequence[Registration],
        partitions: Sequence[int],
        events: Sequence[Event | Opaque],
        stamps: Sequence[int] | None = None,
    ) -> None:
        data = [encode(event) for event in events]
        digests = [digest_of(one) for one in data]
        marks = [mark_of(*one) for one in zip(events, digests, strict=True)]
        numbers = [bandit.number for bandit in bandits]
        # For each event given, its place among those that are sent; None where all of them are.
        self._places: list[int] | None = None
        self.duplicates = 0
        if len(set(marks)) < len(marks):
            first: dict[tuple[int, int, bytes], int] = {}
            whose = list(zip(numbers, partitions, marks, strict=True))
            kept = [n for n, one in enumerate(whose) if first.setdefault(one, n) == n]
            order = {n: place for place, n in enumerate(kept)}
            self._places = [order[first[one]] for one in whose]
            self.duplicates = len(whose) - len(kept)
            numbers, partitions = [numbers[n] for n in kept], [partitions[n] for n in kept]
            marks, data = [marks[n] for n in kept], [data[n] for n in kept]
            digests = [digests[n] for n in kept]
            stamps = None if stamps is None else [stamps[n] for n in kept]
        self.values: dict[str, Packed | None] = {
            "bandits": pack_integers(numbers, 4),
            "partitions": pack_integers(partitions, 2),
            "marks": pack_bytes(marks),
            "crcs": pack_integers([zlib.crc32(one) for one in data], 8),
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
        """Nothing is to be written where one of these ids has a decision.

        Args:
            ids: of each, its bandit and the id.
        """
        keys = [erased_key_of(id) for _, id in ids]
        given = list(zip(keys, (bandit for bandit, _ in ids), strict=True))
        homes = [partition_of(key, bandit.partitions) for key, bandit in given]
        self.values["owners"] = pack_integers([bandit.number for bandit, _ in ids], 4)
        self.values["homes"] = pack_integers(homes, 2)
        self.values["decided"] = pack_bytes([key[:INDEXED] + DECISION for key in keys])

    def keep(self, events: Sequence[Event | Opaque], requests: Requests | None) -> None:
        """Write what decisions among the events given were chosen from, beside their records."""
        check_requests(events, requests)
        if not requests:
            return
        places = range(len(events)) if self._places is None else self._places
        found: dict[int, bytes] = {}
        for n, request in requests.items():
            found.setdefault(places[n], request)
        self.values["kept"] = pack_integers([place + 1 for place in found], 8)
        self.values["requests"] = pack_bytes(list(found.values()))

    def follow(self, last: Record) -> None:
        """The stamp is to be told if this is the last record of the partition."""
        self.values["behind"] = Packed(last.digest + last.recorded.to_bytes(8, signed=True))

    def records_after(
        self, last: Record, events: Sequence[Event], answer: list[int]
    ) -> list[Record]:
        """The records of the events given, if the answer says that they follow this one."""
        *positions, recorded = answer
        follows = len(positions) == len(self._digests) and positions[0] == last.position + 1
        if not follows or self._places is not None:  # one that stands twice has one record
            return []
        return [
            Record(last.partition, position, recorded, event, digest)
            for position, event, digest in zip(positions, events, self._digests, strict=True)
        ]

    def known(self, answer: list[int]) -> list[bool]:
        """Of each event given, whether it was not written: it was there, or stands here twice."""
        places = self._places or range(len(self._digests))
        seen: set[int] = set()
        found = []
        for place in places:
            found.append(answer[place] < 0 or place in seen)
            seen.add(place)
        return found

    def of_all(self, answer: list[int]) -> list[int]:
        """The position of each event given, from the answer to the events sent."""
        positions = answer[: len(self._digests)]
        if positions and min(positions) < 0:  # of events that were there
            self.duplicates += sum(one < 0 for one in positions)
            positions = [abs(one) for one in positions]
        if self._places is None:
            return positions
        return [positions[place] for place in self._places]


def check_of(partition: int, position: int, recorded: int, data: bytes) -> int:
    """As the function in the database makes it: a changed bit in any of the four shows."""
    return zlib.crc32(data) ^ position ^ recorded ^ partition << 40


def mark_of(event: Event | Opaque, digest: bytes) -> bytes:
    """What recognises an event that comes again; those of one time lie together (schema.sql)."""
    key = erased_key_in(event)
    if key is not None:
        kind = DECISION if isinstance(event, Decision) else _OF_DECISION
        return key[:INDEXED] + kind + digest[:8]
    return (SETTLED if isinstance(event, Settled) else _OTHER) + digest[:8]


def beyond(mark: bytes) -> bytes:
    """Greater than every mark that begins like this."""
    return mark + b"\xff" * 9


#: Beyond the largest number of a bandit.
_NUMBERS = 1 << 31
#: How many of the last records are looked through for some that settle.
_RECENT = 2_000


class PostgresJournal(StoredJournal):
    """Keeps events in a database of PostgreSQL, each append on stable storage when it returns.

    Any number of threads, processes and machines may append at the same time; within a partition
    they take turns, and positions are in the order of commits. Stamps are those of the server's
    clock. Positions have no gaps, so a record that is missing is noticed, and so is one that was
    changed. An event that is appended again keeps its first place: the same bytes are kept once.

    The tables must be there: see :meth:`create_tables`. The server must be a primary of version 14
    or later that syncs what it commits; one that does not is refused. Needs the extra ``postgres``.
    The how-to on PostgreSQL shows it in use.

    Args:
        dsn: where the database is: ``postgresql://user@host/name``, or any other way libpq knows.
        bandit: the name of the bandit within the database.
        partitions: a power of two, fixed when the bandit is first opened; None for as many as there
            are, and 1 in a new one.
        wait: how many seconds to wait for the server and for others before
            :class:`JournalUnavailable`.
    """

    #: Events that were sent here again: the journal had their very bytes, and wrote nothing.
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
        wanted = None if partitions is None else check_partitions(partitions)
        #: Stands for the server's clock; for tests.
        self._clock: Clock | None = None  # type: ignore[assignment]
        self._session = open_session(dsn, wait)
        self._place = self._session.place
        self._open_shelf(PostgresCells(self._session))
        try:
            self._register(Registration(bandit, 0, wanted or 1), wanted)
        except BaseException:
            self._session.close()
            raise
        self._partitions = self._registration.partitions

    @staticmethod
    def create_tables(dsn: str, *, wait: float = 10.0) -> None:
        """Make the tables in a database, or bring those of an older release up to date.

        Call it once for each database; again does nothing. Where programs may not make tables,
        ``belated schema`` prints the same for psql.

        Args:
            dsn: where the database is.
            wait: how many seconds to wait for the server.
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

    # The number is valid only in the database it was read from. Whenever that may be another one
    # (after a reconnect, a restore or a failover), the name is resolved again, and registered again
    # if the database has lost it. Numbers are drawn at random, so that the number of a lost bandit
    # is practically never given to another one: with a sequence, a database that was restored to an
    # earlier state, or a standby that lacks the last commits, would do so, and processes that
    # remember the number would write into the wrong journal.

    @property
    def number(self) -> int:
        """The number of the bandit in the database."""
        return self.registration.number

    @property
    def registration(self) -> Registration:
        """The bandit, as the database has it."""
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

    def _register(self, new: Registration, wanted: int | None) -> None:
        """Find the bandit in the database; make it if it is new, or if the database has lost it."""
        generation = self._session.generation
        _, found = find_bandit(self.cells, self._bandit)
        while found is None:
            found = register_as(self.cells, self._draft(new))
        check_wanted(self._bandit, self._place, wanted, found.partitions)
        self._registration = found
        if self._registration.topic is not None:
            where = f"in the topic {self._registration.topic!r} of Kafka"
            message = f"the records of bandit {self._bandit!r} of {self._place} are {where}"
            cure = "open it by its address that begins with `kafka:`, or choose another name"
            raise JournalMismatch(f"{message}: {cure}")
        self._generation = generation

    def _draft(self, new: Registration) -> Registration:
        """Make the rows that appends lock, before the cell: so it is never without them."""
        made = msgspec.structs.replace(new, number=1 + secrets.randbelow(_NUMBERS - 1))
        values = {"bandit": made.number, "partitions": made.partitions}
        self._session.run_query("make_partitions", **values)
        return made

    def _whose(self, partition: int) -> dict[str, int]:
        return {"bandit": self.number, "partition": partition}

    # --- the log ---------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Keep events, all or none; see :meth:`Log.append`.

        An event whose very bytes are in its partition is not written again: it has the position of
        the first.
        """
        arrivals = self._arrivals(events, recorded, requests)
        self._session.check_open()
        if not events:
            return []
        if has_acts(events):
            return self._session.transact(lambda talk: self._append_within(talk, events, arrivals))
        found = self._session.call("append", list(arrivals.values.values()))
        assert found is not None
        return self._taken(arrivals, unpack_bigints(found))

    def _append_within(
        self, talk: Talk, events: Sequence[Event | Opaque], arrivals: Arrivals
    ) -> list[int]:
        """Append within a transaction, and write the acts of operators to their cells."""
        ((found,),) = talk.run_query("append", **arrivals.values)
        is_known = arrivals.known(found)
        positions = self._taken(arrivals, found)
        puts: dict[str, bytes] = {}
        for event, position, known in zip(events, positions, is_known, strict=True):
            if subject_of(event) in ACTS and not known:
                home = route(event, self._partitions)  # type: ignore[arg-type]
                place = {**self._whose(home), "after": position - 1, "limit": 1}
                ((_, *row),) = talk.run_query("read", **place)
                act = self._found((home, position, *row))
                puts |= act_cells(self._bandit, act)
        if puts:
            put_within(talk, puts)
        return positions

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Keep events, and give their records; see :meth:`FollowedLog.append_after`."""
        arrivals = self._arrivals(events, requests=requests)
        arrivals.follow(last)
        self._session.check_open()
        if not events:
            return AppendedAfter([], [])
        if has_acts(events):
            return AppendedAfter(self.append(events, requests=requests), [])
        answer = self._session.call("append", list(arrivals.values.values()))
        assert answer is not None
        found = unpack_bigints(answer)
        records = arrivals.records_after(last, events, found)
        return AppendedAfter(self._taken(arrivals, found), records)

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Keep events, and no second decision; see :meth:`UniqueLog.append_unique`."""
        if not ids:
            return Appended(self.append(events, requests=requests), {})
        self._session.check_open()
        if not has_acts(events):
            first = FirstDecisions(events, ids)
            arrivals = self._arrivals(first.events, requests=first.requests(requests))
            arrivals.refuse_second([(self.registration, id) for id in ids])
            found = self._session.call("append", list(arrivals.values.values()))
            if found is not None:
                return first.appended(self._taken(arrivals, unpack_bigints(found)))
        return self._session.transact(lambda talk: self._append_rest(talk, events, ids, requests))

    def _append_rest(
        self,
        talk: Talk,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None,
    ) -> Appended:
        """Some id may have a decision: find out, and append the others."""
        self._lock_partitions(talk, {route(event, self._partitions) for event in events})
        known = self._of(talk, {erased_key_of(id) for id in ids}, 0)
        first = FirstDecisions(events, ids, known)
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
        arrivals.keep(events, requests)
        return arrivals

    def _taken(self, arrivals: Arrivals, found: list[int]) -> list[int]:
        positions = arrivals.of_all(found)
        self.duplicates += arrivals.duplicates
        return positions

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Take over records with their stamps; see :meth:`Log.import_records`.

        Of an event that is there twice the first is taken. If the connection breaks at the end,
        :class:`JournalUnavailable` says that it is not known whether the call was taken.
        """
        taken = list(records)
        # Before anything is locked: the partition of each, and whether they are in order at all.
        homes = [
            one.partition for one in arrange_imported(taken, self._partitions, lambda _: EMPTY)
        ]
        self._session.check_open()
        if not taken:
            return
        arrivals = Arrivals(
            [self.registration] * len(taken),
            homes,
            [one.event for one in taken],
            [one.recorded for one in taken],
        )
        arrivals.keep([one.event for one in taken], requests)

        def work(talk: Talk) -> None:
            self._lock_partitions(talk, set(homes))
            arrange_imported(taken, self._partitions, lambda home: self._tail(talk, home))
            self._append_within(talk, [one.event for one in taken], arrivals)

        self._session.transact(work, repeat=False)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Log.read`.

        Raises:
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        check_range(partition, after, limit, self._partitions)
        rows = self._session.run_query(
            "read", bandit=self.number, partition=partition, after=after, limit=limit
        )
        found = (
            (
                position,
                recorded,
                check == check_of(partition, position, recorded, data),
                digest,
                data,
            )
            for position, recorded, check, digest, data in rows
        )
        return self._records(partition, after, found)

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return the records beyond a position as columns; see :meth:`ColumnLog.read_columns`."""
        check_range(partition, after, limit, self._partitions)
        [found] = self._session.run_query(
            "read_columns", bandit=self.number, partition=partition, after=after, limit=limit
        )
        positions, stamps, checks, digests, lengths, events = (one or b"" for one in found)
        place, stamp, check = (
            np.frombuffer(one, dtype=">i8").astype(np.int64) for one in (positions, stamps, checks)
        )
        size = np.frombuffer(lengths, dtype=">i4").astype(np.int64)
        if len(digests) == 32 * len(place) and np.array_equal(
            place, after + 1 + np.arange(len(place))
        ):
            page = ColumnPage(
                place,
                stamp,
                np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32),
                np.frombuffer(events + bytes(PADDING), dtype=np.uint8),
                np.cumsum(size),
            )
            whole = page.crcs(np.zeros(len(place), dtype=np.int64)) ^ place ^ stamp
            if np.array_equal(whole ^ partition << 40, check):
                return page
        return ColumnPage.of_records(self.read(partition, after, limit))  # which says what is wrong

    def _of(
        self, talk: Talk | PostgresSession, keys: Collection[bytes], others: int | None = None
    ) -> list[Record]:
        """Return the decisions of ids, and so many other records of each; all of them if None."""
        given = sorted(keys)
        marks = [key[:INDEXED] for key in given]
        least = [mark + DECISION for mark in marks]
        rows = talk.run_query(
            "records_of",
            bandit=self.number,
            partitions=pack_integers([partition_of(key, self._partitions) for key in given], 2),
            least=pack_bytes(least),
            decided=pack_bytes([beyond(mark) for mark in least]),
            beyond=pack_bytes([beyond(mark) for mark in marks]),
            limit=others,
        )
        records = map(self._found, sorted(rows))
        return [record for record in records if erased_key_in(record.event) in keys]

    def _write(self, act: Callable[[Talk], T], size: int = 0) -> T:
        return self._session.transact(act)

    def _read(self, act: Callable[[PostgresSession], T]) -> T:
        return act(self._session)

    def _lock_partitions(self, talk: Talk, partitions: Collection[int]) -> None:
        homes = sorted(partitions)
        talk.run_registered("lock", len(homes), bandit=self.number, partitions=homes)

    def _replace(self, talk: Talk, record: Record, event: Overwritten) -> None:
        # The server's files have the old bytes until the tables are rewritten: see the how-to.
        data = encode(event)
        place = {**self._whose(record.partition), "position": record.position}
        check = check_of(record.partition, record.position, record.recorded, data)
        talk.run_query("overwrite", **place, check=check, event=data)
        talk.run_query("drop_request", **place)

    def settlements(self, partition: int) -> list[Record]:
        """Return the last records that settled a partition, in order."""
        check_partition(partition, self._partitions)
        given = {**self._whose(partition), "least": SETTLED, "beyond": beyond(SETTLED)}
        given["limit"] = LAST_SETTLEMENTS
        rows = self._session.run_query("settled_lately", **given, recent=_RECENT)
        # Where there is none among the last records, there are few in all of them.
        rows = rows or self._session.run_query("settled", **given)
        return [self._found(row) for row in sorted(rows)]

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """What decisions were chosen from, by position, where it was kept."""
        check_partition(partition, self._partitions)
        whose = {**self._whose(partition), "positions": pack_integers(positions, 8)}
        return dict(self._session.run_query("requests", **whose))

    def _drop(self, talk: Talk, partition: int, start: int, limit: int) -> int:
        whose = {**self._whose(partition), "start": start, "limit": limit}
        ((count,),) = talk.run_query("drop", **whose)
        return int(count)

    def now(self) -> int:
        """The time of the server's clock, which stamps records, in microseconds since 1970."""
        self._session.check_open()
        if self._clock is not None:
            return self._clock()
        return int(self._session.run_query("clock")[0][0])

    def _found(self, row: tuple[Any, ...]) -> Record:
        """A record that was not looked up by its position."""
        partition, position, recorded, check, digest, data = row
        intact = check == check_of(partition, position, recorded, data)
        found = [(position, recorded, intact, digest, data)]
        return self._records(partition, position - 1, found)[0]

    def _tail(self, talk: Talk | PostgresSession, partition: int) -> Tail:
        rows = talk.run_query("tail", **self._whose(partition))
        return Tail(*rows[0]) if rows else EMPTY
