"""What journals have in common that find records by their id or subject."""

from __future__ import annotations

from collections.abc import Sequence

from belated.core.events import Configured, Decision, Event, ModeChanged, Opaque, Record
from belated.core.ids import partition_of
from belated.exceptions import InvalidInput
from belated.journals.arrivals import check_partition
from belated.journals.lookups import LAST_SETTLEMENTS, Subject, standing
from belated.journals.named import NamedJournal


class IndexedJournal(NamedJournal):
    """Answers all that a :class:`UniqueLog` is asked by two look-ups."""

    def records_of(self, ids: Sequence[str]) -> list[Record]:
        """Return all records of these ids, by partition and position."""
        raise NotImplementedError

    def _about(self, partition: int, subject: Subject, limit: int | None = None) -> list[Record]:
        """Return the last records without an id about a subject, in order; None for all."""
        raise NotImplementedError

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision that stands under each of these ids, where there is one."""
        return standing(self.records_of(ids))

    def settlements(self, partition: int) -> list[Record]:
        """Return the last records that settled a partition, in order."""
        check_partition(partition, self._partitions)
        return self._about(partition, "settled", LAST_SETTLEMENTS)

    def undone(self, partition: int) -> list[Record]:
        """Return all records of a partition that undo others, in order."""
        check_partition(partition, self._partitions)
        return self._about(partition, "undone")

    def _check_erased(self, keys: Sequence[bytes]) -> None:
        """Refuse to overwrite what was not erased."""
        homes = {partition_of(key, self._partitions) for key in keys}
        erased = {getattr(one.event, "key", b"") for home in homes for one in self.undone(home)}
        for key in keys:
            if key not in erased:
                message = f"the decision with the key {key.hex()} was not erased: erase it first"
                raise InvalidInput(message, key)

    def mode(self) -> ModeChanged | None:
        """Return the last event that changed the mode, None if there is none."""
        event = self._last("mode")
        return event if isinstance(event, ModeChanged) else None

    def configured(self) -> Configured | None:
        """Return the last event that says what the bandit is, None if there is none."""
        event = self._last("configured")
        return event if isinstance(event, Configured) else None

    def _last(self, subject: Subject) -> Event | Opaque | None:
        found = self._about(0, subject, 1)
        return found[0].event if found else None
