"""Snapshots: what a fold has made of one partition, so that it need not start from the beginning.

A snapshot is only a shortcut. Every piece of it has a checksum, and a seal covers them all; where
anything is wrong the snapshot is thrown away and the journal, which has the facts, is read again.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from belated.exceptions import (
    CorruptJournal,
    HistoryChanged,
    HistoryUndone,
    InvalidInput,
    SnapshotConflict,
    SnapshotWarning,
)


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


def damage(snapshot: Snapshot, checksums: Mapping[str, bytes], sealed: bytes) -> str | None:
    """What is wrong with a stored snapshot; None if nothing is.

    Args:
        snapshot: as read, all pieces given.
        checksums: of the pieces, as they were written down.
        sealed: the seal, as it was written down.
    """
    for name, data in snapshot.pieces.items():
        if data is None or checksum(data) != checksums[name]:
            return f"its piece {name!r} has changed"
    if seal(snapshot, checksums) != sealed:
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


def refuse_damaged_base(base: Snapshot, reason: str | None, end: int, place: str) -> None:
    """Raise where records were dropped, and what they came to is damaged.

    Args:
        base: that stands for them.
        reason: what is wrong with it, as :func:`damage` says.
        end: the position of the last record of the partition.
        place: where it is.

    Raises:
        CorruptJournal: something is.
    """
    if reason is None and base.position > end:
        reason = f"it is of position {base.position}, and the journal ends at {end}"
    if reason is not None:
        message = f"the base of partition {base.partition} in {place} is damaged: {reason}"
        what_to_do = "The records it was made of were trimmed: restore a backup"
        raise CorruptJournal(f"{message}. {what_to_do}")


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
