"""Snapshots and bases: what a fold has made of one partition, and who may store it.

A snapshot is only a shortcut. Every piece of it has a checksum, and a seal covers them all; where
anything is wrong the snapshot is thrown away and the journal, which has the facts, is read again.

A *base* is the same for records that were dropped: nothing else has what was in them.

Both are a cell that lists the pieces, and a cell for each piece, named by its checksum: so what has
not changed is not written again, and whoever is fenced spoils nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from belated.exceptions import (
    HistoryUndone,
    InvalidInput,
    JournalMismatch,
    SnapshotConflict,
)
from belated.journals.cells import NO_CELL, Cell, Cells, cell_name

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


class Stored(NamedTuple):
    """What a store has of a snapshot, beside its pieces.

    Attributes:
        version: Of the list of pieces.
        contents: What that list says; None if there is none.
        unlisted: Cell with the checksums of pieces that were written for a list to come.
    """

    version: int
    contents: Contents | None
    unlisted: Cell


_contents = msgspec.msgpack.Decoder(Contents)


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

    def stored(self, partition: int) -> Stored:
        """Return what the store has."""
        name, note = self.cell(partition), self._note(partition)
        found = self._cells.get([name, note])
        cell = found.get(name, NO_CELL)
        contents = read_contents(cell)
        if contents is not None and contents.in_files and not self.in_files:
            message = f"the snapshots of bandit {self._bandit!r} are in files"
            raise JournalMismatch(f"{message}: open it with the same snapshots= as the others")
        return Stored(cell.version, contents, found.get(note, NO_CELL))

    def load(self, partition: int) -> tuple[int, Contents, Snapshot] | None:
        """Return the version of the list, what it says, and the pieces that were found."""
        version, contents, _ = self.stored(partition)
        while contents is not None:
            pieces = self.read(partition, contents.checksums.values())
            found = {name: pieces[one] for name, one in contents.checksums.items() if one in pieces}
            whole = Snapshot(partition, contents.position, contents.fingerprint, found)
            if len(found) == len(contents.checksums):
                return version, contents, whole
            before = version
            version, contents, _ = self.stored(partition)  # another may have saved since
            if version == before and contents is not None:
                return version, contents, whole
        return None

    def save(
        self,
        snapshot: Snapshot,
        checksums: Mapping[str, bytes],
        stored: Stored,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
    ) -> bool:
        """Store a snapshot in place of the last one; False if something is not as expected.

        Args:
            snapshot: with the pieces that are given.
            checksums: of all its pieces.
            stored: what the store had a moment ago.
            expected: versions of other cells.
            puts: other cells, written in the same transaction.
        """
        partition = snapshot.partition
        version, before, unlisted = stored
        known = set() if before is None else {*before.checksums.values()}
        fresh = {checksums[name]: data for name, data in snapshot.pieces.items()}
        name, note = self.cell(partition), self._note(partition)
        expected = {**expected, name: version, note: unlisted.version}
        known.update(unlisted.value[at : at + 16] for at in range(0, len(unlisted.value), 16))
        if not self.in_files and sum(map(len, fresh.values())) > BATCH:
            # Pieces that no list has yet: if this process ends before it has one, the next save
            # finds them here, and deletes them.
            if not self._cells.transact(expected, {note: unlisted.value + b"".join(fresh)}).ok:
                return False
            expected[note] += 1
        if unlisted.value or expected[note] > unlisted.version:
            puts = {**puts, note: b""}
        rest = self.write(partition, fresh)
        kept = {} if before is None else {name: before.sizes[name] for name in snapshot.kept}
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

    def _note(self, partition: int) -> str:
        return cell_name(f"{self._kind}-unlisted", self._bandit, partition)

    def _piece(self, partition: int, named: bytes) -> str:
        return cell_name(f"{self._kind}-piece", self._bandit, partition, named.hex())


def read_contents(cell: Cell) -> Contents | None:
    """Return what a list of pieces says; None if it is empty."""
    try:
        return _contents.decode(cell.value) if cell.value else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Contents(0, "", {}, {}, b"")  # its seal is wrong
