"""Snapshots and bases: the folded state of a partition, in cells.

A *snapshot* is a cache. Each piece has a checksum, and a seal covers all checksums; a damaged
snapshot is discarded, and the partition is folded from the journal again.

A *base* has the same form, and replaces dropped records, of which there is no other copy.

Both consist of a cell that lists the pieces and one cell per piece, named by its checksum.
Unchanged pieces are therefore not written again, and a fenced writer cannot damage anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from belated.exceptions import HistoryUndone, InvalidInput, JournalMismatch, SnapshotConflict
from belated.journals.cells import NO_CELL, Cell, Cells, cell_name

#: Maximum size of the pieces written in one transaction, in bytes.
BATCH = 16 << 20


class Snapshot(msgspec.Struct, frozen=True):
    """The folded state of one partition up to a position, as named pieces.

    Attributes:
        partition: Partition of the state.
        position: Position of the last record included in the state.
        fingerprint: Fingerprint of the fold; a fold with another fingerprint cannot use the state.
        pieces: Contents of the pieces, by name.
        kept: Names of pieces that are not in ``pieces`` because they are unchanged since this
            journal object last saved or loaded a snapshot.

    >>> first = Snapshot(0, 2, "v1", {"block 0": b"...", "ledger": b"two entries"})
    >>> later = Snapshot(0, 5, "v1", {"ledger": b"five entries"}, kept=frozenset({"block 0"}))
    """

    partition: int
    position: int
    fingerprint: str
    pieces: dict[str, bytes]
    kept: frozenset[str] = frozenset()


def checksum(data: bytes) -> bytes:
    """Return a 16-byte checksum.

    >>> checksum(b"").hex()
    'cae66941d9efbd404e4d88758ea67670'
    """
    return blake2b(data, digest_size=16).digest()


def checksums_of(snapshot: Snapshot, known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the checksums of all new and kept pieces.

    Args:
        snapshot: Snapshot to save.
        known: Checksums of the snapshot last saved or loaded.

    Raises:
        SnapshotConflict: a kept piece was not in that snapshot.
    """
    duplicates = snapshot.kept & snapshot.pieces.keys()
    if duplicates:
        message = (
            f"pieces {sorted(duplicates)} are in both `pieces` and `kept`: pass each only once"
        )
        raise InvalidInput(message, duplicates)
    unknown = snapshot.kept - known.keys()
    if unknown:
        raise SnapshotConflict(unknown)
    new = {name: checksum(data) for name, data in snapshot.pieces.items()}
    return {name: known[name] for name in snapshot.kept} | new


def seal(snapshot: Snapshot, checksums: Mapping[str, bytes]) -> bytes:
    """Return a checksum of the position and the checksums of all pieces."""
    parts = snapshot.partition, snapshot.position, snapshot.fingerprint, sorted(checksums.items())
    return checksum(msgspec.msgpack.encode(parts))


def damage(snapshot: Snapshot, contents: Contents) -> str | None:
    """Return a description of a stored snapshot's damage, or None.

    Args:
        snapshot: Snapshot with all pieces, as read.
        contents: Stored list of the snapshot's pieces.
    """
    for name, expected in contents.checksums.items():
        if name not in snapshot.pieces or checksum(snapshot.pieces[name]) != expected:
            return f"its piece {name!r} has changed"
    if seal(snapshot, contents.checksums) != contents.seal:
        return "its seal does not match its pieces"
    return None


def check_base(base: Snapshot, known: int, *, before: int, saved: int | None, undone: int) -> None:
    """Raise if storing a base would lose information.

    Args:
        base: Base to store.
        known: Number of erasures and retractions that the base has applied.
        before: Position of the stored base; 0 if there is none.
        saved: Position of the partition's snapshot; None if there is none.
        undone: Current number of erasures and retractions in the partition.
    """
    if undone != known:
        raise HistoryUndone(base.partition, base.position)
    if base.kept or base.position <= before:
        message = f"a base at position {base.position} cannot replace the base at position {before}"
        raise InvalidInput(
            f"{message}: pass a complete snapshot with a later position", base.position
        )
    if saved is None or saved <= base.position:
        message = f"partition {base.partition} cannot be trimmed up to position {base.position}"
        reason = "it has no snapshot" if saved is None else f"its latest snapshot is at {saved}"
        raise InvalidInput(
            f"{message}, because {reason}: save a later snapshot first", base.position
        )


class Contents(msgspec.Struct, frozen=True):
    """The list of pieces of a snapshot or a base, stored in one cell.

    Attributes:
        position: Position of the last record included.
        fingerprint: Fingerprint of the fold.
        checksums: Checksums of the pieces, by name.
        sizes: Sizes of the pieces in bytes, by name.
        seal: Checksum of the position and all checksums.
        in_files: Whether pieces are stored in files instead of cells.
    """

    position: int
    fingerprint: str
    checksums: dict[str, bytes]
    sizes: dict[str, int]
    seal: bytes
    in_files: bool = False


class Stored(NamedTuple):
    """The metadata of a stored snapshot.

    Attributes:
        version: Version of the cell with the list of pieces.
        contents: List of pieces; None if there is no snapshot.
        unlisted: Cell with the checksums of pieces that were written before their list.
    """

    version: int
    contents: Contents | None
    unlisted: Cell


_contents = msgspec.msgpack.Decoder(Contents)


class Pieces:
    """Stores the snapshots or the bases of a bandit, one per partition.

    Args:
        cells: Cells of the store.
        kind: What to store, snapshots or bases.
        bandit: Name of the bandit.
    """

    #: Whether pieces are stored in files instead of cells.
    in_files = False

    def __init__(self, cells: Cells, kind: Literal["snapshot", "base"], bandit: str) -> None:
        self._cells = cells
        self._kind = kind
        self._bandit = bandit

    def cell(self, partition: int) -> str:
        """Return the name of the cell that lists the pieces; the cell is empty after a discard."""
        return cell_name(self._kind, self._bandit, partition)

    def stored(self, partition: int) -> Stored:
        """Return the metadata of a stored snapshot."""
        name, note = self.cell(partition), self._note(partition)
        cells = self._cells.get([name, note])
        cell = cells.get(name, NO_CELL)
        contents = read_contents(cell)
        if contents is not None and contents.in_files and not self.in_files:
            message = f"the snapshots of bandit {self._bandit!r} are in files"
            raise JournalMismatch(f"{message}: pass the same snapshots= as the other processes")
        return Stored(cell.version, contents, cells.get(note, NO_CELL))

    def load(self, partition: int) -> tuple[int, Contents, Snapshot] | None:
        """Return the list's version, the list and a snapshot of the pieces found, or None."""
        version, contents, _ = self.stored(partition)
        while contents is not None:
            pieces = self.read(partition, contents.checksums.values())
            loaded = {
                name: pieces[key] for name, key in contents.checksums.items() if key in pieces
            }
            snapshot = Snapshot(partition, contents.position, contents.fingerprint, loaded)
            if len(loaded) == len(contents.checksums):
                return version, contents, snapshot
            before = version
            version, contents, _ = self.stored(partition)  # another process may have saved since
            if version == before and contents is not None:
                return version, contents, snapshot
        return None

    def save(
        self,
        snapshot: Snapshot,
        checksums: Mapping[str, bytes],
        stored: Stored,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
    ) -> bool:
        """Replace the stored snapshot; return False if a version is not as expected.

        Args:
            snapshot: Snapshot with its new pieces.
            checksums: Checksums of all pieces of the snapshot.
            stored: Metadata of the snapshot that is replaced.
            expected: Versions of other cells.
            puts: Other cells to write in the same transaction.
        """
        partition = snapshot.partition
        version, before, unlisted = stored
        digests = set() if before is None else {*before.checksums.values()}
        new_pieces = {checksums[name]: data for name, data in snapshot.pieces.items()}
        name, note = self.cell(partition), self._note(partition)
        expected = {**expected, name: version, note: unlisted.version}
        digests.update(unlisted.value[at : at + 16] for at in range(0, len(unlisted.value), 16))
        if not self.in_files and sum(map(len, new_pieces.values())) > BATCH:
            # If this process ends before writing the list, the next save deletes these pieces.
            added = unlisted.value + b"".join(new_pieces)
            if not self._cells.transact(expected, {note: added}).ok:
                return False
            expected[note] += 1
        if unlisted.value or expected[note] > unlisted.version:
            puts = {**puts, note: b""}
        last_batch = self.write(partition, new_pieces)
        sizes = {} if before is None else {name: before.sizes[name] for name in snapshot.kept}
        sizes |= {name: len(data) for name, data in snapshot.pieces.items()}
        contents = Contents(
            snapshot.position, snapshot.fingerprint, dict(checksums), sizes,
            seal(snapshot, checksums), self.in_files,
        )  # fmt: skip
        stale = [self._piece(partition, key) for key in digests - {*checksums.values()}]
        cells = {**puts, **last_batch, name: msgspec.msgpack.encode(contents)}
        return self._cells.transact(expected, cells, stale).ok

    def discard(self, partition: int, version: int) -> None:
        """Remove a damaged snapshot, unless another snapshot has been saved since."""
        pieces = self._cells.scan(cell_name(f"{self._kind}-piece", self._bandit, partition, ""))
        name = self.cell(partition)
        self._cells.transact({name: version}, {name: b""}, list(pieces))

    def write(self, partition: int, pieces: Mapping[bytes, bytes]) -> dict[str, bytes]:
        """Write pieces, by checksum; return the cells to write together with the list."""
        batch: dict[str, bytes] = {}
        size = 0
        for key, data in pieces.items():
            if batch and size + len(data) > BATCH:
                self._cells.transact({}, batch)
                batch, size = {}, 0
            batch[self._piece(partition, key)] = data
            size += len(data)
        return batch

    def read(self, partition: int, checksums: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the pieces that exist, by checksum."""
        names = {self._piece(partition, key): key for key in checksums}
        return {names[name]: cell.value for name, cell in self._cells.get(names).items()}

    def _note(self, partition: int) -> str:
        return cell_name(f"{self._kind}-unlisted", self._bandit, partition)

    def _piece(self, partition: int, key: bytes) -> str:
        return cell_name(f"{self._kind}-piece", self._bandit, partition, key.hex())


def read_contents(cell: Cell) -> Contents | None:
    """Decode a list of pieces; None if the cell is empty."""
    try:
        return _contents.decode(cell.value) if cell.value else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Contents(0, "", {}, {}, b"")  # treated as damaged, because the seal is wrong
