"""The shelf of a bandit in PostgreSQL: identity, owners and snapshots, wherever its log is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from belated.events import Trimmed
from belated.exceptions import JournalMismatch, OwnerFenced
from belated.journals.arrivals import check_partition
from belated.journals.named import NamedJournal
from belated.journals.postgres.arrivals import MARKS, beyond
from belated.journals.snapshots import (
    Snapshot,
    check_base,
    check_kept,
    check_position,
    checksums_of,
    damage,
    refuse_damaged_base,
    seal,
    tell_discarded,
)
from belated.journals.stored import as_stored, check_wanted

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


class PostgresShelf(NamedJournal):
    """What is stored beside a log; see :class:`PostgresJournal`."""

    _session: PostgresSession
    _number: int
    _place: str
    #: Of Kafka, with the records; None if they are in the database.
    _topic: str | None
    # By partition, the checksums of the pieces of the snapshot last saved or loaded here.
    _known: dict[int, dict[str, bytes]]
    # What is owned, by process too: what a fork inherits, it does not own.
    _epochs: dict[tuple[int, int], int]

    def end(self, partition: int) -> int:
        """Return the position of the last record, 0 if there is none."""
        raise NotImplementedError

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

    def _epoch(self, partition: int) -> int | None:
        """Return the epoch in which this process owns a partition; None if it never did."""
        return self._epochs.get((os.getpid(), partition))

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Shelf.save`."""
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        check_position(snapshot, self.end(partition))
        mine = self._epoch(partition)
        whose = self._whose(partition)

        def work(talk: Talk) -> None:
            ((epoch, before),) = talk.run_query("lock_snapshot", **whose)
            if mine not in (None, epoch):
                raise OwnerFenced(partition)
            if before is not None and snapshot.position < before:
                return
            stored = talk.run_query("checksums", **whose)
            check_kept(snapshot, checksums, dict(stored))
            talk.run_query("drop_pieces", **whose, kept=list(snapshot.kept))
            for name, data in snapshot.pieces.items():
                talk.run_query(
                    "add_piece", **whose, name=name, checksum=checksums[name],
                    data=self._piece_row(data),
                )  # fmt: skip
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
        rows = self._snapshot_rows(partition)
        if not rows:
            return None
        snapshot, checksums, sealed = as_stored(partition, rows)
        reason = damage(snapshot, checksums, sealed)
        if reason is None and snapshot.position <= self.end(partition):
            self._known[partition] = checksums
            return snapshot

        def work(talk: Talk) -> None:
            talk.run_query("lock_snapshot", **whose)
            if talk.run_query("discard", **whose, seal=sealed):  # unless another has saved since
                talk.run_query("drop_pieces", **whose, kept=[])

        self._session.transact(work)
        tell_discarded(snapshot, reason)
        return None

    def _piece_row(self, data: bytes) -> bytes:
        """Return what is stored here of a piece."""
        return data

    def _snapshot_rows(self, partition: int) -> list[tuple[Any, ...]]:
        """Return a snapshot with its pieces, as :func:`as_stored` takes it."""
        # One statement: no other can save in between.
        return self._session.run_query("load", **self._whose(partition))

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`Shelf.base`."""
        check_partition(partition, self._partitions)
        rows = self._session.run_query("base", **self._whose(partition))
        if not rows:
            return None
        base, checksums, sealed = as_stored(partition, rows)
        reason = damage(base, checksums, sealed)
        refuse_damaged_base(base, reason, self.end(partition), self._place)
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
        write = self._prepare_trimmed(trimmed)
        acts = MARKS["undone"]

        def work(talk: Talk) -> None:
            talk.run_query("lock", bandit=self._number, partitions=[partition])
            ((_, saved),) = talk.run_query("lock_snapshot", **whose)
            start = talk.run_query("start", **whose)
            ((count,),) = talk.run_query("undone", **whose, least=acts, beyond=beyond(acts))
            check_base(base, undone, before=start[0][0] if start else 0, saved=saved, undone=count)
            write(talk)
            talk.run_query(
                "rebase", **place, recorded=trimmed.recorded, fingerprint=base.fingerprint,
                seal=seal(base, checksums),
            )  # fmt: skip

        self._session.transact(work)
        self._session.run_query("drop_base_pieces", **place)

    def _prepare_trimmed(self, trimmed: Trimmed) -> Callable[[Talk], None]:
        """Return what appends that record to the log, while the database holds its locks."""
        raise NotImplementedError

    def _whose(self, partition: int) -> dict[str, int]:
        return {"bandit": self._number, "partition": partition}

    def _register(self, wanted: int | None, topic: str | None) -> None:
        """Find the bandit in the database; make it if it is new, with its log in this topic.

        Args:
            wanted: Partitions; None for as many as there are, and 1 in a new one.
            topic: Of Kafka; None if the records of a new bandit are in the database.
        """
        found = self._session.run_query("find", name=self._bandit)
        if not found:
            self._session.run_query(
                "register", name=self._bandit, partitions=wanted or 1, topic=topic
            )
            found = self._session.run_query("find", name=self._bandit)
        ((self._number, self._partitions, self._topic),) = found
        if (topic is None) != (self._topic is None):
            raise JournalMismatch(_other_log(self._bandit, self._place, self._topic))
        check_wanted(self._bandit, self._place, wanted, self._partitions)


def _other_log(bandit: str, place: str, topic: str | None) -> str:
    where = "there" if topic is None else f"in the topic {topic!r} of Kafka"
    scheme = "postgresql" if topic is None else "kafka"
    return (
        f"the records of bandit {bandit!r} of {place} are {where}: open it by its address that "
        f"begins with `{scheme}:`, or choose another name"
    )
