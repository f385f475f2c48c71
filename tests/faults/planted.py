"""Bugs that are easily made, each as a change to the library: the simulator must find them all.

Run as a script it prints for each bug the first seed that finds it, and the share of seeds that do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
import pytest

from belated.events import Settled
from belated.journals import Journal
from belated.learner import Account
from belated.learner.fold import Fold
from belated.ledger import Ledger, Told, entries
from belated.ledger.parked import Parked
from belated.rewards import Rewards
from belated.testing.simulator import sweep
from belated.testing.simulator.disk import Disk
from belated.testing.simulator.store import Store

Plant = Callable[[pytest.MonkeyPatch], None]


def position_saved_before_state(patch: pytest.MonkeyPatch) -> None:
    """A snapshot says it holds all records there are, and holds those that were folded."""
    save = Fold.save

    def hasty(self: Fold, journal: Journal, *, whole: bool = False) -> None:
        reached = self.positions
        self.positions = [journal.end(partition) for partition in range(len(reached))]
        try:
            save(self, journal, whole=whole)
        finally:
            self.positions = reached

    patch.setattr(Fold, "save", hasty)


def dedup_forgotten_with_the_entry(patch: pytest.MonkeyPatch) -> None:
    """Entries are forgotten when they are settled, and with them what was told already."""
    forget = Ledger._forget
    patch.setattr(Ledger, "_forget", lambda self, retention: forget(self, 0))


def reward_before_decision_dropped(patch: pytest.MonkeyPatch) -> None:
    """What comes too early is not kept."""
    patch.setattr(Parked, "add", lambda self, key, event, recorded: True)


def revision_order_ignored(patch: pytest.MonkeyPatch) -> None:
    """What came last counts, whatever its revision."""
    value_of = entries.value_of

    def last(told: Sequence[Told], rewards: Rewards) -> tuple[float, bool]:
        parts = {one.part: msgspec.structs.replace(one, revision=0) for one in told}
        return value_of(list(parts.values()), rewards)

    patch.setattr(entries, "value_of", last)


def snapshot_without_its_tail(patch: pytest.MonkeyPatch) -> None:
    """Whoever starts from a snapshot reads no record that came after it."""
    load = Fold.load

    def content(self: Fold, journal: Journal) -> None:
        load(self, journal)
        if any(self.positions):
            self.positions = [journal.end(partition) for partition in range(len(self.positions))]

    patch.setattr(Fold, "load", content)


def watermark_beyond_the_stamp(patch: pytest.MonkeyPatch) -> None:
    """The clock of whoever settles is believed."""
    settled = Ledger._settled

    def gullible(self: Ledger, event: Settled, recorded: int) -> str:
        return settled(self, event, max(recorded, event.until))

    patch.setattr(Ledger, "_settled", gullible)


def default_not_subtracted(patch: pytest.MonkeyPatch) -> None:
    """A value that replaces another is added to it."""
    revise = Account.revise

    def additive(self: Account, number: int, value: float) -> None:
        learner = self.learner
        assert learner.observed.n  # which folds in what waits
        _, before = learner.observations[self.lane].get(self._columns.handle[number - self.base])
        revise(self, number, value + before)

    patch.setattr(Account, "revise", additive)


def two_owners_of_one_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the owner who saves is still the owner."""
    patch.setattr(Store, "check_owner", lambda self, partition, epoch: None)


def reader_passes_over_a_transaction(patch: pytest.MonkeyPatch) -> None:
    """Whatever is synced is shown at once, also where something before it is not finished."""

    def eager(self: Store, partition: int) -> None:
        unseen = self._unseen[partition]
        for one in [one for one in unseen if one.state != "open"]:
            unseen.remove(one)
            self._show(one)
        self._streams[partition].sort(key=lambda record: record.position)

    patch.setattr(Store, "_publish", eager)


def spool_not_synced(patch: pytest.MonkeyPatch) -> None:
    """What waits on the local disk is acknowledged before it is safe."""
    patch.setattr(Disk, "sync", lambda self: None)


PLANTS: list[Plant] = [
    position_saved_before_state,
    dedup_forgotten_with_the_entry,
    reward_before_decision_dropped,
    revision_order_ignored,
    snapshot_without_its_tail,
    watermark_beyond_the_stamp,
    default_not_subtracted,
    two_owners_of_one_snapshot,
    reader_passes_over_a_transaction,
    spool_not_synced,
]


def main(seeds: int) -> None:
    """Print the table."""
    for plant in PLANTS:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            found = list(sweep(range(seeds)).failures)
        first = found[0] if found else "none"
        print(f"{plant.__name__:34} first seed {first:>4}, {len(found) / seeds:4.0%} of {seeds}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
