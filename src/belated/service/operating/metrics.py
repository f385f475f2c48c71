"""Prometheus metrics, rendered on each scrape.

The how-to guide on metrics explains each metric and how to act on it. Label values are bandit
names, field names, route paths and values from small fixed sets, never ids.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
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
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtra("the service", "service") from None

#: Label value for all actions that the configuration does not declare.
OTHERS = "others"
#: Reasons why a spool cannot be read. ``folder`` means that the spool folder cannot be listed.
UNREADABLE = (*get_args(Unreadable), "folder")

#: A value, a (possibly nested) mapping from labels to values, or None if there is no current value.
Value = float | Histogram | Mapping[Any, Any] | None


class Family(NamedTuple):
    """Type, help text and labels of a metric.

    Attributes:
        kind: Prometheus class of the metric.
        help: Help text.
        labels: Label names.
        combine: Combines the values of the processes that serve the same port.
    """

    kind: Callable[..., Any]
    help: str
    labels: tuple[str, ...]
    combine: Callable[[list[float]], float]


def _family(
    kind: Callable[..., Any],
    help: str,
    *labels: str,
    of_bandit: bool = True,
    combine: Callable[[list[float]], float] = sum,
) -> Family:
    """Return a metric with a label for the bandit, unless it describes the whole process."""
    return Family(kind, help, ("bandit", *labels) if of_bandit else labels, combine)


_counter = partial(_family, CounterMetricFamily)
_gauge = partial(_family, GaugeMetricFamily, combine=max)
_histogram = partial(_family, HistogramMetricFamily)

#: Metrics by name, without the suffix ``_total``.
FAMILIES: dict[str, Family] = {
    # Deciders.
    "belated_decisions": _counter("Decisions made by this process."),
    "belated_rewards": _counter("Rewards accepted by this process."),
    "belated_activations_voids": _counter("Activations and voids accepted by this process."),
    "belated_unmatched_refused": _counter(
        "Events refused because too many events are waiting for unknown decisions."
    ),
    "belated_store_duplicates": _counter(
        "Events that this process sent again and that were already in the store."
    ),
    "belated_choice_entropy_nats": _counter(
        "Sum of -log p over the decisions. Divide by the number of decisions for the average "
        "exploration."
    ),
    "belated_decide_seconds": _histogram(
        "Response time of decision requests, including the commit."
    ),
    "belated_model_age_seconds": _gauge("Age of the newest model that this process has loaded."),
    "belated_model_version": _gauge(
        "Number of records that the current model includes.", combine=min
    ),
    "belated_model_chosen": _gauge("1 if an operator chose the current model, else 0."),
    "belated_model_other_features": _gauge(
        "1 if the newest model is for other features, so that the previous model is used, else 0."
    ),
    "belated_models_loaded": _counter("Models loaded by this process."),
    "belated_unapplied_decisions": _gauge(
        "Decisions made by this process that the current model does not include yet.", combine=sum
    ),
    "belated_mode": _gauge(
        "1 for the current mode of the bandit: learn, freeze, baseline or off.", "mode"
    ),
    "belated_action_paused": _gauge(
        "1 if the action is paused or retired; `others`: number of such actions that are not in "
        "the configuration.",
        "action",
    ),
    "belated_fallback_decisions": _counter(
        "Decisions by the baseline because the model could not choose, by reason.", "reason"
    ),
    "belated_field_values": _counter(
        "Values of fields in requests to this process, by status: ok, missing, and so on.",
        "field",
        "status",
    ),
    "belated_issues": _gauge(
        "Invalid or suspicious rewards and values, by kind: in the journal (learners), or in "
        "requests to this process (deciders).",
        "issue",
        combine=sum,
    ),
    "belated_journal_unavailable": _gauge(
        "1 while the store is unavailable and events are spooled to the local disk, else 0."
    ),
    "belated_spool_events": _gauge("Events in the spool on the local disk.", combine=sum),
    "belated_spool_bytes": _gauge("Size of the spool in bytes."),
    "belated_spool_oldest_seconds": _gauge("Age of the oldest event in the spool; 0 if empty."),
    "belated_spool_left_events": _gauge("Undelivered events in the spools of ended processes."),
    "belated_spool_left_files": _gauge(
        "Spools of ended processes that contain events or cannot be read."
    ),
    "belated_spool_unreadable_files": _gauge(
        "Spools of ended processes that cannot be read, by reason.", "reason"
    ),
    "belated_internal_errors": _counter(
        "Internal failures: of a commit (commit), of polling for models (board), or of loading a "
        "model (model).",
        "kind",
    ),
    # Learners.
    "belated_reencoded_decisions": _counter(
        "Decisions made with other features, by result: encoded again, or without a row.",
        "status",
    ),
    "belated_learner_is_leader": _gauge(
        "1 if this process is the leading learner of the bandit, 0 if it is on standby."
    ),
    "belated_learner_lag_seconds": _gauge(
        "Time from commit to folding, for the last folded record."
    ),
    "belated_fold_lag_seconds": _histogram(
        "Time from commit to folding, for the oldest record in each page."
    ),
    "belated_fit_seconds": _histogram(
        "Duration of fitting all rewards, which runs concurrently with folding."
    ),
    "belated_journal_head_info": _gauge(
        "1 for the head of the journal, for `journal verify --expect`; updated every hour.",
        "head",
    ),
    "belated_history_changes": _counter(
        "Number of times that folded records were found to be missing or different."
    ),
    "belated_refold_disagreements": _counter(
        "Partitions for which folding again from the first record gave a different result."
    ),
    "belated_refolds": _counter("Partitions that were folded again and compared."),
    "belated_journal_clock_ahead_seconds": _gauge(
        "How far the last timestamp of the journal is ahead of the clock of the store."
    ),
    "belated_journal_clock_offset_seconds": _gauge(
        "How far the clock of the store is ahead of the clock of this machine."
    ),
    "belated_learner_events": _counter(
        "Events in the whole journal, by status.", "status", combine=max
    ),
    "belated_unmatched_events": _gauge("Events for unknown decisions."),
    "belated_learner_decisions": _gauge("Decisions in the whole journal, by state.", "state"),
    "belated_pending_decisions": _gauge("Decisions that are waiting for their reward."),
    "belated_pending_oldest_seconds": _gauge("Age of the oldest pending decision."),
    "belated_reward_delay_seconds": _histogram(
        "Time from the record of a decision to the record of its reward; sampled under load."
    ),
    "belated_half_life_seconds": _gauge(
        "Age at which a decision counts half as much; infinite if nothing is forgotten."
    ),
    "belated_half_life_since_seconds": _gauge(
        "When this half-life was selected, in seconds since 1970; 0 for the initial half-life."
    ),
    "belated_delay_dependence": _gauge(
        "Dependence of rewards on their delay, relative to the maximum expected by chance: above "
        "1, rewards depend on the delay."
    ),
    "belated_learner_restarts": _counter("Learners that failed and were restarted."),
    # The process that leads a bandit. Most of these values come from the bandit's report.
    "belated_advice": _gauge(
        "1 while a check warns of a problem that may hurt users, else 0.", "warning"
    ),
    "belated_report_age_seconds": _gauge("Age of the last report."),
    "belated_reward_per_decision": _gauge("Average reward per decision.", "group"),
    "belated_lift_ratio": _gauge(
        "Relative difference between the rewards of the bandit and of its holdout.", "bound"
    ),
    "belated_action_share": _gauge(
        "Share of the decisions in the last period that chose the action.", "action"
    ),
    "belated_predicted_ratio": _gauge("Predicted rewards divided by observed rewards."),
    # All processes.
    "belated_reward_tokens": _counter("Rewards by the result of verifying their token.", "token"),
    "belated_commit_seconds": _histogram("Duration of a commit.", of_bandit=False),
    "belated_commit_events": _histogram("Events per commit, of all bandits.", of_bandit=False),
    "belated_dead_workers": _gauge(
        "Workers that have ended, or have failed for a minute.", of_bandit=False, combine=sum
    ),
    "belated_worker_failures": _counter(
        "Errors of background workers, each of which was retried.", "worker", of_bandit=False
    ),
    "belated_http_requests": _counter(
        "HTTP requests.", "method", "route", "status", of_bandit=False
    ),
    "belated_active_api_keys": _gauge("Valid API keys.", of_bandit=False),
    "belated_keys_age_seconds": _gauge(
        "Time since the API keys were last read from the store.", of_bandit=False
    ),
    # The supervisor, if there are several processes.
    "belated_processes": _gauge("Processes that serve the port.", of_bandit=False),
    "belated_process_restarts": _counter(
        "Processes that ended and were restarted.", of_bandit=False
    ),
}


def of_bandit(bandit: ServedBandit) -> dict[str, Value]:
    """Return a decider's metrics for a bandit."""
    stats, spool, leftovers = bandit.stats, bandit.spool, bandit.left_spools
    paused = dict.fromkeys([*bandit.definition.actions, OTHERS], 0)
    for state in bandit.actions:
        paused[state.action if state.action in paused else OTHERS] += state.state != "open"
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
    if leftovers is not None:
        values |= {
            "belated_spool_left_events": leftovers.events,
            "belated_spool_left_files": leftovers.files,
            "belated_spool_unreadable_files": dict.fromkeys(UNREADABLE, 0)
            | dict(leftovers.unreadable),
        }
    return values


def _by_kind(noticed: Mapping[str, Noticed]) -> dict[str, int]:
    """Return the number of issues by kind, summed over all fields."""
    counts = dict.fromkeys(KINDS, 0)
    for name, issue in noticed.items():
        counts[name.partition(" ")[0]] += issue.count
    return counts


def _age(now: int, since: int | None) -> float:
    return 0.0 if since is None else max(0.0, (now - since) / 1e6)


def of_learner(learner: Learning) -> dict[str, Value]:
    """Return the metrics of a learner. Only the leader has counts for the whole journal."""
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
            # The number of unmatched events can decrease, so it is not a counter.
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
    """Return the current half-life and when it was selected; empty if the policy has none."""
    if fold.policy.half_life is None:
        return {}
    weighting = fold.learner.weighting
    half_life, since = (fold.policy.half_life_us or 0) / 1e6, 0.0
    if isinstance(weighting, HalfLife):  # selected from several half-lives
        half_life = math.inf if weighting.half_life is None else weighting.half_life / 1e6
        since = weighting.since / 1e6
    return {"belated_half_life_seconds": half_life, "belated_half_life_since_seconds": since}


def of_leader(learner: Learning, report: BanditReport | None) -> dict[str, Value]:
    """Return metrics for a bandit that this process leads, from its last report and warnings."""
    gauges = None if report is None else report.gauges
    warnings = learner.adviser.current if isinstance(learner, LearningService) else frozenset()
    values: dict[str, Value] = {}
    if report is not None and gauges is not None:
        warnings = warnings.union(gauges.attention)
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
    return values | {"belated_advice": {check: check in warnings for check in CHECKS}}


@dataclass(eq=False)
class Metrics:
    """All metrics of a process, collected on each scrape.

    Attributes:
        bandits: Served bandits by name.
        learners: Learners of this process.
        requests: Number of requests by method, route path and status.
        tokens: Reward tokens by bandit.
        reports: Reports on all bandits. Each scrape may refresh the report on a bandit that this
            process leads.
        authorizer: Checks API keys; None if keys are not required.
        commits: Commits events for all bandits; None in a process that only learns.
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
        self._process = ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def listen(self, port: int, host: str = "127.0.0.1") -> Callable[[], None]:
        """Serve the metrics on a port, for a process that has no other HTTP server.

        Returns:
            A function that stops the server.
        """
        server, thread = start_http_server(port, addr=host, registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop

    def snapshot(self, *, scraped: bool) -> list[Metric]:
        """Return all metrics and those of the process itself.

        Args:
            scraped: Whether the metrics are for a scrape, which refreshes reports.
        """
        return [*self._process.collect(), *self.collect(scraped=scraped)]

    def collect(self, *, scraped: bool = True) -> Iterator[Metric]:
        """Yield all metrics. Called by the registry."""
        values: dict[str, dict[Any, Value]] = defaultdict(dict)

        def add(bandit: str, metrics: dict[str, Value]) -> None:
            for name, value in metrics.items():
                earlier: Any = values[name].get(bandit)
                if earlier is not None and isinstance(value, Mapping):  # by decider and learner
                    value = {label: earlier[label] + count for label, count in value.items()}  # noqa: PLW2901
                values[name][bandit] = value

        for name, bandit in dict(self.bandits).items():
            add(name, of_bandit(bandit))
        learners = dict(self.learners.running)
        led = {name: learner for name, learner in learners.items() if learner.leads()}
        if self.reports is not None and scraped:
            self.reports.watch(led)
        for name, learner in learners.items():
            add(name, of_learner(learner))
        for name, learner in led.items():
            add(name, of_leader(learner, None if self.reports is None else self.reports[name]))
        values |= self._of_process()
        for name in FAMILIES:
            yield metric_of(name, values.get(name))

    def _of_process(self) -> dict[str, Any]:
        failures = self.learners.failures
        values: dict[str, Value] = {
            "belated_learner_restarts": {name: failures[name] for name in self.learners.names},
            "belated_reward_tokens": {name: tokens.seen for name, tokens in self.tokens.items()},
            "belated_dead_workers": len(dead_workers()),
            "belated_worker_failures": worker_failures.copy(),
            "belated_http_requests": dict(self.requests),
        }
        if self.commits is not None:
            values["belated_commit_seconds"] = self.commits.seconds
            values["belated_commit_events"] = self.commits.sizes
        if self.authorizer is not None:
            values["belated_active_api_keys"] = self.authorizer.known
            values["belated_keys_age_seconds"] = self.authorizer.age
        return values


def metric_of(name: str, values: Value) -> Metric:
    """Build a metric with all of its values."""
    family = FAMILIES[name]
    metric = family.kind(name, family.help, labels=family.labels)

    def add(labels: tuple[str, ...], value: Value) -> None:
        if isinstance(value, Histogram):
            bounds = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]
            metric.add_metric(labels, list(zip(bounds, value.cumulative, strict=True)), value.total)
        elif isinstance(value, Mapping):
            for label, inner in value.items():
                inner_labels = label if isinstance(label, tuple) else (label,)
                add((*labels, *map(str, inner_labels)), inner)
        elif value is not None:
            metric.add_metric(labels, float(value))

    add((), values)
    return metric  # type: ignore[no-any-return]


class CombinedMetrics(Collector):
    """The metrics of several processes.

    Args:
        processes: Metrics of each process.
    """

    def __init__(self, processes: Iterable[Iterable[Metric]]) -> None:
        self._processes = processes

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self)

    def collect(self) -> list[Metric]:
        """Combine the values of each metric: sum counters, and take the maximum of most gauges."""
        metrics: dict[str, Metric] = {}
        values: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for metric in chain.from_iterable(self._processes):
            metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                values[metric.name, sample.name, *sample.labels.items()].append(sample.value)
        for (name, sample_name, *labels), numbers in values.items():
            metrics[name].add_sample(sample_name, dict(labels), _combination(name)(numbers))
        return list(metrics.values())


def _combination(name: str) -> Callable[[list[float]], float]:
    """Return the function that combines the values of a metric in several processes."""
    if name in FAMILIES:
        return FAMILIES[name].combine
    return max if name == "process_start_time_seconds" else sum  # metrics of the process itself
