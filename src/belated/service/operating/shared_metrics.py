"""What one of several learners of a bandit tells, by the metric; its leader has that of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from belated.service.histogram import Histogram
from belated.service.learning.shared_learner import SharedLearner

#: A value, values by a further label, or None if there is none now.
Value = float | Histogram | Mapping[str, float] | None


def _events(learner: SharedLearner, *, unmatched: bool) -> dict[str, float]:
    merging = learner.merger.merging
    counters = {} if merging is None else merging.counters
    return {name: n for name, n in counters.items() if (name == "unmatched") is unmatched}


def _states(learner: SharedLearner) -> Mapping[str, float]:
    merging = learner.merger.merging
    return {} if merging is None else merging.counts


def _oldest_age(learner: SharedLearner) -> Value:
    merging = learner.merger.merging
    if merging is None:
        return None
    oldest = merging.oldest
    return 0.0 if oldest is None else max(0.0, (learner.worker.clock.now() - oldest) / 1e6)


#: By the name of a metric; those of fits, refolds, half-lives and advice are not told.
OF_SHARED: Mapping[str, Callable[[SharedLearner], Value]] = {
    "belated_learner_is_leader": lambda one: float(one.leads()),
    "belated_learner_lag_seconds": lambda one: one.worker.lag if one.worker.owned else None,
    "belated_fold_lag_seconds": lambda one: one.worker.lags,
    "belated_journal_head_info": lambda one: {one.merger.head: 1.0} if one.merger.head else {},
    "belated_history_changes": lambda one: float(one.worker.history_changes.count),
    "belated_journal_clock_ahead_seconds": lambda one: one.worker.clock.ahead(),
    "belated_journal_clock_offset_seconds": lambda one: one.worker.clock.offset,
    "belated_learner_events": lambda one: _events(one, unmatched=False),
    "belated_unmatched_events": lambda one: (
        _events(one, unmatched=True).get("unmatched", 0.0) if one.leads() else None
    ),
    "belated_learner_decisions": _states,
    "belated_pending_decisions": lambda one: _states(one).get("pending") if one.leads() else None,
    "belated_pending_oldest_seconds": _oldest_age,
}


def nothing(learner: SharedLearner) -> Value:
    """What is told of a metric that such a learner does not have."""
    return None
