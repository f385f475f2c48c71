"""A slow second fold of the journal, which must give the same result as the live fold (law H).

The second fold starts after the trimmed records. It reads one partition after the other, in slices
of a few hundred records, so that only the entries of one partition are in memory. When it has
caught up with the learner, the chains and entries are compared. Changes to old records are
therefore detected eventually, unless the journal grows faster than the slices are read.
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

#: Number of records in a slice, and seconds between slices and between complete refolds.
SLICE, PAUSE, REST = 256, 0.1, 3600.0


@dataclass(eq=False)
class Refold:
    """Folds a learner's journal again and compares the result with the live fold.

    Args:
        journal: Journal of the bandit.
        monotonic: Returns the monotonic time in seconds.
        pause: Seconds between slices.

    Attributes:
        due: When the next slice is due, by the monotonic clock.
        disagreements: Number of differences found so far.
        compared: Number of partitions compared so far.
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
        """Fold a slice if it is due; return a description of any difference, or an empty string."""
        if self.monotonic() < self.due:
            return ""
        try:
            if self._ledger is None:
                self._chain, self._ledger = self._begin(live)
            difference = self._step(live, self._ledger)
        except JournalUnavailable:
            raise
        except HistoryTrimmed:  # start again from the base
            self._ledger = None
            difference = ""
        except BelatedError as error:  # a record has been damaged since the learner read it
            difference = str(error)
            self._next()
        self.disagreements += bool(difference)
        self.due = max(self.due, self.monotonic() + self.pause)
        return difference

    def restart(self) -> None:
        """Start again from the first record."""
        self._ledger = None
        self._partition = 0

    def _begin(self, live: Fold) -> tuple[Chain, Ledger]:
        """Return the chain and ledger to start from: those of the base, or empty ones."""
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
            return f"the records of partition {partition} have changed since they were folded"
        if not same_entries(ledger, live.ledgers[partition]):
            return f"folding partition {partition} from its start gives different decisions"
        return ""

    def _next(self) -> None:
        self._ledger = None
        self._partition = (self._partition + 1) % self.journal.partitions
        if self._partition == 0:
            self.due = self.monotonic() + REST


def _empty(live: Fold, partition: int) -> Ledger:
    """Return an empty ledger with the same rules as the live ledger, but without a listener."""
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


def same_entries(first: Ledger, second: Ledger) -> bool:
    """Return whether all decisions have equal states, positions, times, flags and values.

    Both ledgers must have folded the same records, so that decisions have the same numbers.
    Comparing columns is about a hundred times faster than comparing digests. Forgotten decisions
    are compared, too, but keys are not.
    """
    if first.counts != second.counts or (first._forgotten_digest - second._forgotten_digest) % (
        1 << 128
    ):
        return False
    base = max(first._table.base, second._table.base)  # earlier decisions were forgotten
    if first._table.next != second._table.next:
        return False
    for column in ("state", "position", "at", "value", "flags"):
        values, second_values = (
            ledger._table.column(column)[base - ledger._table.base :] for ledger in (first, second)
        )
        if column == "flags":
            seen = LATE | CONFLICT | FORGOTTEN
            values, second_values = values & seen, second_values & seen
        if not np.array_equal(values, second_values, equal_nan=column == "value"):
            return False
    return True
