"""Write consistent snapshots while the fold continues."""

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
    """The state of a partition when saving began.

    Attributes:
        partition: the partition.
        position: the position of the last folded record.
        fingerprint: the fingerprint of the fold.
        pieces: all pieces except those of blocks.
        copies: copies of the blocks that have changed since the last snapshot.
        unchanged: the names of the pieces of all other blocks.
        before: the checksum of each piece of the last snapshot; empty for pieces whose content
            never changes.
        sums: the checksums of this snapshot, once it has been written.
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
        """Write the snapshot to the journal, except for pieces that the journal already has."""
        self.copies.take_all()
        pieces = dict(self.pieces)
        for block, lines in self.copies.made.items():
            pieces |= lines.pieces(block)
        sums = {name: b"" if is_lasting(name) else checksum(data) for name, data in pieces.items()}
        unchanged = {name for name, _ in sums.items() & self.before.items()}
        changed = {name: data for name, data in pieces.items() if name not in unchanged}
        unchanged |= {*self.unchanged}
        journal.save(
            Snapshot(self.partition, self.position, self.fingerprint, changed, frozenset(unchanged))
        )
        self.sums = {name: self.before[name] for name in self.unchanged} | sums


class Saving:
    """Snapshots of all partitions of a fold.

    Args:
        parts: the state of each partition.

    Attributes:
        conflicts: whether these snapshots were rejected because another process saved snapshots
            in the meantime.
    """

    def __init__(self, parts: Sequence[PartitionSaving]) -> None:
        self.parts = parts
        self.conflicts = False

    def write(self, journal: Journal) -> None:
        """Write the snapshots to the journal; can be called from any thread.

        Args:
            journal: the journal from which the last snapshot was loaded or to which it was saved.

        Raises:
            SnapshotConflict: another process has saved snapshots in the meantime.
        """
        try:
            for part in self.parts:
                part.write(journal)
        except SnapshotConflict:
            self.conflicts = True
            raise


def is_lasting(name: str) -> bool:
    """Return whether a piece holds the rows of a full block, which never change."""
    return name.startswith("rows ") and not name.endswith("so far")


def kept_at_load(names: Collection[str]) -> dict[str, bytes]:
    """Return ``before`` for a loaded snapshot, given the names of the snapshot's pieces.

    Only pieces that need no checksum are included: pieces that never change, and blocks of entries,
    whose changes are tracked by the table.
    """
    return {name: b"" for name in names if is_lasting(name) or is_of_block(name)}


def is_of_block(name: str) -> bool:
    """Return whether a piece belongs to a block of entries.

    >>> [is_of_block(name) for name in ("lines 3", "rows-of-lines 3", "rows 3")]
    [True, True, False]
    """
    return name.startswith(("lines ", "rows-of-lines "))
