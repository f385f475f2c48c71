"""What journals in a store have in common: records are read back with suspicion."""

from __future__ import annotations

from collections.abc import Iterable

from belated.core.events import Overwritten, Record, digest_of, read_event
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryTrimmed,
)
from belated.journals.indexed import IndexedJournal


class StoredJournal(IndexedJournal):
    """A journal whose positions have no gaps and whose records have checksums."""

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
