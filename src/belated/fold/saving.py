"""Writing of snapshots: the state of one moment, written while the fold continues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from belated.exceptions import SnapshotConflict
from belated.fold.adapter import LinesWithRows
from belated.fold.copies import Copies
from belated.journals import Journal
from belated.journals.snapshots import Snapshot, checksum


@dataclass
class PartitionSaving:
    """The state of a partition at the moment when saving began.

    Attributes:
        partition: the partition.
        position: the position of the last record that was folded.
        fingerprint: the fingerprint of the fold.
        pieces: all pieces except those of blocks.
        copies: copies of the blocks that have changed since the last snapshot.
        unchanged: the names of the pieces of all other blocks.
        before: the checksum of each piece of the last snapshot; empty for pieces that never change
            under their name.
        sums: the checksums of this snapshot, once it is written.
    """

    partition: int
    position: int
    fingerprint: str
    pieces: Mapping[str, bytes]
    copies: Copies[LinesWithRows]
    unchanged: Collection[str]
    before: Mapping[str, bytes]
    sums: dict[str, bytes] | None = None

    def write(self, journal: Journal) -> None:
        """Write the snapshot to the journal; pieces that it already has are not written again."""
        self.copies.take_all()
        pieces = dict(self.pieces)
        for block, lines in self.copies.made.items():
            pieces |= lines.pieces(block)
        sums = {name: b"" if is_lasting(name) else checksum(data) for name, data in pieces.items()}
        kept = {name for name, _ in sums.items() & self.before.items()}
        changed = {name: data for name, data in pieces.items() if name not in kept}
        kept |= {*self.unchanged}
        journal.save(
            Snapshot(self.partition, self.position, self.fingerprint, changed, frozenset(kept))
        )
        self.sums = {name: self.before[name] for name in self.unchanged} | sums


class Saving:
    """Snapshots of all partitions of a fold.

    Args:
        parts: the state of each partition.

    Attributes:
        conflicts: whether another process saved snapshots meanwhile, so that these were rejected.
    """

    def __init__(self, parts: Sequence[PartitionSaving]) -> None:
        self.parts = parts
        self.conflicts = False

    def write(self, journal: Journal) -> None:
        """Write the snapshots to the journal; can be called in any thread.

        Args:
            journal: the journal that the last snapshot was loaded from or saved to.

        Raises:
            SnapshotConflict: another process has saved snapshots since.
        """
        try:
            for part in self.parts:
                part.write(journal)
        except SnapshotConflict:
            self.conflicts = True
            raise


def is_lasting(name: str) -> bool:
    """Return whether a piece never changes under its name: the rows of a full block."""
    return name.startswith("rows ") and not name.endswith("so far")


def kept_at_load(names: Collection[str]) -> dict[str, bytes]:
    """Return ``before`` for a snapshot that was loaded, given the names of its pieces.

    Only pieces that need no checksum are included: those that never change, and those of blocks of
    lines, whose changes the table tracks.
    """
    return {name: b"" for name in names if is_lasting(name) or is_of_block(name)}


def is_of_block(name: str) -> bool:
    """Return whether a piece belongs to a block of lines.

    >>> [is_of_block(name) for name in ("lines 3", "rows-of-lines 3", "rows 3")]
    [True, True, False]
    """
    return name.startswith(("lines ", "rows-of-lines "))
