"""What journals have in common that find records by their id or subject."""

from __future__ import annotations

from collections.abc import Sequence

from belated.core.events import Decision, Record
from belated.core.ids import partition_of
from belated.exceptions import InvalidInput
from belated.journals.acts import CellActs
from belated.journals.lookups import standing
from belated.journals.named import NamedJournal


class IndexedJournal(CellActs, NamedJournal):
    """Answers what a :class:`UniqueLog` is asked by id with one look-up."""

    def records_of(self, ids: Sequence[str]) -> list[Record]:
        """Return all records of these ids, by partition and position."""
        raise NotImplementedError

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision that stands under each of these ids, where there is one."""
        return standing(self.records_of(ids))

    def _check_erased(self, keys: Sequence[bytes]) -> None:
        """Refuse to overwrite what was not erased."""
        homes = {partition_of(key, self._partitions) for key in keys}
        erased = {getattr(one.event, "key", b"") for home in homes for one in self.undone(home)}
        for key in keys:
            if key not in erased:
                message = f"the decision with the key {key.hex()} was not erased: erase it first"
                raise InvalidInput(message, key)
