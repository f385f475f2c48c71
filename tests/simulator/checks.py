"""What must hold, whatever happened.

* **H**: what is live equals a replay of the journal.
* **X**: what was acknowledged is there, what is there was sent, and each counts once.
* **C**: every decision is in one state, and what is pending is what the model says.
* **L**: when the faults have stopped, all agree: with each other and with the rules as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from belated.events import Activation, Decision, Record, Reward, Void, encode
from belated.ids import key_of
from belated.learner import Fold, same_sums
from belated.ledger import KeptRequest
from belated.ledger.undone import Undone
from belated.rewards import retention_us
from tests.simulator.messages import DecisionRequest
from tests.simulator.oracle import Oracle
from tests.simulator.world import PLAIN, World


class Disagreement(AssertionError):
    """An invariant does not hold: one of H, X, C and L."""


def check_counts(who: str, fold: Fold) -> None:
    """C: decisions = dormant + pending + rewarded + defaulted + censored + voided."""
    counts, model = fold.counts, fold.model
    _same("C", who, "decisions", sum(counts.values()), fold.counters.get("decided", 0))
    _same("C", who, "events", sum(fold.counters.values()), fold.version)
    _same("C", who, "G_t", model.pending, counts["pending"])
    _same("C", who, "n", model.n, counts["rewarded"] + counts["defaulted"])


def check_replay(world: World, who: str, fold: Fold) -> None:
    """H: what a fold holds is what the records up to its positions come to."""
    check_counts(who, fold)
    # It may know what is undone beyond its positions already.
    undone = [ledger.undone for ledger in fold.ledgers.values()]
    check_same("H", who, fold, replayed(world, fold.positions, undone))


def check_same(law: str, who: str, one: Fold, other: Fold) -> None:
    """Two folds of the same records: ledgers exactly, sums to rounding."""
    for what in ("positions", "version", "counts", "counters", "digest"):
        _same(law, who, what, getattr(one, what), getattr(other, what))
    if not same_sums(one, other, 1e-9):
        raise Disagreement(f"{law}: {who} has other sums")


def replayed(world: World, positions: Sequence[int], undone: Sequence[Undone | None] = ()) -> Fold:
    """All records up to these positions, one by one and from the beginning.

    Args:
        world: with the records.
        positions: the last of each partition.
        undone: what counts no longer in each; by default as these records say.
    """
    fold = empty_fold(world)
    for partition, position in enumerate(positions):
        records = [one for one in world.store.records(partition) if one.position <= position]
        fold.ledgers[partition].undone = undone[partition] if undone else Undone.of(records)
        for record in records:
            fold.take(record)
    return fold


def empty_fold(world: World) -> Fold:
    """Nothing is known yet."""
    knobs = world.knobs
    return Fold(
        knobs.policy,
        knobs.rewards,
        partitions=knobs.partitions,
        retention=retention_us(knobs.retention, knobs.rewards),
        kernels=PLAIN,
    )


def check_halted(world: World, fold: Fold) -> None:
    """A fold that met a record it cannot read stands on it, or before it by less than a page."""
    world.faults.see("fold halted at a record")
    page = 1 + max(fold.tuning.page, fold.tuning.follow)
    ahead = [
        (partition, record.position)
        for partition, p in enumerate(fold.positions)
        for record in [r for r in world.store.records(partition) if r.position >= p][:page]
    ]
    if not fold.version and world.store.veiled:
        return  # to load a snapshot, the records of its last link are read
    if not any(place in world.store.veiled for place in ahead):
        raise Disagreement(f"H: a fold halted at {fold.positions}, before {ahead}")


def check_oracle(fold: Fold, records: Sequence[Sequence[Record]]) -> None:
    """L: states, values and sums are those of the rules as they are written.

    Args:
        fold: to be judged.
        records: that it has folded, of each partition.
    """
    oracles = [
        Oracle(
            one,
            rewards=fold.rewards,
            min_reward=fold.min_reward,
            max_reward=fold.max_reward,
            retention=fold.retention,
        )
        for one in records
    ]
    support = fold.learner.policy.family.support
    learned = []
    for oracle, ledger in zip(oracles, fold.ledgers.values(), strict=True):
        pending = {key_of(id) for id in oracle.pending}
        _same("L", "the oracle", "pending", {key for key, _ in ledger.pending()}, pending)
        for id, outcome in oracle.entries.items():
            entry = ledger.entry(id)
            found = entry and (entry.state, entry.value, entry.late, entry.conflict)
            wanted = outcome.state, outcome.value, outcome.late, outcome.conflict
            _same("L", "the oracle", id, found, wanted)
        learned += oracle.learned
    all_counts = [oracle.counts for oracle in oracles]
    counts = {state: sum(one[state] for one in all_counts) for state in fold.counts}
    _same("L", "the oracle", "counts", fold.counts, counts)
    unmatched = sum(oracle.unmatched for oracle in oracles)
    _same("L", "the oracle", "unmatched events", fold.counters.get("unmatched", 0), unmatched)
    # Plainly, with nothing of what the learner adds up with.
    X = np.array([one.decision.x for one in learned], dtype=np.float64)
    X = X.reshape(-1, fold.learner.policy.dim)
    y = np.clip(np.array([one.value for one in learned], float), support.lower, support.upper)
    mine = fold.learner.observed.moments()
    _same("L", "the oracle", "n", mine.n, len(y))
    for what, wanted in {"gram": X.T @ X, "cross": y @ X, "square": y @ y}.items():
        found = getattr(mine, what)
        if not np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * max(1.0, y @ y)):
            raise Disagreement(f"L: the oracle has another {what}: {wanted}, not {found}")


def check_acknowledged(world: World) -> None:
    """X: acknowledged ⊆ recorded ⊆ sent."""
    records = [record for p in range(world.knobs.partitions) for record in world.store.records(p)]
    told = Decision, Activation, Reward, Void
    records = [one for one in records if isinstance(one.event, told)]
    recorded = {_said(record.event) for record in records}
    for what, answer in world.acknowledged:
        for safe in answer if isinstance(answer, list) else [what]:
            if _said(safe) not in recorded:
                raise Disagreement(f"X: {safe} was acknowledged, and is not in the journal")
    sent = {_said(what) for what in world.sent if not isinstance(what, DecisionRequest)}
    names = {what.name for what in world.sent if isinstance(what, DecisionRequest)}
    for record in records:
        event = record.event
        if _said(event) in sent:
            continue
        if not isinstance(event, Decision) or (event.id not in names and len(event.id) != 32):
            raise Disagreement(f"X: {event} is in the journal, and nobody sent it")


def check_names(world: World) -> None:
    """X: under a name one decision is made, whoever asks, and how often."""
    knobs = world.knobs
    if knobs.spooled:
        return  # a spool cannot see what others do
    rivals = _rivals(world)
    seen: set[str] = set()
    for partition in range(knobs.partitions):
        for record in world.store.records(partition):
            event = record.event
            if not isinstance(event, Decision) or event.id in rivals:
                continue
            if event.id in world.store.forgotten:
                continue  # its name could be used again
            if event.id in seen:
                raise Disagreement(f"X: {event} was made after another")
            seen.add(event.id)


def _rivals(world: World) -> set[str]:
    """Ids under which somebody writes decisions past all deciders."""
    return {what.id for what in world.sent if isinstance(what, Decision)}


def check_one_answer(world: World, name: str, answer: Any) -> None:
    """X: whoever asks for a decision under a name, and whenever, is given the same one."""
    if world.knobs.spooled:
        return  # a spool cannot see what others do
    if world.knobs.retention is not None and name in _rivals(world):
        return  # what is written past all deciders counts anew once the first is forgotten
    if name in world.store.forgotten:
        return
    (decision,) = answer
    data = encode(decision)
    if world.answered.setdefault(name, data) != data:
        raise Disagreement(f"X: {decision} was answered, and before it another")


def check_stamps(world: World) -> None:
    """Stamps never decrease, and positions increase, in what readers see."""
    for partition in range(world.knobs.partitions):
        places = [(one.position, one.recorded) for one in world.store.records(partition)]
        for (position, stamp), (later, next_stamp) in pairwise(places):
            if later <= position or next_stamp < stamp:
                raise Disagreement(f"H: record {later} of partition {partition} is out of order")


def check_requests(world: World) -> None:
    """X: beside every decision that a decider made lies what it was chosen from."""
    rivals = _rivals(world)
    for partition in range(world.knobs.partitions):
        records = {one.position: one.event for one in world.store.readable(partition)}
        kept = world.store.requests(partition, list(records))
        for position, event in records.items():
            if not isinstance(event, Decision) or event.id in rivals:
                continue
            data = kept.get(position)
            rows = None if data is None else KeptRequest.read(data).rows
            if rows is None or not np.array_equal(rows[event.index], event.x):
                raise Disagreement(f"X: {event} was not chosen from {rows}")


def check_lineage(world: World) -> None:
    """One lineage of snapshots: who was superseded has saved nothing since."""
    latest: dict[int, int] = {}
    for partition, epoch, _ in world.store.lineage:
        if epoch < latest.get(partition, 0):
            raise Disagreement(f"L: two owners wrote the snapshot of partition {partition}")
        latest[partition] = epoch


def _said(what: object) -> object:
    """What an event says, without the time at which it was told: a retry says the same."""
    if isinstance(what, Decision):
        return encode(what)
    if isinstance(what, Reward):
        return what.id, what.part, what.revision, repr(what.value)
    assert isinstance(what, Activation | Void), what
    return type(what).__name__, what.id


def _same(law: str, who: str, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Disagreement(f"{law}: {who}: {what} is {found}, and should be {wanted}")
