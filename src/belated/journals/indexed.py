"""What journals have in common that find records by their id or subject."""

from __future__ import annotations

from collections.abc import Sequence

from belated.core.ids import partition_of
from belated.exceptions import InvalidInput
from belated.journals.acts import CellActs
from belated.journals.named import NamedJournal


class IndexedJournal(CellActs, NamedJournal):
    """A journal that finds records by id."""

    def _check_erased(self, keys: Sequence[bytes]) -> None:
        """Refuse to overwrite what was not erased."""
        homes = {partition_of(key, self._partitions) for key in keys}
        erased = {getattr(one.event, "key", b"") for home in homes for one in self.undone(home)}
        for key in keys:
            if key not in erased:
                message = f"the decision with the key {key.hex()} was not erased: erase it first"
                raise InvalidInput(message, key)
