"""Metrics for Prometheus: counted where things happen, rendered when they are scraped.

Names, units and what to do about each are in the how-to on metrics. Labels are names of bandits and
of their fields, paths of routes, and words from short lists: never an id.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, get_args

from belated.advice import CHECKS
from belated.advice.issues import KINDS, Noticed
from belated.decider import MODES
from belated.exceptions import MissingExtra
from belated.fold.fold import Fold
from belated.fold.partitioned import Merging
from belated.fold.weighting import HalfLife
from belated.service.access.authorizer import Authorizer
from belated.service.access.tokens import RewardTokens
from belated.service.console.reports import BanditReport, Reports
from belated.service.histogram import Histogram
from belated.service.learning.learners import Learners, Learning
from belated.service.learning.learning_service import LearningService
from belated.service.learning.shared_learner import PartitionWorker, SharedLearner
from belated.service.runtime import dead_workers, failures as worker_failures
from belated.service.serving.group_commit import GroupCommit
from belated.service.serving.served_bandits import ServedBandit
from belated.service.serving.spools import Unreadable

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.exposition import generate_latest, start_http_server
except ModuleNotFoundError:
    raise MissingExtra("the service", "service") from None

#: For actions that only callers name.
OTHERS = "others"
#: Why what processes left cannot be read; ``folder``: not even the names of the files can.
UNREADABLE = (*get_args(Unreadable), "folder")

#: A value; or values by a label, whose values may be by a further one; None if there is none now.
Value = float | Histogram | Mapping[Any, Any] | None


class Family(NamedTuple):
    """The type, help and labels of a metric.

    Attributes:
        kind: of the metric.
        help: what it is.
        labels: of the metric.
    """

    kind: Callable[..., Any]
    help: str
    labels: tuple[str, ...]


def _family(kind: Callable[..., Any], help: str, *labels: str, of_bandit: bool = True) -> Family:
    """Return a metric with a value for each bandit, unless it is of the process."""
    return Family(kind, help, ("bandit", *labels) if of_bandit else labels)


_counter = partial(_family, CounterMetricFamily)
_gauge = partial(_family, GaugeMetricFamily)
_histogram = partial(_family, HistogramMetricFamily)

#: By name, without ``_total``.
FAMILIES: dict[str, Family] = {
    # Of every process that decides.
    "belated_decisions": _counter("Decisions made here."),
    "belated_rewards": _counter("Rewards accepted by this process."),
    "belated_activations_voids": _counter("Activations and voids accepted here."),
    "belated_unmatched_refused": _counter(
        "Events refused because too many wait for decisions that are unknown."
    ),
    "belated_store_duplicates": _counter(
        "Events sent again by this process, which the store had and did not write."
    ),
    "belated_choice_entropy_nats": _counter(
        "Sum of -log p of the choices; divided by the decisions, how much is explored."
    ),
    "belated_decide_seconds": _histogram("From the request to the answer, the commit included."),
    "belated_model_age_seconds": _gauge("Since the newest model that was loaded here was made."),
    "belated_model_version": _gauge("Records that the model that decides here has learned from."),
    "belated_model_chosen": _gauge("1 if an operator chose the model that decides here, else 0."),
    "belated_model_other_features": _gauge(
        "1 if the newest model is for other features and the last one still decides, else 0."
    ),
    "belated_models_loaded": _counter("Models loaded here."),
    "belated_unapplied_decisions": _gauge("Decisions made here that the model has not read yet."),
    "belated_mode": _gauge(
        "1 for how the bandit decides here: learn, freeze, baseline, off.", "mode"
    ),
    "belated_action_paused": _gauge(
        "Actions that operators have paused or retired; `others` are not in the configuration.",
        "action",
    ),
    "belated_fallback_decisions": _counter(
        "Decisions by the baseline because the model could not choose, by the reason.", "reason"
    ),
    "belated_field_values": _counter(
        "Values of fields by what became of them here: encoded (ok), missing, and so on.",
        "field",
        "status",
    ),
    "belated_issues": _gauge(
        "Rewards and values that were wrong: of the journal at the learner, of this process else.",
        "issue",
    ),
    "belated_journal_unavailable": _gauge(
        "1 while the store is unavailable and events wait on the local disk, else 0."
    ),
    "belated_spool_events": _gauge("Events that wait on the local disk."),
    "belated_spool_bytes": _gauge("Bytes they take."),
    "belated_spool_oldest_seconds": _gauge("Since the oldest of them came; 0 if none waits."),
    "belated_spool_left_events": _gauge(
        "Events left on the local disk by processes that died, and not delivered yet."
    ),
    "belated_spool_left_files": _gauge("Files with such events, or that cannot be read."),
    "belated_spool_unreadable_files": _gauge("Those that cannot be read, by why.", "reason"),
    "belated_internal_errors": _counter(
        "Failures behind the requests: of a commit, or of loading a model (board, model).", "kind"
    ),
    # Of a process that learns.
    "belated_reencoded_decisions": _counter(
        "Decisions made with other features, by what became of them: encoded again, or without a "
        "row.",
        "status",
    ),
    "belated_learner_is_leader": _gauge("1 if this process learns the bandit, 0 if it stands by."),
    "belated_learner_lag_seconds": _gauge(
        "From the commit of a record to its folding, of the last one."
    ),
    "belated_fold_lag_seconds": _histogram(
        "From the commit of a record to its folding, of the oldest of those read together."
    ),
    "belated_fit_seconds": _histogram("Duration of a fit of all rewards, concurrent with folding."),
    "belated_journal_head_info": _gauge(
        "1 for the head of the journal, taken once an hour: `journal verify --expect` checks it.",
        "head",
    ),
    "belated_history_changes": _counter(
        "Times at which records that were folded were gone from the journal, or others."
    ),
    "belated_refold_disagreements": _counter(
        "Partitions that a second fold from the first record finds otherwise."
    ),
    "belated_refolds": _counter("Partitions that were folded again and compared."),
    "belated_journal_clock_ahead_seconds": _gauge(
        "By how much the last stamp of the journal is ahead of the clock that stamps."
    ),
    "belated_journal_clock_offset_seconds": _gauge(
        "By how much the clock that stamps is ahead of that of this machine."
    ),
    "belated_learner_events": _counter(
        "Events by what they meant, over the whole journal.", "status"
    ),
    "belated_unmatched_events": _gauge("Events whose decision is not known."),
    "belated_learner_decisions": _gauge("Decisions by state, over the whole journal.", "state"),
    "belated_pending_decisions": _gauge("Decisions whose reward is out."),
    "belated_pending_oldest_seconds": _gauge("Age of the oldest of them."),
    "belated_reward_delay_seconds": _histogram(
        "From the record of a decision to that of its reward; of a crowd only some."
    ),
    "belated_half_life_seconds": _gauge(
        "After which a decision counts for half as much; infinite if nothing is forgotten."
    ),
    "belated_half_life_since_seconds": _gauge(
        "When this half-life was picked, in seconds since 1970; 0 if there was no other."
    ),
    "belated_delay_dependence": _gauge(
        "How far rewards depend on their delay, over what chance may reach: above 1 they do."
    ),
    "belated_learner_restarts": _counter("Learners that failed and were restarted."),
    # Of the process that leads a bandit, most of it from reports.
    "belated_advice": _gauge("1 while a check finds what may hurt users, else 0.", "warning"),
    "belated_report_age_seconds": _gauge("Since the last report was made."),
    "belated_reward_per_decision": _gauge("What a decision earns.", "group"),
    "belated_lift_ratio": _gauge("How much more the bandit earns than its holdout.", "bound"),
    "belated_action_share": _gauge("Of the decisions of the last period.", "action"),
    "belated_predicted_ratio": _gauge("Predicted rewards over those that came."),
    # Of any process.
    "belated_reward_tokens": _counter("Rewards by what their token was.", "token"),
    "belated_commit_seconds": _histogram("Duration of a commit.", of_bandit=False),
    "belated_commit_events": _histogram("Events in a commit, of all bandits.", of_bandit=False),
    "belated_dead_workers": _gauge(
        "Workers that have ended, or have failed for a minute.", of_bandit=False
    ),
    "belated_worker_failures": _counter(
        "Errors of workers; each is retried.", "worker", of_bandit=False
    ),
    "belated_http_requests": _counter("Requests.", "method", "route", "status", of_bandit=False),
    "belated_active_api_keys": _gauge("Valid keys.", of_bandit=False),
    "belated_keys_age_seconds": _gauge("Since the keys were last polled.", of_bandit=False),
}


def of_bandit(bandit: ServedBandit) -> dict[str, Value]:
    """Return the values of a bandit at a decider."""
    stats, spool, left = bandit.stats, bandit.spool, bandit.left_spools
    paused = dict.fromkeys([*bandit.definition.actions, OTHERS], 0)
    for one in bandit.actions:
        paused[one.action if one.action in paused else OTHERS] += one.state != "open"
    values: dict[str, Value] = {
        "belated_decisions": stats.decisions,
        "belated_rewards": stats.rewards,
        "belated_activations_voids": stats.activations_voids,
        "belated_unmatched_refused": stats.unmatched_refused,
        "belated_store_duplicates": bandit.duplicates,
        "belated_choice_entropy_nats": stats.entropy,
        "belated_decide_seconds": stats.seconds,
        "belated_model_age_seconds": bandit.age,
        "belated_model_version": bandit.version,
        "belated_model_chosen": bandit.chosen is not None,
        "belated_model_other_features": bandit.has_other_features,
        "belated_models_loaded": stats.models,
        "belated_unapplied_decisions": len(bandit.decider.unapplied),
        "belated_mode": {mode: mode == bandit.decider.mode for mode in MODES},
        "belated_action_paused": paused,
        "belated_fallback_decisions": {"error": 0, "not finite": 0} | bandit.decider.fallbacks,
        "belated_field_values": getattr(bandit.definition.features, "field_counts", None),
        "belated_issues": _by_kind(bandit.noticed),
        "belated_internal_errors": {"commit": bandit.failed_commits, "board": 0, "model": 0}
        | stats.failures,
    }
    if spool is not None:
        values |= {
            "belated_journal_unavailable": spool.journal_down,
            "belated_spool_events": spool.queued,
            "belated_spool_bytes": spool.size,
            "belated_spool_oldest_seconds": _age(bandit.now(), spool.oldest),
        }
    if left is not None:
        values |= {
            "belated_spool_left_events": left.events,
            "belated_spool_left_files": left.files,
            "belated_spool_unreadable_files": dict.fromkeys(UNREADABLE, 0) | dict(left.unreadable),
        }
    return values


def _by_kind(noticed: Mapping[str, Noticed]) -> dict[str, int]:
    """Return how often each kind of issue was noticed, over all fields."""
    counts = dict.fromkeys(KINDS, 0)
    for name, seen in noticed.items():
        counts[name.partition(" ")[0]] += seen.count
    return counts


def _age(now: int, since: int | None) -> float:
    return 0.0 if since is None else max(0.0, (now - since) / 1e6)


def of_learner(learner: Learning) -> dict[str, Value]:
    """Return the values of a learner; counts of the whole journal are those of the leader."""
    leads = learner.leads()
    values: dict[str, Value] = {"belated_learner_is_leader": leads}
    folding: LearningService | PartitionWorker
    state: Fold | Merging | None
    if isinstance(learner, SharedLearner):
        folding, folds, merging = learner.worker, bool(learner.worker.owned), learner.merging
        state, pending, oldest = merging, None, None
        if merging is not None:
            pending, oldest = merging.counts.get("pending"), merging.oldest
    else:
        folding, folds, fold = learner, leads, learner.fold
        state, pending, oldest = fold, None, learner.oldest
        if fold is not None:
            pending = fold.model.pending
            values |= half_life_of(fold)
            values["belated_reencoded_decisions"] = dict(fold.encoder.counts)
        dependence = learner.adviser.dependence
        values |= {
            "belated_fit_seconds": learner.fits,
            "belated_refold_disagreements": learner.refold.disagreements,
            "belated_refolds": learner.refold.compared,
            "belated_reward_delay_seconds": learner.delays,
            "belated_delay_dependence": dependence.ratio if leads and dependence else None,
        }
    values |= {
        "belated_fold_lag_seconds": folding.lags,
        "belated_history_changes": folding.history_changes.count,
    }
    if folds:
        values |= {
            "belated_learner_lag_seconds": folding.lag,
            "belated_journal_clock_ahead_seconds": learner.clock.ahead(),
            "belated_journal_clock_offset_seconds": learner.clock.offset,
        }
    if state is not None:
        counters = dict(state.counters)
        values |= {
            # Unmatched events leave again, so that they are no counter.
            "belated_unmatched_events": counters.pop("unmatched", 0),
            "belated_learner_events": counters,
            "belated_issues": _by_kind(state.noticed),
            "belated_learner_decisions": state.counts,
            "belated_pending_decisions": pending,
            "belated_pending_oldest_seconds": _age(learner.clock.now(), oldest),
            "belated_journal_head_info": {learner.head: 1} if learner.head else None,
        }
    return values


def half_life_of(fold: Fold) -> dict[str, Value]:
    """Return the half-life in use and since when, in seconds; nothing if the policy has none."""
    if fold.policy.half_life is None:
        return {}
    weighting = fold.learner.weighting
    half_life, since = (fold.policy.half_life_us or 0) / 1e6, 0.0
    if isinstance(weighting, HalfLife):  # otherwise there are no others to compare with
        half_life = math.inf if weighting.half_life is None else weighting.half_life / 1e6
        since = weighting.since / 1e6
    return {"belated_half_life_seconds": half_life, "belated_half_life_since_seconds": since}


def of_leader(learner: Learning, report: BanditReport | None) -> dict[str, Value]:
    """Return the values of a bandit that is led here: those of its last report, and advice."""
    gauges = None if report is None else report.gauges
    found = learner.adviser.current if isinstance(learner, LearningService) else frozenset()
    values: dict[str, Value] = {}
    if report is not None and gauges is not None:
        found = found.union(gauges.attention)
        shares: dict[str, float] = defaultdict(float)
        for action, share in gauges.share.items():
            shares[action if action in report.actions else OTHERS] += share
        values = {
            "belated_report_age_seconds": time.monotonic() - report.made_at,
            "belated_reward_per_decision": gauges.reward,
            "belated_lift_ratio": gauges.lift,
            "belated_action_share": shares,
            "belated_predicted_ratio": gauges.predicted,
        }
    return values | {"belated_advice": {check: check in found for check in CHECKS}}


@dataclass(eq=False)
class Metrics:
    """A registry that collects its values when it is scraped.

    Attributes:
        bandits: by the name of the bandit.
        learners: that run in this process.
        requests: how many there were, by method and path of their route and status.
        tokens: by the name of the bandit.
        reports: of all bandits; those of bandits that are led here are made again while somebody
            scrapes.
        authorizer: knows the keys; None where anyone may ask.
        commits: commits for all bandits; None in a process that only learns.
    """

    bandits: Mapping[str, ServedBandit]
    learners: Learners
    requests: Mapping[tuple[str, str, int], int]
    tokens: Mapping[str, RewardTokens] = field(default_factory=dict)
    reports: Reports | None = None
    authorizer: Authorizer | None = None
    commits: GroupCommit | None = None

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)

    def listen(self, port: int, host: str = "127.0.0.1") -> Callable[[], None]:
        """Answer Prometheus on a port of its own: in a process that serves nothing else.

        Returns:
            What ends it.
        """
        server, thread = start_http_server(port, addr=host, registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; called by the registry."""
        values: dict[str, dict[Any, Value]] = defaultdict(dict)

        def add(bandit: str, found: dict[str, Value]) -> None:
            for name, value in found.items():
                before: Any = values[name].get(bandit)
                if before is not None and isinstance(value, Mapping):  # it decides and learns
                    value = {one: before[one] + more for one, more in value.items()}  # noqa: PLW2901
                values[name][bandit] = value

        for name, bandit in dict(self.bandits).items():
            add(name, of_bandit(bandit))
        learners = dict(self.learners.running)
        led = {name: learner for name, learner in learners.items() if learner.leads()}
        if self.reports is not None:
            self.reports.watch(led)
        for name, learner in learners.items():
            add(name, of_learner(learner))
        for name, learner in led.items():
            add(name, of_leader(learner, None if self.reports is None else self.reports[name]))
        values |= self._of_process()
        for name, family in FAMILIES.items():
            yield _metric(name, family, values.get(name))

    def _of_process(self) -> dict[str, Any]:
        failures = self.learners.failures
        found: dict[str, Value] = {
            "belated_learner_restarts": {name: failures[name] for name in self.learners.names},
            "belated_reward_tokens": {name: tokens.seen for name, tokens in self.tokens.items()},
            "belated_dead_workers": len(dead_workers()),
            "belated_worker_failures": worker_failures.copy(),
            "belated_http_requests": dict(self.requests),
        }
        if self.commits is not None:
            found["belated_commit_seconds"] = self.commits.seconds
            found["belated_commit_events"] = self.commits.sizes
        if self.authorizer is not None:
            found["belated_active_api_keys"] = self.authorizer.known
            found["belated_keys_age_seconds"] = self.authorizer.age
        return found


def _metric(name: str, family: Family, values: Value) -> Metric:
    """The metric with all its values."""
    metric = family.kind(name, family.help, labels=family.labels)

    def add(labels: tuple[str, ...], value: Value) -> None:
        if isinstance(value, Histogram):
            bounds = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]
            metric.add_metric(labels, list(zip(bounds, value.cumulative, strict=True)), value.total)
        elif isinstance(value, Mapping):
            for label, inner in value.items():
                more = label if isinstance(label, tuple) else (label,)
                add((*labels, *map(str, more)), inner)
        elif value is not None:
            metric.add_metric(labels, float(value))

    add((), values)
    return metric  # type: ignore[no-any-return]
