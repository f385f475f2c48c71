"""Bugs that are easily made, each as a change to the library: the simulator must find them all.

Run as a script it prints for each bug the first seed that finds it, and the share of seeds that do.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import pytest

from belated.events import Reward, Settled
from belated.journals import Journal, Snapshot
from belated.journals.log import Appended, Tail
from belated.journals.memory.coordination import MemoryCoordinationStore
from belated.learner import Fold, LearnerAdapter, trimming
from belated.ledger import Facts, Ledger, entries, entry_store, ledger, unmatched
from belated.ledger.table import handle_at
from belated.ledger.undone import Undone
from belated.ledger.unmatched import UnmatchedEvents
from tests.simulator import operators
from tests.simulator.disk import Disk
from tests.simulator.planted_service import (
    SERVICE_PLANTS,
    Plant,
    answers_mixed_up,
    unapplied_decisions_dropped,
)
from tests.simulator.session import SimulatedJournal
from tests.simulator.store import Store
from tests.simulator.sweep import sweep


def position_saved_before_state(patch: pytest.MonkeyPatch) -> None:
    """A snapshot says it holds all records there are, and holds those that were folded."""
    save = Fold.save

    def hasty(self: Fold, journal: Journal) -> None:
        reached = self.positions
        self.positions = [journal.end(partition) for partition in range(len(reached))]
        try:
            save(self, journal)
        finally:
            self.positions = reached

    patch.setattr(Fold, "save", hasty)


def dedup_forgotten_with_the_entry(patch: pytest.MonkeyPatch) -> None:
    """Entries are forgotten when they are settled, and with them what was told already."""
    forget = Ledger._forget
    patch.setattr(Ledger, "_forget", lambda self, retention: forget(self, 0))


def reward_before_decision_dropped(patch: pytest.MonkeyPatch) -> None:
    """What comes too early is not kept."""
    patch.setattr(UnmatchedEvents, "add", lambda self, key, event, recorded: "unmatched")


def revision_order_ignored(patch: pytest.MonkeyPatch) -> None:
    """What came last counts, whatever its revision."""
    meaning_of = entries.meaning_of

    def last(facts: Facts, reward: Reward) -> str:
        meaning = meaning_of(facts, reward)
        return "revised" if meaning == "superseded" else meaning

    patch.setattr(entries, "meaning_of", last)


def snapshot_without_its_tail(patch: pytest.MonkeyPatch) -> None:
    """Whoever starts from a snapshot reads no record that came after it."""
    load = Fold.load

    def content(self: Fold, journal: Journal) -> None:
        load(self, journal)
        if any(self.positions):
            for partition, chain in enumerate(self.chains):
                chain.add(journal.read(partition, max(0, journal.end(partition) - 1), 1))
                self.positions[partition] = chain.position

    patch.setattr(Fold, "load", content)


def watermark_beyond_the_stamp(patch: pytest.MonkeyPatch) -> None:
    """The clock of whoever settles is believed."""
    settled = Ledger._settled

    def gullible(self: Ledger, event: Settled, recorded: int) -> str:
        return settled(self, event, max(recorded, event.until))

    patch.setattr(Ledger, "_settled", gullible)


def default_not_subtracted(patch: pytest.MonkeyPatch) -> None:
    """A value that replaces another is added to it."""
    revise = LearnerAdapter.revise

    def additive(self: LearnerAdapter, number: int, value: float) -> None:
        learner = self.learner
        assert learner.observed.n  # which folds in what waits
        _, before = learner.observations[self.partition].get(
            handle_at(self.table.where[number - self.table.base])
        )
        revise(self, number, value + before)

    patch.setattr(LearnerAdapter, "revise", additive)


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


# --- at the boundaries ---------------------------------------------------------------------------


def window_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A reward at the very end of the window is late."""
    heard = Ledger._reward_heard

    def early(self: Ledger, number: int, reward: Reward, recorded: int) -> str:
        window = self._window
        self._window = None if window is None else window - 1
        try:
            return heard(self, number, reward, recorded)
        finally:
            self._window = window

    patch.setattr(Ledger, "_reward_heard", early)


def settled_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A decision is settled one microsecond before it is due."""
    judge, settle = entries.judge, Ledger._settle
    patch.setattr(
        entry_store, "judge", lambda facts, watermark, *more: judge(facts, watermark + 1, *more)
    )
    patch.setattr(Ledger, "_settle", lambda self, window: settle(self, window - 1))


def retention_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A reward at the very end of the retention is expired."""
    heard = Ledger._reward_heard

    def early(self: Ledger, number: int, reward: Reward, recorded: int) -> str:
        retention = self._retention
        self._retention = None if retention is None else retention - 1
        try:
            return heard(self, number, reward, recorded)
        finally:
            self._retention = retention

    patch.setattr(Ledger, "_reward_heard", early)


def lease_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A lease is over only after its end."""
    acquire = MemoryCoordinationStore.acquire_lease

    def late(self: MemoryCoordinationStore, holder: str, seconds: float) -> int | None:
        clock = self._clock
        self._clock = lambda: clock() - 1
        try:
            return acquire(self, holder, seconds)
        finally:
            self._clock = clock

    patch.setattr(MemoryCoordinationStore, "acquire_lease", late)


def duplicate_unmatched_reward_counted(patch: pytest.MonkeyPatch) -> None:
    """A retry that comes before its decision is kept a second time."""
    take = entries.take_reward

    def twice(facts: Facts, reward: Reward, recorded: int) -> str:
        if reward.part in facts.parts:
            reward = msgspec.structs.replace(reward, part=f"{reward.part} again")
        return take(facts, reward, recorded)

    patch.setattr(unmatched, "take_reward", twice)


# --- in the glue of the service ------------------------------------------------------------------


def second_decision_taken(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks under the lock whether an id has a decision."""
    patch.setattr(
        SimulatedJournal,
        "append_unique",
        lambda self, events, ids, requests=None: Appended(
            self.append(events, requests=requests), {}
        ),
    )


def last_value_counts(patch: pytest.MonkeyPatch) -> None:
    """Of two values for one part and revision the later one replaces the first."""
    take = entries.take_reward

    def later(facts: Facts, reward: Reward, recorded: int) -> str:
        meaning = take(facts, reward, recorded)
        if meaning == "conflict":
            facts.parts[reward.part].value = reward.value
        return meaning

    patch.setattr(ledger, "take_reward", later)


def trimmed_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """The first record behind a base is dropped with those before it."""
    start = Store.start

    def beyond(self: Store, partition: int) -> Tail:
        position, stamp = start(self, partition)
        return Tail(position + bool(position), stamp)

    drop = Store.drop

    def greedy(self: Store, partition: int, limit: int) -> int:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Store, "start", beyond)
            return drop(self, partition, limit)

    patch.setattr(Store, "drop", greedy)


def base_without_what_was_undone(patch: pytest.MonkeyPatch) -> None:
    """A base is made as if nothing had ever been undone."""
    make = trimming.make_bases

    def unaware(journal: Journal, fold: Fold, *rest: Any) -> list[Snapshot]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Undone, "status_of", lambda self, record: None)
            return make(journal, fold, *rest)

    patch.setattr(operators, "make_bases", unaware)


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
    window_off_by_one,
    settled_off_by_one,
    retention_off_by_one,
    lease_off_by_one,
    duplicate_unmatched_reward_counted,
    second_decision_taken,
    last_value_counts,
    trimmed_one_too_many,
    base_without_what_was_undone,
    *SERVICE_PLANTS,
]
#: Seeds that find what few do: they are tried first. The simulator may change; then all are tried.
FOUND_BY: dict[Plant, int] = {
    window_off_by_one: 53,
    retention_off_by_one: 59,
    answers_mixed_up: 33,
    unapplied_decisions_dropped: 59,
    base_without_what_was_undone: 48,
}


def main(seeds: int) -> None:
    """Print the table."""
    logging.disable()  # of what goes wrong on purpose
    for plant in PLANTS:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            found = list(sweep(range(seeds)).failures)
        first = found[0] if found else "none"
        share = len(found) / seeds
        line = f"{plant.__name__:36} first seed {first:>4}, {share:4.0%} of {seeds}"
        print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
