"""A journal in PostgreSQL: durable, and shared by processes on any number of machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from belated.events import Decision, Event, ModeChanged, Record, Settled
from belated.exceptions import OwnerFenced
from belated.ids import check_id, check_partitions, key_of, partition_of
from belated.journals.arrivals import (
    EMPTY,
    Clock,
    Tail,
    arrange_imported,
    check_partition,
    check_range,
    route,
    stamps_for,
)
from belated.journals.lookups import LAST_SETTLEMENTS, key_in, standing
from belated.journals.postgres import open_session
from belated.journals.postgres.arrays import pack_bytes, pack_integers, unpack_bigints
from belated.journals.postgres.arrivals import (
    NO_ID,
    SWITCHES,
    Arrivals,
    beyond,
    check_of,
)
from belated.journals.postgres.queries import migrations
from belated.journals.snapshots import (
    Snapshot,
    check_kept,
    check_position,
    checksums_of,
    damage,
    seal,
    warn_discarded,
)
from belated.journals.stored import StoredJournal, as_stored, check_wanted

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


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

    def __init__(
        self, dsn: str, *, bandit: str, partitions: int | None = None, wait: float = 10.0
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        wanted = None if partitions is None else check_partitions(partitions)
        #: Stands for the server's clock; for tests.
        self._clock: Clock | None = None
        # By partition, the checksums of the pieces of the snapshot last saved or loaded here.
        self._known: dict[int, dict[str, bytes]] = {}
        # What is owned, by process too: what a fork inherits, it does not own.
        self._epochs: dict[tuple[int, int], int] = {}
        self._session = open_session(dsn, wait)
        self._place = self._session.place
        try:
            self._number, self._partitions = self._register(wanted)
        except BaseException:
            self._session.close()
            raise

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

    def append(
        self, events: Sequence[Event], *, recorded: Sequence[int] | None = None
    ) -> list[int]:
        """Keep events, all or none; see :meth:`Log.append`.

        An event whose very bytes are in its partition is not written again: it has the position of
        the first.
        """
        partitions = [route(event, self._partitions) for event in events]
        stamps = None
        if recorded is not None or self._clock is not None:
            stamps = stamps_for(events, recorded, self._clock or (lambda: 0))
        self._session.check_open()
        if not events:
            return []
        arrivals = Arrivals(self._number, partitions, events, stamps)
        found = self._session.call("append", list(arrivals.values.values()))
        assert found is not None
        return arrivals.of_all(unpack_bigints(found))

    def import_records(self, records: Iterable[Record]) -> None:
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
            self._number, homes, [one.event for one in taken], [one.recorded for one in taken]
        )

        def work(talk: Talk) -> None:
            talk.run_query("lock", bandit=self._number, partitions=sorted(set(homes)))
            arrange_imported(taken, self._partitions, lambda p: self._tail(p, talk))
            talk.run_query("append", **arrivals.values)

        self._session.transact(work, repeat=False)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Log.read`.

        Raises:
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        check_range(partition, after, limit, self._partitions)
        rows = self._session.run_query(
            "read", bandit=self._number, partition=partition, after=after, limit=limit
        )
        found = (
            (position, recorded, check == check_of(partition, position, recorded, data), data)
            for position, recorded, check, data in rows
        )
        return self._records(partition, after, found)

    def records_of(self, ids: Sequence[str]) -> list[Record]:
        """All records of these ids, in the order of their positions: found by an index.

        Raises:
            CorruptEvent: one of them was changed after it was written.
        """
        keys = {key_of(id) for id in ids}
        marks = sorted({key[:8] for key in keys})
        rows = self._session.run_query(
            "records_of",
            bandit=self._number,
            partitions=pack_integers([partition_of(mark, self._partitions) for mark in marks], 2),
            least=pack_bytes(marks),
            beyond=pack_bytes([beyond(mark) for mark in marks]),
        )
        return [record for record in map(self._found, sorted(rows)) if key_in(record.event) in keys]

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """The decision that stands under each of these ids, where there is one."""
        return standing(self.records_of(ids))

    def settlements(self, partition: int) -> list[Record]:
        """The last records that settled a partition, in order; none if there never was any.

        Only the last ones: what settles is written again and again, and the later ones reach
        further.
        """
        check_partition(partition, self._partitions)
        whose = {
            **self._whose(partition),
            "least": NO_ID, "beyond": beyond(NO_ID), "limit": LAST_SETTLEMENTS,
        }  # fmt: skip
        rows = self._session.run_query("settled_lately", **whose, recent=_RECENT)
        # Where there is none among the last records, there are few in all of them.
        rows = rows or self._session.run_query("last_marked", **whose)
        found = map(self._found, sorted(rows))
        return [record for record in found if isinstance(record.event, Settled)]

    def mode(self) -> ModeChanged | None:
        """The last event that changed the mode, None if there is none."""
        whose = {**self._whose(0), "least": SWITCHES, "beyond": beyond(SWITCHES), "limit": 1}
        rows = self._session.run_query("last_marked", **whose)
        event = self._found(rows[0]).event if rows else None
        return event if isinstance(event, ModeChanged) else None

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""
        return self._tail(partition, self._session).position

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, 0 if there is none."""
        return self._tail(partition, self._session).stamp

    def now(self) -> int:
        """The time of the server's clock, which stamps records, in microseconds since 1970."""
        self._session.check_open()
        if self._clock is not None:
            return self._clock()
        return int(self._session.run_query("clock")[0][0])

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; give back what is."""

        def work(talk: Talk) -> str:
            talk.run_query("identify", bandit=self._number, identity=json.dumps(identity))
            ((stored,),) = talk.run_query("identity", bandit=self._number)
            return str(stored)

        return dict(json.loads(self._session.transact(work)))

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""
        self._session.run_query("reidentify", bandit=self._number, identity=json.dumps(identity))

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`Shelf.acquire`."""
        check_partition(partition, self._partitions)
        ((epoch,),) = self._session.run_query("acquire", **self._whose(partition))
        self._epochs[os.getpid(), partition] = epoch
        return int(epoch)

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Shelf.save`."""
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        mine = self._epochs.get((os.getpid(), partition))
        whose = self._whose(partition)

        def work(talk: Talk) -> None:
            ((epoch, before),) = talk.run_query("lock_snapshot", **whose)
            if mine not in (None, epoch):
                raise OwnerFenced(partition)
            check_position(snapshot, self._tail(partition, talk).position)
            if before is not None and snapshot.position < before:
                return
            stored = talk.run_query("checksums", **whose)
            check_kept(snapshot, checksums, dict(stored))
            talk.run_query("drop_pieces", **whose, kept=list(snapshot.kept))
            for name, data in snapshot.pieces.items():
                talk.run_query("add_piece", **whose, name=name, checksum=checksums[name], data=data)
            talk.run_query(
                "save", **whose, position=snapshot.position, fingerprint=snapshot.fingerprint,
                seal=seal(snapshot, checksums),
            )  # fmt: skip

        self._session.transact(work)
        # Also where it was ignored: what may be kept next time is compared with what is stored.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, None if there is none; see :meth:`Shelf.load`."""
        check_partition(partition, self._partitions)
        whose = self._whose(partition)
        self._known.pop(partition, None)
        rows = self._session.run_query(
            "load", **whose
        )  # one statement: no other can save in between
        if not rows:
            return None
        snapshot, checksums, sealed = as_stored(partition, rows)
        reason = damage(snapshot, checksums, sealed, end=rows[0][-1])
        if reason is None:
            self._known[partition] = checksums
            return snapshot

        def work(talk: Talk) -> None:
            talk.run_query("lock_snapshot", **whose)
            if talk.run_query("discard", **whose, seal=sealed):  # unless another has saved since
                talk.run_query("drop_pieces", **whose, kept=[])

        self._session.transact(work)
        warn_discarded(partition, reason)
        return None

    def close(self) -> None:
        """Close the connection; any later call raises :class:`JournalClosed`."""
        self._session.close()

    def _register(self, wanted: int | None) -> tuple[int, int]:
        """The number of the bandit in the database, and that of its partitions."""
        found = self._session.run_query("find", name=self._bandit)
        if not found:
            self._session.run_query("register", name=self._bandit, partitions=wanted or 1)
            found = self._session.run_query("find", name=self._bandit)
        ((number, partitions),) = found
        check_wanted(self._bandit, self._place, wanted, partitions)
        return number, partitions

    def _found(self, row: tuple[Any, ...]) -> Record:
        """A record that was not looked up by its position."""
        partition, position, recorded, check, data = row
        intact = check == check_of(partition, position, recorded, data)
        return self._records(partition, position - 1, [(position, recorded, intact, data)])[0]

    def _whose(self, partition: int) -> dict[str, int]:
        return {"bandit": self._number, "partition": partition}

    def _tail(self, partition: int, talk: Talk | PostgresSession) -> Tail:
        check_partition(partition, self._partitions)
        rows = talk.run_query("tail", **self._whose(partition))
        return Tail(*rows[0]) if rows else EMPTY
