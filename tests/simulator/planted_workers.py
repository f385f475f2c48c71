"""Bugs that are easily made where learners share partitions: the simulator must find them all.

Run as a script it prints for each bug the first seed that finds it.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import pytest

from belated.events import Record
from belated.exceptions import JournalError
from belated.journals import Journal, SentSums, arrivals
from belated.journals.memory.coordination import Lead
from belated.learner.partitioned import Merging, PartitionFold, PartitionSums
from belated.service.learning.partition_worker import PartitionWorker
from belated.statistics import FrozenSums, RunningSums
from tests.simulator.planted_service import Plant
from tests.simulator.session import SimulatedJournal
from tests.simulator.sweep import sweep


def saved_without_epoch(patch: pytest.MonkeyPatch) -> None:
    """A worker acquires a partition, and does not say so when it saves."""
    patch.setattr(
        SimulatedJournal, "acquire", lambda self, partition: self._reach().acquire(partition)
    )


def merged_by_arrival(patch: pytest.MonkeyPatch) -> None:
    """The sums that came last count, whatever their epoch and position."""

    def keep(self: Lead, sums: SentSums) -> None:
        self.sums[sums.partition] = sums

    def take(self: Merging, entry: PartitionSums) -> bool:
        self.entries[entry.partition] = entry
        return True

    patch.setattr(Lead, "keep_sums", keep)
    patch.setattr(Merging, "take", take)


def off_by_one_inside_a_commit(patch: pytest.MonkeyPatch) -> None:
    """Where several records were committed together, the last one is said not to be folded."""
    take = PartitionFold.take_all

    def short(self: PartitionFold, partition: int, page: list[Record]) -> None:
        take(self, partition, page)
        if len(page) > 1 and page[-1].recorded == page[-2].recorded:
            self.positions[partition] = page[-2].position

    patch.setattr(PartitionFold, "take_all", short)


def saved_when_lost(patch: pytest.MonkeyPatch) -> None:
    """A worker that hears that a partition is another's saves what it knows of it."""
    lose = PartitionWorker._lose

    def tidy(self: PartitionWorker, partition: int) -> None:
        with suppress(JournalError):
            self.owned[partition].fold.save(self.shelf)
        lose(self, partition)

    patch.setattr(PartitionWorker, "_lose", tidy)


def trimmed_log_skipped(patch: pytest.MonkeyPatch) -> None:
    """Where records were trimmed, a worker begins behind them, and with nothing."""
    load = PartitionFold.load

    def skip(self: PartitionFold, journal: Journal) -> None:
        load(self, journal)
        start = journal.start(self.partition).position
        self.positions[self.partition] = max(self.position, start)

    patch.setattr(PartitionFold, "_base_of", lambda self, journal, partition: None)
    patch.setattr(PartitionFold, "load", skip)


def reward_twice(patch: pytest.MonkeyPatch) -> None:
    """Sums that were made anew at another estimate are added to once more."""
    total = RunningSums.total

    def again(self: RunningSums) -> FrozenSums:
        anew = self._sums is None
        found = total(self)
        if anew:
            self._upto = max(0, self._upto - 1)
        return found

    patch.setattr(RunningSums, "total", again)


def slot_ignored(patch: pytest.MonkeyPatch) -> None:
    """Records go to the partition of some other part of their id."""
    patch.setattr(arrivals, "partition_of", lambda key, partitions: key[-1] % partitions)


WORKER_PLANTS: list[Plant] = [
    saved_without_epoch,
    merged_by_arrival,
    off_by_one_inside_a_commit,
    saved_when_lost,
    trimmed_log_skipped,
    reward_twice,
    slot_ignored,
]
#: Seeds that find what few do: they are tried first. The simulator may change; then all are tried.
FOUND_BY: dict[Plant, int] = {
    trimmed_log_skipped: 48,
    off_by_one_inside_a_commit: 13,
    saved_without_epoch: 6,
}


def main(seeds: int) -> None:
    """Print the table."""
    logging.disable()  # of what goes wrong on purpose
    for plant in WORKER_PLANTS:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            found = (seed for seed in range(seeds) if sweep([seed], shared=True).failures)
            print(f"{plant.__name__:30} first seed {next(found, 'none')}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
