"""The log of a bandit in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from belated.core.events import Decision, Event, Opaque, Record, encode
from belated.core.ids import erased_key_of, partition_of
from belated.journals.acts import ACTS, act_cell, has_acts, packed
from belated.journals.arrivals import (
    Clock,
    arrange_imported,
    check_partition,
    check_range,
    route,
    stamps_for,
)
from belated.journals.columns import ColumnPage
from belated.journals.log import EMPTY, Appended, AppendedAfter, Requests, Tail
from belated.journals.lookups import (
    LAST_SETTLEMENTS,
    append_first,
    erased_key_in,
    index_key,
    of_kept,
    standing,
    subject_of,
    to_overwrite,
)
from belated.journals.postgres.arrays import pack_bytes, pack_integers, unpack_bigints
from belated.journals.postgres.arrivals import (
    DECISION,
    SETTLED,
    Arrivals,
    beyond,
    check_of,
)
from belated.journals.postgres.cells import transact
from belated.journals.postgres.registration import RegisteredBandit
from belated.journals.stored import StoredJournal
from belated.model.kernels.pages import PADDING

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


#: How many of the last records are looked through for some that settle.
_RECENT = 2_000


class _Contested(Exception):
    """One of the ids has a decision, or shares half its key with one that has."""


class PostgresLog(StoredJournal, RegisteredBandit):
    """What is appended, and read back by position or by id; see :class:`PostgresJournal`."""

    _clock: Clock | None
    #: Events that were sent here again: the journal had their very bytes, and wrote nothing.
    duplicates = 0

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
        arrivals = self._arrivals(events, recorded)
        arrivals.keep(events, requests)
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
        puts = {}
        for event, position, known in zip(events, positions, is_known, strict=True):
            if subject_of(event) in ACTS and not known:
                home = route(event, self._partitions)  # type: ignore[arg-type]
                place = {**self._whose(home), "after": position - 1, "limit": 1}
                ((_, *row),) = talk.run_query("read", **place)
                act = self._found((home, position, *row))
                puts[act_cell(self._bandit, act)] = packed(act)
        if puts:
            transact(talk, {}, puts)
        return positions

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Keep events, and give their records; see :meth:`FollowedLog.append_after`."""
        arrivals = self._arrivals(events)
        arrivals.keep(events, requests)
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
        if has_acts(events):
            return self._session.transact(
                lambda talk: self._append_rest(talk, events, ids, requests)
            )

        def append(kept: list[int]) -> list[int]:
            arrivals = self._arrivals_of(events, kept, requests)
            arrivals.refuse_second([(self.registration, id) for id in ids])
            found = self._session.call("append", list(arrivals.values.values()))
            if found is None:
                raise _Contested
            return self._taken(arrivals, unpack_bigints(found))

        self._session.check_open()
        try:
            return append_first(events, ids, [], append)
        except _Contested:
            return self._session.transact(
                lambda talk: self._append_rest(talk, events, ids, requests)
            )

    def _append_rest(
        self,
        talk: Talk,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None,
    ) -> Appended:
        """Some id may have a decision: find out, and append the others."""
        homes = sorted({route(event, self._partitions) for event in events})
        talk.run_registered("lock", len(homes), bandit=self.number, partitions=homes)

        def append(kept: list[int]) -> list[int]:
            if not kept:
                return []
            arrivals = self._arrivals_of(events, kept, requests)
            return self._append_within(talk, [events[n] for n in kept], arrivals)

        known = self._of(talk, {erased_key_of(id) for id in ids}, 0)
        return append_first(events, ids, known, append)

    def _arrivals_of(
        self, events: Sequence[Event], kept: Sequence[int], requests: Requests | None
    ) -> Arrivals:
        some = [events[n] for n in kept]
        arrivals = self._arrivals(some)
        arrivals.keep(some, of_kept(requests, kept))
        return arrivals

    def _arrivals(self, events: Sequence[Event], recorded: Sequence[int] | None = None) -> Arrivals:
        partitions = [route(event, self._partitions) for event in events]
        stamps = None
        if recorded is not None or self._clock is not None:
            stamps = stamps_for(events, recorded, self._clock or (lambda: 0))
        return Arrivals([self.registration] * len(events), partitions, events, stamps)

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
        whose = self.number
        arrivals = Arrivals(
            [self.registration] * len(taken),
            homes,
            [one.event for one in taken],
            [one.recorded for one in taken],
        )
        arrivals.keep([one.event for one in taken], requests)

        def work(talk: Talk) -> None:
            locked = sorted(set(homes))
            talk.run_registered("lock", len(locked), bandit=whose, partitions=locked)
            arrange_imported(taken, self._partitions, lambda p: self._tail(p, talk))
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

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Return all records of these ids; see :meth:`UniqueLog.records_of`.

        Raises:
            CorruptEvent: one of them was changed after it was written.
        """
        return self._of(self._session, {erased_key_of(id) for id in ids}, limit)

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision that stands under each of these ids, where there is one."""
        return standing(self._of(self._session, {erased_key_of(id) for id in ids}, 0))

    def _of(
        self, talk: Talk | PostgresSession, keys: Collection[bytes], others: int | None = None
    ) -> list[Record]:
        """Return the decisions of ids, and so many other records of each; all of them if None."""
        given = sorted(keys)
        marks = [index_key(key, self.registration.secret) for key in given]
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

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions; see :meth:`UniqueLog.overwrite`.

        The server keeps the old bytes in its files until the tables are rewritten: see the how-to.
        """
        self._check_erased(keys)
        homes = sorted({partition_of(key, self._partitions) for key in keys})

        def work(talk: Talk) -> int:
            talk.run_registered("lock", len(homes), bandit=self.number, partitions=homes)
            found = to_overwrite(self._of(talk, set(keys)))
            for record, event in found:
                data = encode(event)
                place = {**self._whose(record.partition), "position": record.position}
                check = check_of(record.partition, record.position, record.recorded, data)
                talk.run_query("overwrite", **place, check=check, event=data)
                talk.run_query("drop_request", **place)
            return len(found)

        return self._session.transact(work)

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

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""
        return self._tail(partition, self._session).position

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, 0 if there is none."""
        return self._tail(partition, self._session).stamp

    def drop(self, partition: int, limit: int) -> int:
        """Drop some of the records up to the start; see :meth:`Log.drop`."""
        start = self.start(partition).position
        whose = {**self._whose(partition), "start": start, "limit": limit}
        ((count,),) = self._session.run_query("drop", **whose)
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

    def _tail(self, partition: int, talk: Talk | PostgresSession) -> Tail:
        check_partition(partition, self._partitions)
        rows = talk.run_query("tail", **self._whose(partition))
        return Tail(*rows[0]) if rows else EMPTY
