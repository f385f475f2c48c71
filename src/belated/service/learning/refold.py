"""A second fold of the journal, slowly and from its start: the live one must equal it (law H).

It starts behind what was trimmed, reads one partition after the other, a slice of records at a
time, and holds the entries of one partition only. When it has caught up with the learner, chains
and entries are compared. So a change of an old record under a running learner is found eventually,
unless the journal grows faster than the slices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from belated.exceptions import BelatedError, HistoryTrimmed, JournalUnavailable
from belated.fold.fold import Fold
from belated.fold.ledger import Ledger, NullListener
from belated.fold.packing import unpack
from belated.journals import Journal
from belated.journals.chain import Chain, chain_behind
from belated.model.kernels.pages import CONFLICT, FORGOTTEN, LATE

#: Records of a slice, seconds between two slices, and seconds between two whole refolds.
SLICE, PAUSE, REST = 256, 0.1, 3600.0


@dataclass(eq=False)
class Refold:
    """Folds the records of a learner again, and compares.

    Args:
        journal: of the bandit.
        monotonic: the time in seconds.
        pause: seconds between two slices.

    Attributes:
        due: when the next slice is.
        disagreements: found so far.
        compared: partitions that were compared so far.
    """

    journal: Journal
    monotonic: Callable[[], float]
    pause: float = PAUSE

    def __post_init__(self) -> None:
        self.due = self.monotonic() + self.pause
        self._partition = 0
        self._ledger: Ledger | None = None
        self._chain = Chain()
        self.disagreements = 0
        self.compared = 0

    def step(self, live: Fold) -> str:
        """Fold one slice if it is due; returns what disagrees, empty if nothing does."""
        if self.monotonic() < self.due:
            return ""
        try:
            if self._ledger is None:
                self._chain, self._ledger = self._begin(live)
            found = self._step(live, self._ledger)
        except JournalUnavailable:
            raise
        except HistoryTrimmed:  # begin with its base
            self._ledger = None
            found = ""
        except BelatedError as error:  # an old record is damaged, behind the learner
            found = str(error)
            self._next()
        self.disagreements += bool(found)
        self.due = max(self.due, self.monotonic() + self.pause)
        return found

    def restart(self) -> None:
        """Start again with the first record, as the learner has."""
        self._ledger = None
        self._partition = 0

    def _begin(self, live: Fold) -> tuple[Chain, Ledger]:
        """Begin with the first record, or behind those that were trimmed."""
        ledger, base = _empty(live, self._partition), self.journal.base(self._partition)
        if base is not None:
            unpack(ledger, base.pieces)
        return chain_behind(base, live.tuning.link), ledger

    def _step(self, live: Fold, ledger: Ledger) -> str:
        partition, chain = self._partition, self._chain
        end = live.positions[partition]
        page = self.journal.read(partition, chain.position, SLICE)
        page = [record for record in page if record.position <= end]
        for record in page:
            ledger.fold(record)
        chain.add(page)
        if page and chain.position < end:
            return ""
        self.compared += 1
        self._next()
        if chain.head != live.chains[partition].head:
            return f"the records of partition {partition} are others than those that were folded"
        if not same_entries(ledger, live.ledgers[partition]):
            return f"a fold of partition {partition} from its start comes to other decisions"
        return ""

    def _next(self) -> None:
        self._ledger = None
        self._partition = (self._partition + 1) % self.journal.partitions
        if self._partition == 0:
            self.due = self.monotonic() + REST


def _empty(live: Fold, partition: int) -> Ledger:
    """Return an empty ledger with the same rules and no listener."""
    ledger = Ledger(
        live.rewards,
        NullListener(),
        min_reward=live.min_reward,
        max_reward=live.max_reward,
        retention=live.retention,
        tuning=live.tuning,
    )
    ledger.undone = live.ledgers[partition].undone
    return ledger


def same_entries(one: Ledger, other: Ledger) -> bool:
    """Whether every decision has the same state, time, flags and value in both.

    Both have folded the same records, so that decisions have the same numbers. This is what their
    digests say, some hundred times sooner; that the same were forgotten is compared, keys are not.
    """
    if one.counts != other.counts or (one._forgotten_digest - other._forgotten_digest) % (1 << 128):
        return False
    base = max(one._table.base, other._table.base)  # what is before was forgotten
    if one._table.next != other._table.next:
        return False
    for column in ("state", "position", "at", "value", "flags"):
        mine, theirs = (
            ledger._table.column(column)[base - ledger._table.base :] for ledger in (one, other)
        )
        if column == "flags":
            seen = LATE | CONFLICT | FORGOTTEN
            mine, theirs = mine & seen, theirs & seen
        if not np.array_equal(mine, theirs, equal_nan=column == "value"):
            return False
    return True
