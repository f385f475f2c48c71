"""Preview how changed features affect the decisions in a journal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from belated.exceptions import InvalidInput, JournalMismatch
from belated.expressions import as_features
from belated.features import PerArm, RandomFeatures, Shared
from belated.fold.contexts import fields_of
from belated.fold.fold import Fold
from belated.journals import Journal, SQLiteStore, Store
from belated.service.serving.definition import Definition

#: Number of records per sample, and number of samples per partition.
SAMPLE, PLACES = 2_000, 5


class FeatureChange(msgspec.Struct, frozen=True):
    """Differences between the features in a configuration and in a journal, and their effects.

    Attributes:
        bandit: Name of the bandit.
        changes: Descriptions of the changes; empty if the features match the journal.
        refused: Reason why the journal cannot be opened with these features; empty if it can.
        decisions: Estimated number of decisions to encode again.
        without_row: Estimated number of decisions that will have no row, so that the model does not
            learn from them, by reason.
        missing: Share of the decisions that lack a field, by field name.
        seconds: Estimated time to fold the journal again, in seconds.
        sampled: Number of sampled records on which the estimates are based.
    """

    bandit: str
    changes: list[str]
    refused: str = ""
    decisions: int = 0
    without_row: dict[str, int] = {}
    missing: dict[str, float] = {}
    seconds: float = 0.0
    sampled: int = 0

    def lines(self) -> Iterator[str]:
        """Yield a description of the change, line by line."""
        if not self.changes:
            yield f"{self.bandit}: features match the journal"
            return
        yield f"{self.bandit}: features change"
        yield from (f"  {change}" for change in self.changes)
        if self.refused:
            yield f"  refused: {self.refused}"
            return
        yield (
            f"  about {self.decisions:,} decisions are encoded again; folding the journal takes "
            f"about {self.seconds:.1f} s (estimated from {self.sampled:,} records)"
        )
        for why, count in self.without_row.items():
            yield f"  about {count:,} decisions have no row, so learners ignore them: {why}"
        for name, share in self.missing.items():
            yield f"  {name} is missing in {share:.0%} of the decisions"


def feature_changes(store: Store, bandits: tuple[Definition, ...]) -> list[FeatureChange]:
    """Compare the features of bandits with those in their existing journals."""
    if isinstance(store, SQLiteStore) and not store.path.exists():
        return []
    identities = {stored.name: stored.identity for stored in store.describe()}
    plans = []
    for definition in bandits:
        identity = identities.get(definition.name)
        if identity is not None:
            with store.journal(definition.name) as journal:
                plans.append(feature_change(journal, identity, definition))
    return plans


def feature_change(
    journal: Journal, identity: Mapping[str, str], definition: Definition
) -> FeatureChange:
    """Compare the features of a bandit with those in its journal.

    Args:
        journal: Journal of the bandit, which is not modified.
        identity: Identity stored in the journal.
        definition: Definition of the bandit.
    """
    features, name, new = definition.features, definition.name, definition.identity
    compared = ["family", "features"] if features is not None else ["family", "features", "dim"]
    differing = [key for key in compared if identity[key] != new[key]]
    if not differing:
        return FeatureChange(name, [])
    changes = [f"{key}: {identity[key]} -> {new[key]}" for key in differing if key != "features"]
    if "features" in differing:
        configured = journal.configured()
        before = None
        with suppress(InvalidInput):  # custom features cannot be created here
            before = as_features(configured.settings.get("features", "") if configured else "")
        changes += list(_differences(before, features)) or ["the options of the features"]
    fold = Fold(
        definition.policy,
        definition.rewards,
        features=features,
        partitions=journal.partitions,
        retention=definition.retention,
    )
    try:
        definition.check_change(identity)
        fold.begin(journal)
    except JournalMismatch as error:
        return FeatureChange(name, changes, refused=str(error))
    return _measured(FeatureChange(name, changes), journal, fold)


def _measured(plan: FeatureChange, journal: Journal, fold: Fold) -> FeatureChange:
    """Return the change with estimates for the journal, made by folding a sample of records."""
    sampled = total = 0
    start = time.perf_counter()
    with fold.learner.bulk():
        for partition in range(journal.partitions):
            first, last = journal.start(partition).position, journal.end(partition)
            total += last - first
            position = first
            for place in range(PLACES):
                position = max(position, first + (last - first) * place // PLACES)
                for record in journal.read(partition, position, SAMPLE):
                    fold.take(record)
                    sampled += 1
                    position = record.position
        seconds = time.perf_counter() - start  # excluding the final fit
    scale = total / sampled if sampled else 0.0
    counts = dict(fold.encoder.counts)
    fields: Mapping[str, Any] = getattr(fold.encoder.features, "field_counts", {})
    encoded = counts.pop("encoded", 0)
    return msgspec.structs.replace(
        plan,
        decisions=round(scale * encoded),
        without_row={why: round(scale * count) for why, count in counts.items()},
        missing={
            name: (count["missing"] + count["refused"]) / encoded
            for name, count in fields.items()
            if encoded and count["missing"] + count["refused"]
        },
        seconds=scale * seconds,
        sampled=sampled,
    )


def _differences(before: Any, after: Any) -> Iterator[str]:
    if type(before) is not type(after):
        kind = "rows from callers, or custom features" if before is None else type(before).__name__
        yield f"features: {kind} -> {'none' if after is None else type(after).__name__}"
        return
    if isinstance(after, PerArm | Shared):
        yield from _fields("field", before.context, after.context)
    if isinstance(after, Shared):
        yield from _fields("field of actions", before.action, after.action)
    if isinstance(after, PerArm):
        yield from _actions(before.actions, after)
    for option in ("intercept", "interactions", "dim", "seed"):
        old, new = getattr(before, option, None), getattr(after, option, None)
        is_option = option != "dim" or not isinstance(after, PerArm | Shared)
        if old != new and is_option:
            yield f"{option}: {old} -> {new}"


def _fields(what: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, RandomFeatures) != isinstance(after, RandomFeatures):
        yield f"random features {'removed' if isinstance(before, RandomFeatures) else 'added'}"
    old, new = _by_name(before), _by_name(after)
    for name in (name for name in new if name not in old):
        yield f"{what} added: {name} {new[name]}".rstrip()
    for name in (name for name in old if name not in new):
        yield f"{what} removed: {name}"
    for name in (name for name in new if name in old and old[name] != new[name]):
        yield f"{what} changed: {name} {old[name]} -> {new[name]}"


def _by_name(spec: Any) -> dict[str, str]:
    fields = fields_of(spec)
    if isinstance(fields, int):
        return {f"number {n}": "" for n in range(fields)}
    return {name: "" if encoder is None else repr(encoder) for name, encoder in fields.items()}


def _actions(before: Any, after: PerArm) -> Iterator[str]:
    renamed = {old: new for old, new in after.renamed.items() if old in before}
    for old, new in renamed.items():
        yield f"action renamed: {old} -> {new}"
    names = [renamed.get(name, name) for name in before]
    for name in after.actions:
        if name not in names:
            yield f"action added: {name}"
    for name in names:
        if name not in after.actions:
            yield f"action removed: {name}"
    if [name for name in names if name in after.actions] != [
        name for name in after.actions if name in names
    ]:
        yield "actions are in a different order"
