"""The history of one decision, read from a journal by its index."""

from __future__ import annotations

from belated.core.ids import key_of, partition_of, time_of
from belated.core.rewards import Rewards
from belated.fold.decision_history import DecisionHistory
from belated.fold.undone import Undone
from belated.journals import Journal


def read_history(
    journal: Journal,
    id: str,
    rewards: Rewards,
    *,
    min_reward: float,
    max_reward: float,
    retention: int | None,
) -> DecisionHistory:
    """Return what the records of a decision come to, by the rules of the ledger.

    Args:
        journal: where the records are.
        id: of the decision.
        rewards: what silence means.
        min_reward: the least reward that counts.
        max_reward: the greatest.
        retention: for how long after its record a decision takes rewards, in microseconds.
    """
    # First these: what they settle must not be settled without a record that came before.
    settles = rewards.window_us is not None or retention is not None
    partition = partition_of(key_of(id), journal.partitions)
    records = journal.settlements(partition) if settles else []
    records += journal.records_of([id])
    history = DecisionHistory(
        id,
        rewards,
        min_reward=min_reward,
        max_reward=max_reward,
        retention=retention,
        undone=Undone.of(journal.undone(partition)),
    )
    for record in sorted(records, key=lambda one: one.position):
        history.take(record)
    if history.entry is not None:
        position = history.entry.position
        history.request = journal.requests(partition, [position]).get(position)
    # Nothing is told of a decision before it is made; the base that knows is too large to read.
    made = time_of(id) if history.decision is None else history.decision.at_us
    trimmed = journal.start(partition)
    history.incomplete = trimmed.position > 0 and (made is None or made <= trimmed.stamp)
    return history
