"""A snapshot on its way to the shelf: of one moment, and written while the fold goes on."""

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
    """What a partition had come to at the moment when the saving began.

    Attributes:
        partition: it is of.
        position: of the last record that is in it.
        fingerprint: of what made it.
        pieces: all but those of blocks.
        copies: of the blocks that have changed since the last snapshot.
        unchanged: the names of the pieces of all other blocks.
        before: the checksum of each piece of the last snapshot; none of those that never change
            under their name.
        sums: the same of this one, once it is written.
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
        """Have the journal keep it; what is there already is not written again."""
        self.copies.take_all()
        pieces = dict(self.pieces)
        for block, lines in self.copies.made.items():
            pieces |= lines.pieces(block)
        sums = {name: b"" if is_lasting(name) else checksum(data) for name, data in pieces.items()}
        kept = {name for name, _ in sums.items() & self.before.items()}
        given = {name: data for name, data in pieces.items() if name not in kept}
        kept |= {*self.unchanged}
        snapshot = Snapshot(self.partition, self.position, self.fingerprint, given, frozenset(kept))
        journal.save(snapshot)
        self.sums = {name: self.before[name] for name in self.unchanged} | sums


class Saving:
    """Snapshots of all partitions of a fold.

    Args:
        parts: those of the partitions.

    Attributes:
        conflicts: whether another process has saved meanwhile: nothing of ours can be kept.
    """

    def __init__(self, parts: Sequence[PartitionSaving]) -> None:
        self.parts = parts
        self.conflicts = False

    def write(self, journal: Journal) -> None:
        """Have the journal keep them; in any thread.

        Args:
            journal: that the last snapshot was loaded from, or saved to.

        Raises:
            SnapshotConflict: another process saved since.
        """
        try:
            for part in self.parts:
                part.write(journal)
        except SnapshotConflict:
            self.conflicts = True
            raise


def is_lasting(name: str) -> bool:
    """Whether a piece never changes under its name: the rows of a full block."""
    return name.startswith("rows ") and not name.endswith("so far")


def kept_at_load(names: Collection[str]) -> dict[str, bytes]:
    """What is known of the pieces of a snapshot that was loaded: as in ``before``.

    Those of blocks of lines are told by the table, which knows what has changed.
    """
    return {name: b"" for name in names if is_lasting(name) or is_of_block(name)}


def is_of_block(name: str) -> bool:
    """Whether it is a piece of a block of lines.

    >>> [is_of_block(name) for name in ("lines 3", "rows-of-lines 3", "rows 3")]
    [True, True, False]
    """
    return name.startswith(("lines ", "rows-of-lines "))
