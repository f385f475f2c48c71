"""What must hold where several learners share the partitions of a bandit.

* **M**: a published model is what a replay comes to at its positions.
* **O**: of each partition the sums with the highest epoch, then position, count.
* **W**: one worker has a partition at a time; whoever has it no longer saves nothing of it.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from belated.events import Decision, Erased, Record, Retracted, Reward
from belated.families import Gaussian
from belated.inputs import Matrix
from belated.learner import Fold
from belated.learner.partitioned import Merging, PartitionSums
from belated.learner.partitioned.merging import merged_estimate
from belated.ledger import State
from belated.ledger.undone import Undone
from belated.published import PublishedModel
from belated.statistics import FrozenSums, Information
from tests.simulator.checks import Disagreement, replayed
from tests.simulator.world import World

#: Sums agree to rounding, and so do estimates that are made of them.
SUMS, ESTIMATES = 1e-9, 1e-6
#: Digits of the fingerprint of a fold; behind them is what it knew to be undone.
_FINGERPRINT = 32


def check_merged(world: World, merging: Merging, model: PublishedModel) -> None:
    """M: counts exactly, sums and the estimate to rounding.

    Args:
        world: with the records.
        merging: what the model was made of.
        model: that was published.
    """
    entries = [merging.entries[partition] for partition in range(world.knobs.partitions)]
    if model.positions != [entry.position for entry in entries]:
        raise Disagreement(f"M: the model says {model.positions}, and was made of others")
    undone = [_undone(world, entry) for entry in entries]
    replay = replayed(world, model.positions, undone)
    policy, total = replay.policy, FrozenSums.zero(replay.policy.dim)
    for entry in entries:
        total += _check_entry(entry, replay)
    found = model.version, model.n, model.pending, model.decisions
    wanted = replay.version, replay.model.n, replay.model.pending, replay.model.decisions
    if found != wanted:
        raise Disagreement(f"M: the model counts {found}, and a replay {wanted}")
    if _is_exact(world):
        theta, wanted_theta = model.model(policy).theta, merged_estimate(policy, total).theta
        if not np.allclose(theta, wanted_theta, rtol=ESTIMATES, atol=ESTIMATES):
            raise Disagreement(f"M: the estimate is {theta}, and that of a replay {wanted_theta}")


def _undone(world: World, entry: PartitionSums) -> Undone | None:
    """What its maker knew to be undone: maybe more than is said up to its position."""
    acts = [
        one
        for one in world.store.records(entry.partition)
        if isinstance(one.event, Erased | Retracted)
    ]
    known = entry.fingerprint[_FINGERPRINT:]
    # What was restored is as it was before: of several states that are alike, it was the latest.
    for count in range(len(acts), -1, -1):
        undone = Undone.of(acts[:count])
        if known == ("" if undone is None else undone.digest):
            return undone
    raise Disagreement(f"M: partition {entry.partition} knows of what nobody has undone")


def _check_entry(entry: PartitionSums, replay: Fold) -> FrozenSums:
    """Compare the entry of a partition; returns what its rewards come to in the replay."""
    partition, policy = entry.partition, replay.policy
    ledger = replay.ledgers[partition]
    counts = {state.name.lower(): ledger.counts[state] for state in State}
    counters = {status: count for status, count in ledger.counters.items() if count}
    if (entry.counts, entry.counters) != (counts, counters):
        told = f"{entry.counts}, {entry.counters}"
        raise Disagreement(f"M: partition {partition} counts {told}, not {counts}, {counters}")
    assert replay.learner.observed  # which folds in what waits
    store = replay.learner.observations[partition]
    wanted, found = store.sums_at(policy.family, entry.center), entry.arrived()
    same = found.n == wanted.n
    for name in ("gram", "cross", "square"):
        same &= _alike(getattr(found.moments, name), getattr(wanted.moments, name))
    if not same:
        raise Disagreement(f"M: partition {partition} has other sums of rewards")
    if not _alike(entry.outstanding().matrix, _outstanding(replay, partition)):
        raise Disagreement(f"M: partition {partition} has other sums of pending decisions")
    return wanted


def _outstanding(replay: Fold, partition: int) -> Matrix:
    """The information of what is pending, from the rows themselves."""
    policy, adapter = replay.policy, replay.adapters[partition]
    numbers = replay.ledgers[partition].numbers(State.PENDING)
    rows, _ = adapter.rows_of(numbers)
    weights = adapter.table.column("weight")[numbers - adapter.table.base]
    plain = policy.metric == "gram" or policy.family.dispersion is None
    return Information.of(rows, np.ones(len(rows)) if plain else weights).matrix


def _alike(one: Matrix | float, other: Matrix | float) -> bool:
    scale = max(1.0, float(np.abs(other).max(initial=0.0)))
    return bool(np.allclose(one, other, rtol=SUMS, atol=SUMS * scale))


def _is_exact(world: World) -> bool:
    """Whether no row is frozen at an estimate of its time."""
    knobs = world.knobs
    return isinstance(knobs.policy.family, Gaussian) or knobs.tuning.exact >= 100_000


def check_slots(world: World) -> None:
    """X: every record lies in the partition that its id names, whoever wrote it."""
    partitions = world.knobs.partitions
    for partition in range(partitions):
        for record in world.store.records(partition):
            if isinstance(record.event, Decision | Reward):
                slot = _slot(record)
                if slot % partitions != partition:
                    raise Disagreement(f"X: {record.event} lies in partition {partition}: {slot}")


def _slot(record: Record) -> int:
    """As the format of ids says it."""
    assert isinstance(record.event, Decision | Reward)
    id = record.event.id
    if len(id) == 32 and id[12] == "7" and not set(id) - set("0123456789abcdef"):
        return int(id[13:16], 16)
    key = blake2b(id.encode(), digest_size=16).hexdigest()
    return int(key[13:16], 16)
