"""What journals in a store have in common: records are read back with suspicion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from belated.core.events import Overwritten, Record, digest_of, read_event
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryTrimmed,
    InvalidInput,
    JournalError,
    JournalMismatch,
)
from belated.journals.indexed import IndexedJournal
from belated.journals.log import Tail
from belated.journals.snapshots import Snapshot


class StoredJournal(IndexedJournal):
    """A journal whose positions have no gaps and whose records have checksums."""

    #: The file or database, for messages.
    _place: str
    #: Whether reading makes the digest of every record anew: it finds what was forged by someone
    #: who made the checksum anew and left the digest. A fold need not pay for it.
    checks_digests = False

    def _records(
        self, partition: int, after: int, rows: Iterable[tuple[int, int, bool, bytes, bytes]]
    ) -> list[Record]:
        """Records from what is stored.

        Args:
            partition: they are of.
            after: the position before the first.
            rows: position, stamp, whether the checksum is right, digest and bytes of each.

        Raises:
            HistoryTrimmed: records were dropped.
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        records = []
        for expected, (position, recorded, intact, digest, data) in enumerate(
            rows, start=after + 1
        ):
            if position != expected:
                start = self.start(partition).position
                if expected <= start:
                    raise HistoryTrimmed(partition, start)
                where = self._where(partition, expected)
                raise CorruptJournal(f"{where} is missing: restore a backup")
            if not intact or (self.checks_digests and not _is_of(digest, data)):
                where = self._where(partition, expected)
                raise CorruptEvent(f"{where} was changed after it was written: restore a backup")
            try:
                event = read_event(data)
            except CorruptEvent as error:
                raise CorruptEvent(f"{self._where(partition, expected)}: {error}") from None
            records.append(Record(partition, position, recorded, event, digest))
        return records

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped; see :meth:`Log.start`."""
        raise NotImplementedError

    def _where(self, partition: int, position: int) -> str:
        return (
            f"the record at partition {partition}, position {position} of bandit "
            f"{self._bandit!r} in {self._place}"
        )


def _is_of(digest: bytes, data: bytes) -> bool:
    """Whether a digest is of these bytes, or of those they have overwritten."""
    if digest_of(data) == digest:
        return True
    try:
        return isinstance(read_event(data), Overwritten)
    except CorruptEvent:
        return False


def as_stored(
    partition: int, rows: list[tuple[Any, ...]]
) -> tuple[Snapshot, dict[str, bytes], bytes]:
    """A snapshot, the checksums of its pieces and its seal, as they were written down.

    Args:
        partition: it is of.
        rows: one for each piece: position, fingerprint and seal of the whole, then name, checksum
            and bytes of the piece; one with no name where there are no pieces.
    """
    position, fingerprint, sealed = rows[0][:3]
    pieces = {row[3]: row[5] for row in rows if row[3] is not None}
    checksums = {row[3]: row[4] for row in rows if row[3] is not None}
    return Snapshot(partition, position, fingerprint, pieces), checksums, sealed


def check_wanted(bandit: str, place: str, wanted: int | None, partitions: int) -> None:
    """Refuse another number of partitions than there are."""
    if wanted not in (None, partitions):
        message = (
            f"bandit {bandit!r} in {place} has {partitions} partitions, not {wanted}: open it with "
            f"partitions={partitions} or None; their number is changed only by importing the "
            "records into a new journal"
        )
        raise JournalMismatch(message)


def no_such_bandit(bandit: str, place: str) -> JournalError:
    """What to say where a bandit is needed that no journal was opened for."""
    return JournalError(f"there is no bandit {bandit!r} in {place} yet: open its journal first")


def already_there(bandit: str, place: str) -> InvalidInput:
    """What to say where a bandit must be new, and is not."""
    message = f"{place} holds a bandit {bandit!r} already: choose another name with `?bandit=`"
    return InvalidInput(message, bandit)
