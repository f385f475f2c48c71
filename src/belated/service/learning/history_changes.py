"""What a learner finds changed in its journal: counted, and told in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from belated.exceptions import HistoryChanged, HistoryTrimmed, HistoryUndone

log = logging.getLogger("belated.service")


class HistoryChanges:
    """Counts and tells how often records that were folded were gone from the journal, or others.

    Args:
        extra: What the log is to say beside it, such as the name of the bandit.
    """

    def __init__(self, **extra: object) -> None:
        self.count = 0
        self._extra = extra
        #: Up to where a partition is known to have changed.
        self._known: dict[int, int] = {}

    def tell(self, error: HistoryChanged) -> None:
        """Tell of a change that was found while the journal was folded."""
        message, level = f"history changed: {error}", logging.ERROR
        if isinstance(error, HistoryUndone):
            message, level = "records were undone: they are folded anew", logging.WARNING
        elif isinstance(error, HistoryTrimmed):
            message, level = "the journal was trimmed while it was read", logging.WARNING
        else:
            self.count += 1
            known = self._known.get(error.partition, 0)
            self._known[error.partition] = max(known, error.position)
        where = {"partition": error.partition, "position": error.position}
        log.log(level, message, extra=self._extra | where)

    def tell_loaded(self, errors: Iterable[HistoryChanged]) -> None:
        """Tell of the snapshots that are of another history, unless that history is told of."""
        for error in errors:
            if error.position > self._known.get(error.partition, 0):
                self.tell(error)
