"""Snapshots and bases: what a fold has made of one partition, and who may store it.

A snapshot is only a shortcut. Every piece of it has a checksum, and a seal covers them all; where
anything is wrong the snapshot is thrown away and the journal, which has the facts, is read again.

A *base* is the same for records that were dropped: nothing else has what was in them.

Both are a cell that lists the pieces, and a cell for each piece, named by its checksum: so what has
not changed is not written again, and whoever is fenced spoils nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from belated.core.events import Event, Record, Trimmed
from belated.exceptions import (
    CorruptJournal,
    HistoryChanged,
    HistoryUndone,
    InvalidInput,
    JournalMismatch,
    JournalUnavailable,
    OwnerFenced,
    SnapshotConflict,
    SnapshotWarning,
)
from belated.journals.arrivals import check_partition
from belated.journals.bandits import Registration, update
from belated.journals.cells import Cell, Cells, cell_name
from belated.journals.coordination import owner_cell
from belated.journals.log import EMPTY, Tail

#: Bytes of pieces that are written in one transaction.
BATCH = 16 << 20


class Snapshot(msgspec.Struct, frozen=True):
    """The state of one partition after all its records up to a position, as named pieces.

    Attributes:
        partition: the partition it is of.
        position: of the last record that is in it.
        fingerprint: of whatever made it; a state is of use only to its like.
        pieces: bytes by name.
        kept: names of pieces that are as they were in the snapshot this journal object last saved
            or loaded: their bytes are not given again.

    >>> first = Snapshot(0, 2, "v1", {"block 0": b"...", "ledger": b"two entries"})
    >>> later = Snapshot(0, 5, "v1", {"ledger": b"five entries"}, kept=frozenset({"block 0"}))
    """

    partition: int
    position: int
    fingerprint: str
    pieces: dict[str, bytes]
    kept: frozenset[str] = frozenset()


def checksum(data: bytes) -> bytes:
    """16 bytes that change whenever the data do.

    >>> checksum(b"").hex()
    'cae66941d9efbd404e4d88758ea67670'
    """
    return blake2b(data, digest_size=16).digest()


def checksums_of(snapshot: Snapshot, known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The checksum of every piece, given and kept.

    Args:
        snapshot: about to be saved.
        known: the checksums of the snapshot last saved or loaded.

    Raises:
        SnapshotConflict: a piece to be kept was not in that one.
    """
    both = snapshot.kept & snapshot.pieces.keys()
    if both:
        raise InvalidInput(f"pieces {sorted(both)} are both given and kept: choose one", both)
    unknown = snapshot.kept - known.keys()
    if unknown:
        raise SnapshotConflict(unknown)
    given = {name: checksum(data) for name, data in snapshot.pieces.items()}
    return {name: known[name] for name in snapshot.kept} | given


def check_position(snapshot: Snapshot, end: int) -> None:
    """Refuse a snapshot of records that are not there: the fold would pass over those to come."""
    if not 0 <= snapshot.position <= end:
        message = (
            f"the snapshot is of position {snapshot.position}, but partition "
            f"{snapshot.partition} ends at {end}: save only what was read from this journal"
        )
        raise InvalidInput(message, snapshot.position)


def check_kept(
    snapshot: Snapshot, checksums: Mapping[str, bytes], stored: Mapping[str, bytes]
) -> None:
    """Refuse to keep a piece that is no longer stored as it was.

    Another process may have saved in between: its pieces may have the same names and other bytes.
    """
    changed = [name for name in snapshot.kept if stored.get(name) != checksums[name]]
    if changed:
        raise SnapshotConflict(changed)


def seal(snapshot: Snapshot, checksums: Mapping[str, bytes]) -> bytes:
    """A checksum over the whole: no piece missing, none from another snapshot, the right place."""
    parts = snapshot.partition, snapshot.position, snapshot.fingerprint, sorted(checksums.items())
    return checksum(msgspec.msgpack.encode(parts))


def damage(snapshot: Snapshot, contents: Contents) -> str | None:
    """What is wrong with a stored snapshot; None if nothing is.

    Args:
        snapshot: as read, all pieces given.
        contents: as they were written down.
    """
    for name, named in contents.checksums.items():
        if name not in snapshot.pieces or checksum(snapshot.pieces[name]) != named:
            return f"its piece {name!r} has changed"
    if seal(snapshot, contents.checksums) != contents.seal:
        return "its pieces do not belong together"
    return None


def check_base(base: Snapshot, known: int, *, before: int, saved: int | None, undone: int) -> None:
    """Refuse a base that would lose something.

    Args:
        base: about to be stored.
        known: how many records that undo others it knows.
        before: the position of the one that is stored, 0 if there is none.
        saved: the position of the snapshot of its partition, None if there is none.
        undone: how many records of the partition undo others by now.
    """
    if undone != known:
        raise HistoryUndone(base.partition, base.position)
    if base.kept or base.position <= before:
        message = f"a base of position {base.position} cannot take the place of one of {before}"
        raise InvalidInput(f"{message}: give all its pieces, of a later position", base.position)
    if saved is None or saved <= base.position:
        message = (
            f"partition {base.partition} cannot be trimmed up to {base.position}: its snapshot is "
            f"of {'none' if saved is None else saved}, and records are dropped only if both a base "
            "and a later snapshot hold what they came to; save a snapshot first"
        )
        raise InvalidInput(message, base.position)


class Contents(msgspec.Struct, frozen=True):
    """What is stored of a snapshot or a base in one cell, beside its pieces.

    Attributes:
        position: of the last record that is in it.
        fingerprint: of whatever made it.
        checksums: of its pieces, by name.
        sizes: of its pieces in bytes, by name.
        seal: over all of it.
        in_files: whether pieces are files, and not cells.
    """

    position: int
    fingerprint: str
    checksums: dict[str, bytes]
    sizes: dict[str, int]
    seal: bytes
    in_files: bool = False


_contents, _tail = msgspec.msgpack.Decoder(Contents), msgspec.json.Decoder(Tail)


class Pieces:
    """The snapshots, or the bases, of a bandit: one for each partition.

    Args:
        cells: Cells of the store.
        kind: Which of the two.
        bandit: Name of the bandit.
    """

    #: Whether pieces are files, and not cells.
    in_files = False

    def __init__(self, cells: Cells, kind: Literal["snapshot", "base"], bandit: str) -> None:
        self._cells = cells
        self._kind = kind
        self._bandit = bandit

    def cell(self, partition: int) -> str:
        """Return the name of the cell that lists the pieces; it is empty where there are none."""
        return cell_name(self._kind, self._bandit, partition)

    def contents(self, partition: int) -> tuple[int, Contents | None]:
        """Return the version of the list, and what it says; None if there is none."""
        name = self.cell(partition)
        cell = self._cells.get([name]).get(name, Cell(0, 0, b""))
        contents = read_contents(cell)
        if contents is not None and contents.in_files and not self.in_files:
            message = f"the snapshots of bandit {self._bandit!r} are in files"
            raise JournalMismatch(f"{message}: open it with the same snapshots= as the others")
        return cell.version, contents

    def load(self, partition: int) -> tuple[int, Contents, Snapshot] | None:
        """Return the version of the list, what it says, and the pieces that were found."""
        version, contents = self.contents(partition)
        while contents is not None:
            pieces = self.read(partition, contents.checksums.values())
            found = {name: pieces[one] for name, one in contents.checksums.items() if one in pieces}
            whole = Snapshot(partition, contents.position, contents.fingerprint, found)
            if len(found) == len(contents.checksums):
                return version, contents, whole
            before = version
            version, contents = self.contents(partition)  # another may have saved since
            if version == before and contents is not None:
                return version, contents, whole
        return None

    def save(
        self,
        snapshot: Snapshot,
        checksums: Mapping[str, bytes],
        version: int,
        stored: Contents | None,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
    ) -> bool:
        """Store a snapshot in place of the last one; False if something is not as expected.

        Args:
            snapshot: with the pieces that are given.
            checksums: of all its pieces.
            version: of the list that is stored.
            stored: what that list says.
            expected: versions of other cells.
            puts: other cells, written in the same transaction.
        """
        partition = snapshot.partition
        known = set() if stored is None else {*stored.checksums.values()}
        fresh = {checksums[name]: data for name, data in snapshot.pieces.items()}
        name = self.cell(partition)
        note = cell_name(f"{self._kind}-unlisted", self._bandit, partition)
        unlisted = self._cells.get([note]).get(note, Cell(0, 0, b""))
        expected = {**expected, name: version, note: unlisted.version}
        known.update(unlisted.value[at : at + 16] for at in range(0, len(unlisted.value), 16))
        if not self.in_files and sum(map(len, fresh.values())) > BATCH:
            # Pieces that no list has yet: if this process ends before it has one, the next save
            # finds them here, and deletes them.
            if not self._cells.transact(expected, {note: unlisted.value + b"".join(fresh)}).ok:
                return False
            expected[note] += 1
        if expected[note]:
            puts = {**puts, note: b""}
        rest = self.write(partition, fresh)
        kept = {} if stored is None else {name: stored.sizes[name] for name in snapshot.kept}
        sizes = kept | {name: len(data) for name, data in snapshot.pieces.items()}
        new = Contents(
            snapshot.position, snapshot.fingerprint, dict(checksums), sizes,
            seal(snapshot, checksums), self.in_files,
        )  # fmt: skip
        stale = [self._piece(partition, one) for one in known - {*checksums.values()}]
        listed = {**puts, **rest, name: msgspec.msgpack.encode(new)}
        return self._cells.transact(expected, listed, stale).ok

    def discard(self, partition: int, version: int) -> None:
        """Remove a damaged snapshot, unless another has been saved since."""
        pieces = self._cells.scan(cell_name(f"{self._kind}-piece", self._bandit, partition, ""))
        name = self.cell(partition)
        self._cells.transact({name: version}, {name: b""}, list(pieces))

    def write(self, partition: int, pieces: Mapping[bytes, bytes]) -> dict[str, bytes]:
        """Write pieces, by checksum; returns the cells to be written together with the list."""
        batch: dict[str, bytes] = {}
        size = 0
        for named, data in pieces.items():
            if batch and size + len(data) > BATCH:
                self._cells.transact({}, batch)
                batch, size = {}, 0
            batch[self._piece(partition, named)] = data
            size += len(data)
        return batch

    def read(self, partition: int, named: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return pieces by checksum, but for those that are missing."""
        names = {self._piece(partition, one): one for one in named}
        return {names[name]: cell.value for name, cell in self._cells.get(names).items()}

    def _piece(self, partition: int, named: bytes) -> str:
        return cell_name(f"{self._kind}-piece", self._bandit, partition, named.hex())


def read_contents(cell: Cell) -> Contents | None:
    """Return what a list of pieces says; None if it is empty."""
    try:
        return _contents.decode(cell.value) if cell.value else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Contents(0, "", {}, {}, b"")  # its seal is wrong


class CellShelf:
    """What a bandit is, and its owners, snapshots and bases, in the cells of its store.

    A journal inherits it. Several processes may have the same journal open: between two calls
    others may save and acquire. :class:`belated.testing.ShelfContract` tests it.
    """

    cells: Cells
    #: The file or database, for messages.
    _place: str
    _bandit: str
    _partitions: int
    _snapshots: Pieces
    _bases: Pieces
    # By partition, the checksums of the pieces of the snapshot last saved or loaded here.
    _known: dict[int, dict[str, bytes]]
    # What is owned, by process too: what a fork inherits, it does not own.
    _epochs: dict[tuple[int, int], int]

    def _open_shelf(self, cells: Cells) -> None:
        self.cells = cells
        self._snapshots = Pieces(cells, "snapshot", self._bandit)
        self._bases = Pieces(cells, "base", self._bandit)
        self._known, self._epochs = {}, {}

    def append(self, events: Sequence[Event]) -> list[int]:
        """Append events; see :meth:`Log.append`."""
        raise NotImplementedError

    def end(self, partition: int) -> int:
        """Return the position of the last record, 0 if there is none."""
        raise NotImplementedError

    def undone(self, partition: int) -> list[Record]:
        """Return all records of a partition that undo others, in order."""
        raise NotImplementedError

    def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""
        return self.cells.transact({}, {}).now

    def close(self) -> None:
        """Close the journal; any later call raises :class:`JournalClosed`."""
        self.cells.close()

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet.

        Returns:
            What is stored now: of several processes at once, all get that of the first.
        """
        return self._update_identity(lambda stored: identity if stored is None else stored)

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, in place of what was stored."""
        self._update_identity(lambda stored: identity)

    def _update_identity(
        self, change: Callable[[dict[str, str] | None], dict[str, str]]
    ) -> dict[str, str]:
        def changed(one: Registration) -> Registration:
            return msgspec.structs.replace(one, identity=change(one.identity))

        found = update(self.cells, self._bandit, changed)
        if found is None:
            raise JournalUnavailable(f"{self._place} has lost the bandit {self._bandit!r}")
        return dict(found.identity or {})

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition: from now on the previous owner cannot save.

        For learners that take over from each other: one that is slow, and not dead, must not
        overwrite the state of its successor. An object that has acquired nothing saves as it likes.

        Returns:
            The epoch, which grows each time the partition is acquired.
        """
        check_partition(partition, self._partitions)
        name = owner_cell(self._bandit, partition)
        while True:
            epoch = self._epoch_in(self.cells.get([name]), name)
            if self.cells.transact({name: epoch}, {name: b""}).ok:
                self._epochs[os.getpid(), partition] = epoch + 1
                return epoch + 1

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in place of the last one of its partition, in one step.

        One that is behind the stored one is ignored: another process was further.

        Raises:
            OwnerFenced: another has acquired the partition since this object did.
            SnapshotConflict: a piece to be kept is not stored as it was; save them all.
            InvalidInput: its position is beyond the end of the partition.
        """
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        check_position(snapshot, self.end(partition))
        owner, mine = owner_cell(self._bandit, partition), self._epoch(partition)
        expected = {} if mine is None else {owner: mine}
        while True:
            if mine not in (None, self._epoch_in(self.cells.get([owner]), owner)):
                raise OwnerFenced(partition)
            version, stored = self._snapshots.contents(partition)
            if stored is not None and snapshot.position < stored.position:
                break
            check_kept(snapshot, checksums, {} if stored is None else stored.checksums)
            if self._snapshots.save(snapshot, checksums, version, stored, expected, {}):
                break
        # Also where it was ignored: what may be kept next time is compared with what is stored.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot with all its pieces, None if there is none.

        A damaged one is removed, with a :class:`SnapshotWarning`: the fold then starts from the
        beginning.

        Raises:
            HistoryChanged: the partition ends before it, so records are gone; it is removed, too.
        """
        check_partition(partition, self._partitions)
        self._known.pop(partition, None)
        found = self._snapshots.load(partition)
        if found is None:
            return None
        version, contents, snapshot = found
        reason = damage(snapshot, contents)
        if reason is None and snapshot.position <= self.end(partition):
            self._known[partition] = contents.checksums
            return snapshot
        self._snapshots.discard(partition, version)
        tell_discarded(snapshot, reason)
        return None

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped: its position and stamp, 0 if none was."""
        check_partition(partition, self._partitions)
        name = self._start_cell(partition)
        cell = self.cells.get([name]).get(name)
        return EMPTY if cell is None else _tail.decode(cell.value)

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to, None if none were.

        Raises:
            CorruptJournal: it is damaged; nothing else has what was in those records.
        """
        check_partition(partition, self._partitions)
        found = self._bases.load(partition)
        if found is None:
            return None
        _, contents, base = found
        reason, end = damage(base, contents), self.end(partition)
        if reason is None and base.position > end:
            reason = f"it is of position {base.position}, and the journal ends at {end}"
        if reason is not None:
            message = f"the base of partition {partition} in {self._place} is damaged: {reason}"
            what_to_do = "The records it was made of were trimmed: restore a backup"
            raise CorruptJournal(f"{message}. {what_to_do}")
        return base

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so: what is up to its position may then be dropped.

        :meth:`Log.drop` then drops the records. If this raises after the record was appended, that
        record says more than was done; nothing depends on it.

        Args:
            base: all its pieces are given; its position is at the end of a link.
            trimmed: the record.
            undone: how many records of the partition undo others, as far as the base knows.

        Raises:
            HistoryUndone: there are more by now; make the base anew.
            InvalidInput: it is behind the base that is stored, or not behind the snapshot's links.
        """
        partition = base.partition
        check_partition(partition, self._partitions)
        checksums, appended = checksums_of(base, {}), False
        start = {
            self._start_cell(partition): msgspec.json.encode((base.position, trimmed.recorded))
        }
        while True:
            version, stored = self._bases.contents(partition)
            saved_version, saved = self._snapshots.contents(partition)
            check_base(
                base,
                undone,
                before=0 if stored is None else stored.position,
                saved=None if saved is None else saved.position,
                undone=len(self.undone(partition)),
            )
            if not appended:  # what is undone from now on stands behind this record
                self.append([trimmed])
                appended = True
                continue
            expected = {self._snapshots.cell(partition): saved_version}
            if self._bases.save(base, checksums, version, stored, expected, start):
                return

    def _start_cell(self, partition: int) -> str:
        return cell_name("start", self._bandit, partition)

    def _epoch(self, partition: int) -> int | None:
        """Return the epoch in which this process owns a partition; None if it never did."""
        return self._epochs.get((os.getpid(), partition))

    def _epoch_in(self, cells: Mapping[str, Cell], name: str) -> int:
        return cells[name].version if name in cells else 0


def tell_discarded(snapshot: Snapshot, reason: str | None) -> None:
    """Say that a snapshot was thrown away, and what that means.

    Args:
        snapshot: that was.
        reason: what is wrong with it, as :func:`damage` says; None if the journal ends before it.

    Raises:
        HistoryChanged: nothing is wrong with it, so the journal has lost records.
    """
    if reason is None:
        raise HistoryChanged(snapshot.partition, snapshot.position)
    message = (
        f"the snapshot of partition {snapshot.partition} is damaged and was discarded: {reason}. "
        "Nothing is lost: the partition is read from its beginning, which takes longer"
    )
    warnings.warn(message, SnapshotWarning, stacklevel=3)
