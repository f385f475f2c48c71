"""The shelf of a bandit in PostgreSQL: identity, owners and snapshots, wherever its log is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from belated.core.events import Trimmed
from belated.exceptions import OwnerFenced
from belated.journals.arrivals import check_partition
from belated.journals.postgres.arrivals import MARKS, beyond
from belated.journals.postgres.registration import RegisteredBandit
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
from belated.journals.stored import as_stored

if TYPE_CHECKING:
    from belated.journals.postgres.session import Talk


class PostgresShelf(RegisteredBandit):
    """What is stored beside a log; see :class:`PostgresJournal`."""

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
            talk.run_query("identify", bandit=self.number, identity=json.dumps(identity))
            ((stored,),) = talk.run_registered("identity", bandit=self.number)
            return str(stored)

        self._identity = self._session.transact(work)
        return dict(json.loads(self._identity))

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""
        self._identity = json.dumps(identity)
        self._session.run_query("reidentify", bandit=self.number, identity=self._identity)

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`Shelf.acquire`."""
        check_partition(partition, self._partitions)
        ((epoch,),) = self._session.run_registered("acquire", **self._whose(partition))
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
            ((epoch, before),) = talk.run_registered("lock_snapshot", **whose)
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
            talk.run_registered("lock", bandit=self.number, partitions=[partition])
            ((_, saved),) = talk.run_registered("lock_snapshot", **whose)
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
