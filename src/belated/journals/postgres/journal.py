"""A journal in PostgreSQL: durable, and shared by processes on any number of machines."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from belated.events import Trimmed
from belated.exceptions import OwnerFenced
from belated.ids import check_id, check_partitions
from belated.journals.arrivals import (
    Clock,
    check_partition,
)
from belated.journals.postgres import open_session
from belated.journals.postgres.arrivals import MARKS, beyond
from belated.journals.postgres.log import PostgresLog
from belated.journals.postgres.queries import migrations
from belated.journals.snapshots import (
    Snapshot,
    check_base,
    check_kept,
    check_position,
    checksums_of,
    damage,
    damaged_base,
    seal,
    warn_discarded,
)
from belated.journals.stored import as_stored, check_wanted

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


class PostgresJournal(PostgresLog):
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

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`Shelf.base`."""
        check_partition(partition, self._partitions)
        rows = self._session.run_query("base", **self._whose(partition))
        if not rows:
            return None
        base, checksums, sealed = as_stored(partition, rows)
        if (reason := damage(base, checksums, sealed, end=rows[0][-1])) is not None:
            raise damaged_base(partition, self._place, reason)
        return base

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so; see :meth:`Shelf.rebase`."""
        partition = base.partition
        check_partition(partition, self._partitions)
        checksums, whose = checksums_of(base, {}), self._whose(partition)
        place = {**whose, "position": base.position}
        for name, data in base.pieces.items():  # no lock is held: what takes its place is one row
            self._session.run_query(
                "add_base_piece", **place, name=name, checksum=checksums[name], data=data
            )
        arrivals = self._arrivals([trimmed])
        acts = MARKS["undone"]

        def work(talk: Talk) -> None:
            talk.run_query("lock", bandit=self._number, partitions=[partition])
            ((_, saved),) = talk.run_query("lock_snapshot", **whose)
            start = talk.run_query("start", **whose)
            ((count,),) = talk.run_query("undone", **whose, least=acts, beyond=beyond(acts))
            check_base(base, undone, before=start[0][0] if start else 0, saved=saved, undone=count)
            talk.run_query("append", **arrivals.values)
            talk.run_query(
                "rebase", **place, recorded=trimmed.recorded, fingerprint=base.fingerprint,
                seal=seal(base, checksums),
            )  # fmt: skip

        self._session.transact(work)
        self._session.run_query("drop_base_pieces", **place)

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
