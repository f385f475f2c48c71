"""What a process that learns can tell of its bandits."""

from __future__ import annotations

import math

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from belated.advice import WARNINGS
from belated.fold.weighting import HalfLife
from belated.service.learning.learning_service import LearningService
from belated.service.operating.measures import Measure

_COUNTER, _GAUGE, _HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_of_learner = Measure[LearningService]


def _counted(learner: LearningService, *, unmatched: bool) -> dict[str, float]:
    """Events by status. Those that are unmatched leave again, so that they are no counter."""
    total: dict[str, float] = {}
    for ledger in () if learner.fold is None else learner.fold.ledgers.values():
        for status, count in dict(ledger.counters).items():  # a copy: it is counted on meanwhile
            if (status == "unmatched") is unmatched:
                total[status] = total.get(status, 0.0) + count
    return total


def _half_life(learner: LearningService) -> tuple[float, float] | None:
    """The half-life in use and since when, in seconds; None if the policy has none."""
    if learner.fold is None or learner.fold.policy.half_life is None:
        return None
    weighting = learner.fold.learner.weighting
    if not isinstance(weighting, HalfLife):  # it has one, and no others to compare with
        return (learner.fold.policy.half_life_us or 0) / 1e6, 0.0
    half_life = math.inf if weighting.half_life is None else weighting.half_life / 1e6
    return half_life, weighting.since / 1e6


#: What a process that learns can tell.
OF_LEARNERS = (
    _of_learner(
        _GAUGE, "belated_learner_is_leader",
        "1 if this process learns the bandit, 0 if it stands by.",
        lambda learner: float(learner.leads()),
    ),
    _of_learner(
        _GAUGE, "belated_learner_lag_seconds",
        "From the commit of a record to its folding, of the last one.",
        lambda learner: learner.lag if learner.leads() else None,
    ),
    _of_learner(
        _HISTOGRAM, "belated_fold_lag_seconds",
        "From the commit of a record to its folding, of the oldest of those read together.",
        lambda learner: learner.lags,
    ),
    _of_learner(
        _HISTOGRAM, "belated_fit_seconds", "Duration of a fit of all rewards, beside the folding.",
        lambda learner: learner.fits,
    ),
    _of_learner(
        _GAUGE, "belated_journal_head_info",
        "1 for the head of the journal, taken once an hour: `journal verify --expect` checks it.",
        lambda learner: {learner.head: 1.0} if learner.leads() and learner.head else {}, "head",
    ),
    _of_learner(
        _COUNTER, "belated_history_changes",
        "Times at which records that were folded were gone from the journal, or others.",
        lambda learner: learner.history_changes.count,
    ),
    _of_learner(
        _COUNTER, "belated_refold_disagreements",
        "Partitions that a second fold from the first record finds otherwise.",
        lambda learner: learner.refold.disagreements,
    ),
    _of_learner(
        _COUNTER, "belated_refolds", "Partitions that were folded again and compared.",
        lambda learner: learner.refold.compared,
    ),
    _of_learner(
        _GAUGE, "belated_journal_clock_ahead_seconds",
        "By how much the last stamp of the journal is ahead of the clock that stamps.",
        lambda learner: learner.clock.ahead() if learner.leads() else None,
    ),
    _of_learner(
        _GAUGE, "belated_journal_clock_offset_seconds",
        "By how much the clock that stamps is ahead of that of this machine.",
        lambda learner: learner.clock.offset if learner.leads() else None,
    ),
    _of_learner(
        _COUNTER, "belated_learner_events", "Events by what they meant, over the whole journal.",
        lambda learner: _counted(learner, unmatched=False), "status",
    ),
    _of_learner(
        _GAUGE, "belated_unmatched_events", "Events whose decision is not known.",
        lambda learner: _counted(learner, unmatched=True).get("unmatched", 0.0)
        if learner.leads() else None,
    ),
    _of_learner(
        _GAUGE, "belated_learner_decisions", "Decisions by state, over the whole journal.",
        lambda learner: learner.fold.counts if learner.fold is not None else {}, "state",
    ),
    _of_learner(
        _GAUGE, "belated_pending_decisions", "Decisions whose reward is out.",
        lambda learner: learner.fold.model.pending if learner.fold is not None else None,
    ),
    _of_learner(
        _GAUGE, "belated_pending_oldest_seconds", "Age of the oldest of them.",
        lambda learner: learner.oldest_age() if learner.leads() else None,
    ),
    _of_learner(
        _HISTOGRAM, "belated_reward_delay_seconds",
        "From the record of a decision to that of its reward; of a crowd only some.",
        lambda learner: learner.delays,
    ),
    _of_learner(
        _GAUGE, "belated_half_life_seconds",
        "After which a decision counts for half as much; infinite if nothing is forgotten.",
        lambda learner: None if (used := _half_life(learner)) is None else used[0],
    ),
    _of_learner(
        _GAUGE, "belated_half_life_since_seconds",
        "When this half-life was picked, in seconds since 1970; 0 if there was no other.",
        lambda learner: None if (used := _half_life(learner)) is None else used[1],
    ),
    _of_learner(
        _GAUGE, "belated_advice",
        "1 while a check warns of what may hurt users, else 0; the log says it in words, once.",
        lambda learner: {name: float(name in learner.adviser.current) for name in WARNINGS}
        if learner.leads() else {}, "warning",
    ),
    _of_learner(
        _GAUGE, "belated_delay_dependence",
        "How far rewards depend on their delay, over what chance may reach: above 1 they do.",
        lambda learner: learner.adviser.dependence.ratio
        if learner.leads() and learner.adviser.dependence is not None else None,
    ),
)  # fmt: skip
