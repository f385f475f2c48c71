"""Invariants that must hold, whatever happened.

* **H**: the live state equals a replay of the journal.
* **X**: everything acknowledged is recorded, everything recorded was sent, and each counts once.
* **C**: every decision is in one state, and the model has exactly the pending ones.
* **L**: once the faults have stopped, all agree: with each other and with the rules as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated.core.events import (
    Activation,
    Decision,
    Record,
    Reward,
    SubjectDecision,
    SubjectReward,
    Void,
    encode,
)
from belated.core.ids import key_of
from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import ConversionsOnly, retention_us
from belated.core.times import duration_us
from belated.fold.contexts import NAME
from belated.fold.fold import Fold, same_sums
from belated.fold.learner import Learner
from belated.fold.requests import KeptRequest
from belated.fold.undone import Undone
from belated.fold.weighting import HalfLife
from belated.journals.pages import ColumnPage
from belated.model.blocks import cross, gram
from belated.model.estimators import Estimate, Laplace, Online, Thinned
from belated.model.estimators.conversion_law import Conversions
from belated.model.estimators.thinned import AgedDecisions, DecidedRows
from belated.model.estimators.weighted import Weighted, WeightedRows
from belated.model.families import Gaussian
from belated.model.kernels import MAX_WEIGHT, PageKernels, pages
from belated.model.statistics import Observations, Seen
from tests.simulator.oracle import Oracle, Outcome
from tests.simulator.releases import row_of
from tests.simulator.world import PLAIN, DecisionRequest, World

#: The page kernel as plain Python.
PAGES = PageKernels(pages.crc_all, pages.fold_page)
#: Estimates agree to the tolerance of their fits.
ESTIMATES = 1e-5
#: The resolution of stamps, in microseconds: ages and delays are one longer.
TICK = 1
#: Half-lives after which a decision is left out of a fit.
REACH = 12


class Disagreement(AssertionError):
    """An invariant does not hold: one of H, X, C and L."""


def check_counts(who: str, fold: Fold) -> None:
    """C: decisions = dormant + pending + rewarded + defaulted + censored + voided."""
    counts, model, pending = fold.counts, fold.model, fold.counts["pending"]
    _same("C", who, "decisions", sum(counts.values()), fold.counters.get("decided", 0))
    _same("C", who, "events", sum(fold.counters.values()), fold.version)
    if fold.features is None:
        _same("C", who, "n", model.n, counts["rewarded"] + counts["defaulted"])
    else:  # of some decisions the features make no row
        ledgers = fold.ledgers.items()
        pending = sum(len(fold.adapters[n].with_rows(ledger.awaited())) for n, ledger in ledgers)
    _same("C", who, "G_t", model.pending, pending)


def check_replay(world: World, who: str, fold: Fold) -> None:
    """H: a fold equals a replay of the records up to its positions."""
    check_counts(who, fold)
    # It may already know what is undone after its positions.
    undone = [ledger.undone for ledger in fold.ledgers.values()]
    check_same("H", who, fold, replayed(world, fold.positions, undone, fold))


def check_same(law: str, who: str, fold: Fold, other: Fold) -> None:
    """Compare two folds of the same records: ledgers exactly, sums to rounding."""
    for name in ("positions", "version", "counts", "counters", "digest", "actions", "chosen"):
        _same(law, who, name, getattr(fold, name), getattr(other, name))
    if not same_sums(fold, other, 1e-9):
        raise Disagreement(f"{law}: {who} has other sums")


def replayed(
    world: World,
    positions: Sequence[int],
    undone: Sequence[Undone | None] = (),
    like: Fold | None = None,
) -> Fold:
    """Fold all records up to these positions, one by one and from the beginning.

    Args:
        world: with the records.
        positions: the last of each partition.
        undone: what no longer counts in each; by default what these records undo.
        like: a fold with the features to use; by default those of the current release.
    """
    fold = empty_fold(world)
    if like is not None and like.features is not fold.features:
        fold = Fold(**fold_settings(world) | {"policy": like.policy, "features": like.features})
    for partition, position in enumerate(positions):
        records = [
            record for record in world.store.records(partition) if record.position <= position
        ]
        fold.ledgers[partition].undone = undone[partition] if undone else Undone.of(records)
        for record in records:
            fold.take(record)
    return fold


def empty_fold(world: World, **options: Any) -> Fold:
    """Return a fold of nothing, with the settings of the run."""
    return Fold(**fold_settings(world), **options)


def fold_settings(world: World) -> dict[str, Any]:
    """Return the arguments of every fold of a run."""
    settings = world.settings
    return {
        "policy": world.policy,
        "features": world.features,
        "rewards": settings.rewards,
        "partitions": settings.partitions,
        "retention": retention_us(settings.retention, settings.rewards),
        "kernels": PLAIN,
    }


def check_pages(world: World, replay: Fold) -> None:
    """L: what the page kernel accepts, it folds by the rules.

    Args:
        world: with the records.
        replay: of all of them, one by one.
    """
    fold, rng = empty_fold(world), world.stream("pages of the kernel")
    for partition, records in enumerate(world.records):
        ledger = fold.ledgers[partition]
        if ledger.withholds or not fold.learner.weighting.takes_pages:
            return
        ledger.undone = Undone.of(records)
        with fold.learner.bulk():
            size = rng.choice([1, 3, 1000])
            for start in range(0, len(records), size):
                page = ColumnPage.of_records(records[start : start + size])
                fold.take_columns(partition, page, PAGES)
    check_same("L", "the page kernel", fold, replay)


def check_halted(world: World, fold: Fold) -> None:
    """H: a fold that met an unreadable record is at most a page before it."""
    world.faults.see("fold halted at a record")
    page = 1 + max(fold.tuning.page, fold.tuning.follow)
    next_places = [
        (partition, record.position)
        for partition, p in enumerate(fold.positions)
        for record in [r for r in world.store.records(partition) if r.position >= p][:page]
    ]
    if not fold.version and world.store.veiled:
        return  # loading a snapshot reads the records of its last link
    if not any(place in world.store.veiled for place in next_places):
        raise Disagreement(f"H: a fold halted at {fold.positions}, before {next_places}")


class Expected(NamedTuple):
    """The expected state of records, by the rules as they are written.

    Attributes:
        oracles: by partition.
        now: the stamp of the last record.
    """

    oracles: list[Oracle]
    now: int


def expected_of(fold: Fold, records: Sequence[Sequence[Record]]) -> Expected:
    """Return the expected state of records, by the rules of a fold.

    Args:
        fold: that has folded the records, or others like it.
        records: by partition.
    """
    oracles = [
        Oracle(
            stream,
            rewards=fold.rewards,
            min_reward=fold.min_reward,
            max_reward=fold.max_reward,
            retention=fold.retention,
        )
        for stream in records
    ]
    return Expected(oracles, max((record.recorded for record in chain(*records)), default=0))


def check_oracle(fold: Fold, expected: Expected) -> None:
    """L: states, values and sums are those of the rules as they are written.

    Args:
        fold: to be checked.
        expected: of the records that it has folded.
    """
    oracles = expected.oracles
    for oracle, ledger in zip(oracles, fold.ledgers.values(), strict=True):
        pending = {key_of(id) for id in oracle.pending}
        _same("L", "the oracle", "pending", {key for key, _ in ledger.pending()}, pending)
        for id, outcome in oracle.entries.items():
            entry = ledger.entry(id)
            actual = entry and (entry.state, entry.value, entry.late, entry.conflict)
            expected_state = outcome.state, outcome.value, outcome.late, outcome.conflict
            _same("L", "the oracle", id, actual, expected_state)
    counts = {state: sum(oracle.counts[state] for oracle in oracles) for state in fold.counts}
    _same("L", "the oracle", "counts", fold.counts, counts)
    unmatched = sum(oracle.unmatched for oracle in oracles)
    _same("L", "the oracle", "unmatched events", fold.counters.get("unmatched", 0), unmatched)
    # Computed naively, without the learner's own sums.
    outcomes = _with_rows(fold, [outcome for oracle in oracles for outcome in oracle.learned])
    policy = fold.learner.policy
    X = _rows(fold, outcomes).astype(np.float64)
    y = np.array([outcome.value for outcome in outcomes], float)
    y = np.clip(y, policy.family.support.lower, policy.family.support.upper)
    moments = fold.learner.observed.moments()
    _same("L", "the oracle", "n", moments.n, len(y))
    sums = {
        "gram": gram(X, None, policy.shape),
        "cross": cross(y, X, policy.shape),
        "square": y @ y,
    }
    for name, expected_sum in sums.items():
        fold_sum = getattr(moments, name)
        if not np.allclose(fold_sum, expected_sum, rtol=1e-9, atol=1e-9 * max(1.0, y @ y)):
            raise Disagreement(f"L: the oracle has another {name}: {expected_sum}, not {fold_sum}")


def check_estimate(who: str, fold: Fold, expected: Expected) -> None:
    """L: the estimate and the pending information are those of what the oracle has learned.

    Args:
        who: has the fold.
        fold: to be checked.
        expected: of the records that it has folded.
    """
    policy, learner = fold.policy, fold.learner
    oracles, now = expected
    outcomes = _with_rows(fold, [outcome for oracle in oracles for outcome in oracle.learned])
    entries = [outcome for oracle in oracles for outcome in oracle.entries.values()]
    pending = _with_rows(fold, [outcome for outcome in entries if outcome.state == "pending"])
    # Rows may be frozen at the estimate of their time, by whoever saved the snapshot that was
    # loaded; and Online depends on the order of rewards.
    frozen = any(store.frozen is not None for store in learner.observations)
    exact = not frozen and not isinstance(policy.estimator, Online)
    if exact or not learner.weighting.adds or isinstance(policy.family, Gaussian):
        estimate, expected_estimate = learner.estimate, _estimate(fold, outcomes, pending, now)
        _close(who, "theta", estimate.theta, expected_estimate.theta)
        _close(who, "precision", estimate.precision, expected_estimate.precision)
    if not isinstance(fold.rewards, ConversionsOnly):  # which keeps no sum of pending decisions
        actual = _learned_outstanding(learner, now)
        _close(who, "what is pending", actual, _outstanding(fold, pending, now))


def _close(who: str, what: str, found: Matrix, wanted: Matrix) -> None:
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    if not np.allclose(found, wanted, rtol=ESTIMATES, atol=ESTIMATES * scale):
        raise Disagreement(f"L: {who}: {what} is {found}, and should be {wanted}")


def _learned_outstanding(learner: Learner, now: int) -> Matrix:
    """Return the information of pending decisions as the learner has summed it."""
    learner.fold_in()
    weighting = learner.weighting
    if not isinstance(weighting, HalfLife):
        return weighting.pending.matrix
    total = weighting.track.pending
    assert total is not None
    return total.at(now)


def _outstanding(fold: Fold, pending: list[Outcome], now: int) -> Matrix:
    """Return the information of pending decisions, each with the weight of its predicted mean."""
    family = fold.policy.family
    rows = _rows(fold, pending).astype(np.float64)
    weights = _weights(fold, pending, now)
    if family.dispersion is not None:  # otherwise the sum is divided by φ when it is used
        slopes = np.array([family.slope_at(outcome.decision.mean) for outcome in pending])
        weights = weights * np.minimum(slopes / family.dispersion, MAX_WEIGHT)
    return gram(rows, weights, fold.policy.shape)


def _estimate(fold: Fold, learned: list[Outcome], pending: list[Outcome], now: int) -> Estimate:
    """Fit what the oracle has learned, each decision by its age."""
    policy, rewards, half_life = fold.policy, fold.rewards, fold.policy.half_life_us
    outcomes = [*learned, *pending] if isinstance(rewards, ConversionsOnly) else learned
    if half_life is not None:
        oldest = now - REACH * half_life
        outcomes = [outcome for outcome in outcomes if outcome.began > oldest]
    rows, weights = _rows(fold, outcomes), _weights(fold, outcomes, now)
    y = np.array([outcome.value or 0.0 for outcome in outcomes])
    y = np.clip(y, policy.family.support.lower, policy.family.support.upper)
    options: Any = {"family": policy.family, "prior": policy.start, "polish": True}
    if isinstance(rewards, ConversionsOnly):
        assert rewards.window_us is not None
        began = np.array([outcome.began for outcome in outcomes], np.int64)
        converted = np.array([outcome.converted or 0 for outcome in outcomes], np.int64)
        delays = converted - began
        mask = (converted > 0) & (delays <= rewards.window_us)
        age = (now - began + TICK) / rewards.window_us
        delay = (np.maximum(delays, 0) + TICK)[mask] / rewards.window_us
        law = Conversions(delay, np.zeros(len(delay)), np.minimum(age, 1.0)[mask], weights[mask])
        parts = [DecidedRows(rows, y, age, weights)]
        return Thinned().fit(
            AgedDecisions(policy.shape, parts, law, TICK / rewards.window_us), **options
        )
    data: Seen = Weighted(policy.shape, [WeightedRows(rows, y, weights)])
    if half_life is None:
        data = Observations(policy.shape)
        data.extend(rows, y)
    # Steps of Gaussian rewards are exact, unless their variance or the prior is estimated.
    is_known = isinstance(policy.family, Gaussian) and policy.family.dispersion is not None
    exact = is_known and not policy.start.adaptive
    return (Laplace() if exact else policy.estimator).fit(data, **options)


def _weights(fold: Fold, outcomes: list[Outcome], now: int) -> Vector:
    """Return the weights of decisions by their age."""
    half_life = fold.policy.half_life_us
    if half_life is None:
        return np.ones(len(outcomes))
    began = np.array([outcome.began for outcome in outcomes], np.int64)
    return np.asarray(np.exp2((began - now) / half_life))


def _rows(fold: Fold, outcomes: list[Outcome]) -> Row:
    rows = [row_of(fold.features, outcome.decision) for outcome in outcomes]
    return np.array(rows, np.float32).reshape(-1, fold.policy.row_width)


def _with_rows(fold: Fold, outcomes: list[Outcome]) -> list[Outcome]:
    """Return those for which the features make a row."""
    return [outcome for outcome in outcomes if row_of(fold.features, outcome.decision) is not None]


def check_acknowledged(world: World) -> None:
    """X: acknowledged ⊆ recorded ⊆ sent."""
    kinds = Decision, Activation, Reward, SubjectReward, Void
    events = [record.event for record in chain(*world.records) if isinstance(record.event, kinds)]
    recorded_contents = {_content(event) for event in events}
    subjects = {
        (record.event.subject, record.event.decision)
        for record in chain(*world.records)
        if isinstance(record.event, SubjectDecision)
    }
    for request, answer in world.acknowledged:
        for event in answer if isinstance(answer, list) else [request]:
            if _content(event) not in recorded_contents:
                raise Disagreement(f"X: {event} was acknowledged, and is not in the journal")
        subject = request.subject if isinstance(request, DecisionRequest) else None
        if subject is not None and isinstance(answer, list):
            for decision in answer:
                is_linked = (subject, decision.id) in subjects
                if not is_linked and decision.id not in _rivals(world):
                    raise Disagreement(f"X: the subject of {decision} is not in the journal")
    sent_contents = {_content(item) for item in world.sent if not isinstance(item, DecisionRequest)}
    names = {item.name for item in world.sent if isinstance(item, DecisionRequest)}
    for event in events:
        is_decided = isinstance(event, Decision) and (event.id in names or len(event.id) == 32)
        if not is_decided and _content(event) not in sent_contents:
            raise Disagreement(f"X: {event} is in the journal, and nobody sent it")


def check_names(world: World) -> None:
    """X: one decision is made under a name, however often it is requested."""
    if world.settings.spooled:
        return  # a spool cannot see what other processes do
    skipped_ids = _rivals(world) | world.store.forgotten  # forgotten names can be used again
    ids: set[str] = set()
    for record in chain(*world.records):
        event = record.event
        if isinstance(event, Decision) and event.id not in skipped_ids:
            if event.id in ids:
                raise Disagreement(f"X: {event} was made after another")
            ids.add(event.id)


def _rivals(world: World) -> set[str]:
    """Return the ids under which a writer appends decisions, bypassing all deciders."""
    return {event.id for event in world.sent if isinstance(event, Decision)}


def check_one_answer(world: World, name: str, answer: Any) -> None:
    """X: every request for a decision under a name gets the same one."""
    if world.settings.spooled:
        return  # a spool cannot see what other processes do
    if world.settings.retention is not None and name in _rivals(world):
        return  # a rival becomes valid once the first decision is forgotten
    if name in world.store.forgotten:
        return
    (decision,) = answer
    data = encode(decision)
    if world.answered.setdefault(name, data) != data:
        raise Disagreement(f"X: {decision} was answered, and before it another")


def check_sticky(request: DecisionRequest, decision: Decision, now: int) -> None:
    """X: a sticky decision is returned within its time only.

    Args:
        request: for a decision.
        decision: that was returned.
        now: by the clock of the decider, while it was asked.
    """
    if request.sticky is not None and decision.at_us + duration_us(request.sticky) <= now:
        raise Disagreement(f"X: {decision} was returned after {request.sticky}")


def check_stamps(world: World) -> None:
    """H: stamps never decrease, and positions increase."""
    for records in world.records:
        for record, next_record in pairwise(records):
            if next_record.position <= record.position or next_record.recorded < record.recorded:
                raise Disagreement(f"H: {next_record} is out of order")


def check_requests(world: World) -> None:
    """X: each decision of a decider is stored with the request it was chosen from."""
    rivals = _rivals(world)
    for partition in world.partitions:
        records = {record.position: record.event for record in world.store.readable(partition)}
        requests = world.store.requests(partition, list(records))
        for position, event in records.items():
            if not isinstance(event, Decision) or event.id in rivals:
                continue
            data = requests.get(position)
            request = None if data is None else KeptRequest.read(data)
            rows = None if request is None else request.rows
            if request is not None and world.features is not None:
                continue  # the context is in the record
            if request is None or rows is None:
                raise Disagreement(f"X: {event} was stored without its request")
            if not np.array_equal(rows[request.place(event.index, event.action)], event.x):
                raise Disagreement(f"X: {event} was not chosen from {rows}")


def check_lineage(world: World) -> None:
    """L: an owner that was superseded saves no more snapshots."""
    latest: dict[int, int] = {}
    for partition, epoch, _ in world.store.lineage:
        if epoch < latest.get(partition, 0):
            raise Disagreement(f"L: two owners wrote the snapshot of partition {partition}")
        latest[partition] = epoch


def _content(event: object) -> object:
    """Return the content of an event without the time of the report: retries are equal."""
    if isinstance(event, Decision):
        # A decider remembers its decisions without their contexts.
        return encode(msgspec.structs.replace(event, context=event.context[:NAME]))
    if isinstance(event, Reward):
        return event.id, event.part, event.revision, repr(event.value)
    if isinstance(event, SubjectReward):
        return event.subject, event.event_id, repr(event.value)
    assert isinstance(event, Activation | Void), event
    return type(event).__name__, event.id


def _same(law: str, who: str, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Disagreement(f"{law}: {who}: {what} is {found}, and should be {wanted}")
