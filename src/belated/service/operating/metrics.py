"""Metrics for Prometheus: counted where things happen, put into its format when it asks.

Names, units and what to do about each are in the how-to on metrics. Labels are names of bandits,
paths of routes, and words from short lists: never an id.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, get_args

from belated.advice import CHECKS
from belated.decider import MODES
from belated.exceptions import MissingExtra
from belated.fold.weighting import HalfLife
from belated.service.access.authorizer import Authorizer
from belated.service.access.tokens import RewardTokens
from belated.service.console.reports import BanditReport, Reports
from belated.service.histogram import Histogram
from belated.service.learning.learners import Learners, Learning
from belated.service.learning.learning_service import LearningService
from belated.service.learning.shared_learner import SharedLearner
from belated.service.runtime import dead_workers
from belated.service.runtime import failures as worker_failures
from belated.service.serving.group_commit import GroupCommit
from belated.service.serving.served_bandit import ServedBandit
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


def _nothing(subject: Any) -> Value:
    """There is no such value."""
    return None


class Measure(NamedTuple):
    """A metric, and what gives its values.

    Attributes:
        kind: of the metric.
        name: of the metric, without ``_total``.
        help: what it is.
        read: gives the value for one bandit, its learner or its report; or that of the process.
        labels: of the metric; the first is the bandit if there is a value for each.
        shared: gives the value for one of several learners of a bandit.
    """

    kind: Callable[..., Any]
    name: str
    help: str
    read: Callable[[Any], Value]
    labels: tuple[str, ...] = ("bandit",)
    shared: Callable[[SharedLearner], Value] = _nothing


_counter = partial(Measure, CounterMetricFamily)
_gauge = partial(Measure, GaugeMetricFamily)
_histogram = partial(Measure, HistogramMetricFamily)


# --- bandits at a decider ------------------------------------------------------------------------


def _spool_age(bandit: ServedBandit) -> Value:
    if bandit.spool is None:
        return None
    since = bandit.spool.oldest
    return 0.0 if since is None else max(0.0, (bandit.now() - since) / 1e6)


def _unreadable(bandit: ServedBandit) -> Value:
    left = bandit.left_spools
    return None if left is None else dict.fromkeys(UNREADABLE, 0) | dict(left.unreadable)


def _failures(bandit: ServedBandit) -> Value:
    kinds = {"commit": bandit.failed_commits, "board": 0, "model": 0}
    return kinds | bandit.stats.failures


#: What every process that decides can tell.
OF_BANDITS = (
    _counter("belated_decisions", "Decisions made here.", lambda bandit: bandit.stats.decisions),
    _counter(
        "belated_rewards", "Rewards accepted by this process.", lambda bandit: bandit.stats.rewards
    ),
    _counter(
        "belated_activations_voids", "Activations and voids accepted here.",
        lambda bandit: bandit.stats.activations_voids,
    ),
    _counter(
        "belated_unmatched_refused",
        "Events refused because too many wait for decisions that are unknown.",
        lambda bandit: bandit.stats.unmatched_refused,
    ),
    _counter(
        "belated_store_duplicates",
        "Events sent again by this process, which the store had and did not write.",
        lambda bandit: bandit.duplicates,
    ),
    _counter(
        "belated_choice_entropy_nats",
        "Sum of -log p of the choices; divided by the decisions, how much is explored.",
        lambda bandit: bandit.stats.entropy,
    ),
    _histogram(
        "belated_decide_seconds", "From the request to the answer, the commit included.",
        lambda bandit: bandit.stats.seconds,
    ),
    _gauge(
        "belated_model_age_seconds", "Since the model that chooses here was made.",
        lambda bandit: bandit.age,
    ),
    _gauge(
        "belated_model_version", "Records that this model has learned from.",
        lambda bandit: bandit.version,
    ),
    _counter("belated_models_loaded", "Models loaded here.", lambda bandit: bandit.stats.models),
    _gauge(
        "belated_unapplied_decisions", "Decisions made here that the model has not read yet.",
        lambda bandit: len(bandit.decider.unapplied),
    ),
    _gauge(
        "belated_mode", "1 for how the bandit decides here: learn, freeze, baseline, off.",
        lambda bandit: {mode: mode == bandit.decider.mode for mode in MODES}, ("bandit", "mode"),
    ),
    _counter(
        "belated_fallback_decisions",
        "Decisions by the baseline because the model could not choose, by the reason.",
        lambda bandit: {"error": 0, "not finite": 0} | bandit.decider.fallbacks,
        ("bandit", "reason"),
    ),
    _gauge(
        "belated_journal_unavailable",
        "1 while the database is away and events wait on the local disk, else 0.",
        lambda bandit: bandit.spool and bandit.spool.journal_down,
    ),
    _gauge(
        "belated_spool_events", "Events that wait on the local disk.",
        lambda bandit: bandit.spool and bandit.spool.queued,
    ),
    _gauge(
        "belated_spool_bytes", "Bytes they take.", lambda bandit: bandit.spool and bandit.spool.size
    ),
    _gauge(
        "belated_spool_oldest_seconds", "Since the oldest of them came; 0 if none waits.",
        _spool_age,
    ),
    _gauge(
        "belated_spool_left_events",
        "Events left on the local disk by processes that died, and not delivered yet.",
        lambda bandit: bandit.left_spools and bandit.left_spools.events,
    ),
    _gauge(
        "belated_spool_left_files", "Files with such events, or that cannot be read.",
        lambda bandit: bandit.left_spools and bandit.left_spools.files,
    ),
    _gauge(
        "belated_spool_unreadable_files", "Those that cannot be read, by why.", _unreadable,
        ("bandit", "reason"),
    ),
    _counter(
        "belated_internal_errors",
        "Failures behind the requests: of a commit, or of loading a model (board, model).",
        _failures, ("bandit", "kind"),
    ),
)  # fmt: skip


# --- learners ------------------------------------------------------------------------------------


def _events(learner: LearningService) -> dict[str, float]:
    total: dict[str, float] = {}
    for ledger in () if learner.fold is None else learner.fold.ledgers.values():
        for status, count in dict(ledger.counters).items():  # a copy: it is counted on meanwhile
            total[status] = total.get(status, 0.0) + count
    return total


def _merged_events(learner: SharedLearner) -> dict[str, float]:
    merging = learner.merger.merging
    return {} if merging is None else dict(merging.counters)


def _merged_states(learner: SharedLearner) -> Mapping[str, float]:
    merging = learner.merger.merging
    return {} if merging is None else merging.counts


def _final(events: dict[str, float]) -> Value:
    """All but those that are unmatched, which leave again: a counter must not decrease."""
    return {status: count for status, count in events.items() if status != "unmatched"}


def _merged_oldest_age(learner: SharedLearner) -> Value:
    merging = learner.merger.merging
    if merging is None:
        return None
    oldest = merging.oldest
    return 0.0 if oldest is None else max(0.0, (learner.worker.clock.now() - oldest) / 1e6)


def _half_life(part: int) -> Callable[[LearningService], Value]:
    """The half-life in use, or since when, in seconds; None if the policy has none."""

    def read(learner: LearningService) -> Value:
        if learner.fold is None or learner.fold.policy.half_life is None:
            return None
        weighting = learner.fold.learner.weighting
        if not isinstance(weighting, HalfLife):  # it has one, and no others to compare with
            return ((learner.fold.policy.half_life_us or 0) / 1e6, 0.0)[part]
        half_life = math.inf if weighting.half_life is None else weighting.half_life / 1e6
        return (half_life, weighting.since / 1e6)[part]

    return read


def _dependence(learner: LearningService) -> Value:
    dependence = learner.adviser.dependence
    return None if dependence is None else dependence.ratio


def _if_leading(read: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """Only the learner that leads tells this."""
    return lambda learner: read(learner) if learner.leads() else None


#: What a process that learns can tell; of several learners of a bandit, the leader has that of all.
OF_LEARNERS = (
    _gauge(
        "belated_learner_is_leader", "1 if this process learns the bandit, 0 if it stands by.",
        lambda learner: learner.leads(), shared=lambda learner: learner.leads(),
    ),
    _gauge(
        "belated_learner_lag_seconds",
        "From the commit of a record to its folding, of the last one.",
        _if_leading(lambda learner: learner.lag),
        shared=lambda learner: learner.worker.lag if learner.worker.owned else None,
    ),
    _histogram(
        "belated_fold_lag_seconds",
        "From the commit of a record to its folding, of the oldest of those read together.",
        lambda learner: learner.lags, shared=lambda learner: learner.worker.lags,
    ),
    _histogram(
        "belated_fit_seconds", "Duration of a fit of all rewards, beside the folding.",
        lambda learner: learner.fits,
    ),
    _gauge(
        "belated_journal_head_info",
        "1 for the head of the journal, taken once an hour: `journal verify --expect` checks it.",
        _if_leading(lambda learner: {learner.head: 1.0} if learner.head else {}),
        ("bandit", "head"),
        lambda learner: {learner.merger.head: 1.0} if learner.merger.head else {},
    ),
    _counter(
        "belated_history_changes",
        "Times at which records that were folded were gone from the journal, or others.",
        lambda learner: learner.history_changes.count,
        shared=lambda learner: learner.worker.history_changes.count,
    ),
    _counter(
        "belated_refold_disagreements",
        "Partitions that a second fold from the first record finds otherwise.",
        lambda learner: learner.refold.disagreements,
    ),
    _counter(
        "belated_refolds", "Partitions that were folded again and compared.",
        lambda learner: learner.refold.compared,
    ),
    _gauge(
        "belated_journal_clock_ahead_seconds",
        "By how much the last stamp of the journal is ahead of the clock that stamps.",
        _if_leading(lambda learner: learner.clock.ahead()),
        shared=lambda learner: learner.worker.clock.ahead(),
    ),
    _gauge(
        "belated_journal_clock_offset_seconds",
        "By how much the clock that stamps is ahead of that of this machine.",
        _if_leading(lambda learner: learner.clock.offset),
        shared=lambda learner: learner.worker.clock.offset,
    ),
    _counter(
        "belated_learner_events", "Events by what they meant, over the whole journal.",
        lambda learner: _final(_events(learner)), ("bandit", "status"),
        lambda learner: _final(_merged_events(learner)),
    ),
    _gauge(
        "belated_unmatched_events", "Events whose decision is not known.",
        _if_leading(lambda learner: _events(learner).get("unmatched", 0.0)),
        shared=_if_leading(lambda learner: _merged_events(learner).get("unmatched", 0.0)),
    ),
    _gauge(
        "belated_learner_decisions", "Decisions by state, over the whole journal.",
        lambda learner: None if learner.fold is None else learner.fold.counts,
        ("bandit", "state"), _merged_states,
    ),
    _gauge(
        "belated_pending_decisions", "Decisions whose reward is out.",
        lambda learner: None if learner.fold is None else learner.fold.model.pending,
        shared=_if_leading(lambda learner: _merged_states(learner).get("pending")),
    ),
    _gauge(
        "belated_pending_oldest_seconds", "Age of the oldest of them.",
        _if_leading(lambda learner: learner.oldest_age()), shared=_merged_oldest_age,
    ),
    _histogram(
        "belated_reward_delay_seconds",
        "From the record of a decision to that of its reward; of a crowd only some.",
        lambda learner: learner.delays,
    ),
    _gauge(
        "belated_half_life_seconds",
        "After which a decision counts for half as much; infinite if nothing is forgotten.",
        _half_life(0),
    ),
    _gauge(
        "belated_half_life_since_seconds",
        "When this half-life was picked, in seconds since 1970; 0 if there was no other.",
        _half_life(1),
    ),
    _gauge(
        "belated_delay_dependence",
        "How far rewards depend on their delay, over what chance may reach: above 1 they do.",
        _if_leading(_dependence),
    ),
)  # fmt: skip


# --- what bandits earn, from their reports -------------------------------------------------------


def _shares(report: BanditReport) -> Value:
    """The shares of actions that the configuration names, and of all others together."""
    if report.gauges is None:
        return None
    shares: dict[str, float] = {}
    for name, share in report.gauges.share.items():
        label = name if name in report.actions else OTHERS
        shares[label] = shares.get(label, 0.0) + share
    return shares


#: What the process that leads a bandit can tell.
OF_REPORTS = (
    _gauge(
        "belated_report_age_seconds", "Since the last report was made.",
        lambda report: None if report.gauges is None else time.monotonic() - report.made_at,
    ),
    _gauge(
        "belated_reward_per_decision", "What a decision earns.",
        lambda report: report.gauges and report.gauges.reward, ("bandit", "group"),
    ),
    _gauge(
        "belated_lift_ratio", "How much more the bandit earns than its holdout.",
        lambda report: report.gauges and report.gauges.lift, ("bandit", "bound"),
    ),
    _gauge(
        "belated_action_share", "Of the decisions of the last period.", _shares,
        ("bandit", "action"),
    ),
    _gauge(
        "belated_predicted_ratio", "Predicted rewards over those that came.",
        lambda report: report.gauges and report.gauges.predicted,
    ),
)  # fmt: skip


# --- the process ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Metrics:
    """A registry of its own, which looks at what is there when it is asked.

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

    def led(self) -> dict[str, Learning]:
        """The learners that lead."""
        return {name: one for name, one in dict(self.learners.running).items() if one.leads()}

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for."""
        led = self.led()
        reports = {}
        if self.reports is not None:
            self.reports.watch(led)
            reports = {name: self.reports[name] for name in led}
        for measures, subjects in (
            (OF_BANDITS, dict(self.bandits)),
            (OF_LEARNERS, dict(self.learners.running)),
            (OF_REPORTS, reports),
        ):
            for measure in measures:
                yield _family(measure, {name: _read(measure, subjects[name]) for name in subjects})
        for measure in OF_PROCESSES:
            yield _family(measure, measure.read(self))


def _advice(metrics: Metrics) -> Value:
    """By bandit, 1 for what its learner or its last report finds."""
    advice = {}
    for name, learner in metrics.led().items():
        found: set[str] = set()
        if isinstance(learner, LearningService):
            found |= learner.adviser.current
        if metrics.reports is not None and (gauges := metrics.reports[name].gauges) is not None:
            found |= set(gauges.attention)
        advice[name] = {check: check in found for check in CHECKS}
    return advice


#: What is told of a process, and not of one bandit's part in it.
OF_PROCESSES = (
    _gauge(
        "belated_advice", "1 while a check finds what may hurt users, else 0.", _advice,
        ("bandit", "warning"),
    ),
    _histogram(
        "belated_commit_seconds", "Duration of a commit.",
        lambda metrics: metrics.commits and metrics.commits.seconds, (),
    ),
    _histogram(
        "belated_commit_events", "Events in a commit, of all bandits.",
        lambda metrics: metrics.commits and metrics.commits.sizes, (),
    ),
    _counter(
        "belated_learner_restarts", "Learners that failed and were made anew.",
        lambda metrics: {name: metrics.learners.failures[name] for name in metrics.learners.names},
    ),
    _gauge(
        "belated_dead_workers", "Workers that have ended, or have failed for a minute.",
        lambda metrics: len(dead_workers()), (),
    ),
    _counter(
        "belated_worker_failures", "Errors of workers; each is retried.",
        lambda metrics: worker_failures.copy(), ("worker",),
    ),
    _counter(
        "belated_http_requests", "Requests.", lambda metrics: dict(metrics.requests),
        ("method", "route", "status"),
    ),
    _gauge(
        "belated_active_api_keys", "Keys that work.",
        lambda metrics: metrics.authorizer and metrics.authorizer.known, (),
    ),
    _gauge(
        "belated_keys_age_seconds", "Since the keys were last looked at.",
        lambda metrics: metrics.authorizer and metrics.authorizer.age, (),
    ),
    _counter(
        "belated_reward_tokens", "Rewards by what their token was.",
        lambda metrics: {name: tokens.seen for name, tokens in metrics.tokens.items()},
        ("bandit", "token"),
    ),
)  # fmt: skip


def _read(measure: Measure, subject: Any) -> Value:
    return (measure.shared if isinstance(subject, SharedLearner) else measure.read)(subject)


def _family(measure: Measure, value: Value) -> Metric:
    """The metric with all its values."""
    family = measure.kind(measure.name, measure.help, labels=measure.labels)

    def add(labels: tuple[str, ...], value: Value) -> None:
        if isinstance(value, Histogram):
            bounds = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]
            family.add_metric(labels, list(zip(bounds, value.cumulative, strict=True)), value.total)
        elif isinstance(value, Mapping):
            for label, inner in value.items():
                more = label if isinstance(label, tuple) else (label,)
                add((*labels, *map(str, more)), inner)
        elif value is not None:
            family.add_metric(labels, float(value))

    add((), value)
    return family  # type: ignore[no-any-return]
