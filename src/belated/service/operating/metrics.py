"""Metrics for Prometheus: counted where things happen, put into its format when it asks.

Names, units and what to do about each are in the how-to on metrics. Labels are names of bandits,
paths of routes, and words from short lists: never an id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from belated.advice import CHECKS
from belated.decider import MODES
from belated.exceptions import MissingExtra
from belated.learner.forgetting import ForgettingLearner
from belated.service.access.authorizer import Authorizer
from belated.service.access.tokens import RewardTokens
from belated.service.console.reports import Reports
from belated.service.histogram import Histogram
from belated.service.learning.learners import Learners
from belated.service.learning.learning_service import LearningService
from belated.service.learning.shared_learner import SharedLearner
from belated.service.operating.shared_metrics import OF_SHARED, nothing
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

    from belated.service.operating.commit_metrics import buckets, commit_metrics
    from belated.service.operating.report_metrics import report_metrics
except ModuleNotFoundError:
    raise MissingExtra("the service", "service") from None


@dataclass(frozen=True)
class Measure:
    """What is told of each bandit.

    Attributes:
        kind: of the metric.
        name: of the metric, without ``_total``.
        help: what it is.
        read: gives its value; by a further label where it has one; None if there is none now.
        label: the further label.
    """

    kind: Callable[..., Any]
    name: str
    help: str
    read: Callable[[Any], float | Histogram | Mapping[str, float] | None]
    label: str = ""


def _of_bandit(
    kind: Callable[..., Any],
    name: str,
    help: str,
    read: Callable[[ServedBandit], float | Histogram | Mapping[str, float] | None],
    label: str = "",
) -> Measure:
    return Measure(kind, name, help, read, label)


def _of_learner(
    kind: Callable[..., Any],
    name: str,
    help: str,
    read: Callable[[LearningService], float | Histogram | Mapping[str, float] | None],
    label: str = "",
) -> Measure:
    return Measure(kind, name, help, read, label)


#: Why what processes left cannot be read; ``folder``: not even the names of the files can.
UNREADABLE = (*get_args(Unreadable), "folder")
_COUNTER, _GAUGE, _HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

#: What every process that decides can tell.
OF_BANDITS = (
    _of_bandit(
        _COUNTER, "belated_decisions", "Decisions made here.", lambda bandit: bandit.stats.decisions
    ),
    _of_bandit(
        _COUNTER, "belated_rewards", "Rewards accepted by this process.",
        lambda bandit: bandit.stats.rewards,
    ),
    _of_bandit(
        _COUNTER, "belated_activations_voids", "Activations and voids taken here.",
        lambda bandit: bandit.stats.activations_voids,
    ),
    _of_bandit(
        _COUNTER, "belated_store_duplicates",
        "Events sent again by this process, which the store had and did not write.",
        lambda bandit: bandit.duplicates,
    ),
    _of_bandit(
        _COUNTER, "belated_choice_entropy_nats",
        "Sum of -log p of the choices; divided by the decisions, how much is explored.",
        lambda bandit: bandit.stats.entropy,
    ),
    _of_bandit(
        _HISTOGRAM, "belated_decide_seconds",
        "From the request to the answer, the commit included.", lambda bandit: bandit.stats.seconds,
    ),
    _of_bandit(
        _GAUGE, "belated_model_age_seconds", "Since the model that chooses here was made.",
        lambda bandit: bandit.age,
    ),
    _of_bandit(
        _GAUGE, "belated_model_version", "Records that this model has learned from.",
        lambda bandit: bandit.version,
    ),
    _of_bandit(
        _COUNTER, "belated_models_loaded", "Models loaded here.", lambda bandit: bandit.stats.models
    ),
    _of_bandit(
        _GAUGE, "belated_unapplied_decisions",
        "Decisions made here that the model has not read yet.",
        lambda bandit: len(bandit.decider.unapplied),
    ),
    _of_bandit(
        _GAUGE, "belated_mode", "1 for how the bandit decides here: learn, freeze, baseline, off.",
        lambda bandit: {mode: float(mode == bandit.decider.mode) for mode in MODES}, "mode",
    ),
    _of_bandit(
        _COUNTER, "belated_fallback_decisions",
        "Decisions by the baseline because the model could not choose, by the reason.",
        lambda bandit: {"error": 0, "not finite": 0} | bandit.decider.fallbacks, "reason",
    ),
    _of_bandit(
        _GAUGE, "belated_journal_unavailable",
        "1 while the database is away and events wait on the local disk, else 0.",
        lambda bandit: None if bandit.spool is None else float(bandit.spool.journal_down),
    ),
    _of_bandit(
        _GAUGE, "belated_spool_events", "Events that wait on the local disk.",
        lambda bandit: None if bandit.spool is None else bandit.spool.queued,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_bytes", "Bytes they take.",
        lambda bandit: None if bandit.spool is None else bandit.spool.size,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_oldest_seconds", "Since the oldest of them came; 0 if none waits.",
        lambda bandit: None if bandit.spool is None else _age(bandit, bandit.spool.oldest),
    ),
    _of_bandit(
        _GAUGE, "belated_spool_left_events",
        "Events left on the local disk by processes that died, and not delivered yet.",
        lambda bandit: None if bandit.left_spools is None else bandit.left_spools.events,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_left_files", "Files with such events, or that cannot be read.",
        lambda bandit: None if bandit.left_spools is None else bandit.left_spools.files,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_unreadable_files", "Those that cannot be read, by why.",
        lambda bandit: None if bandit.left_spools is None
        else dict.fromkeys(UNREADABLE, 0) | dict(bandit.left_spools.unreadable), "reason",
    ),
    _of_bandit(
        _COUNTER, "belated_internal_errors",
        "Failures behind the requests: of a commit, or of taking a model (board, model).",
        lambda bandit: {"commit": bandit.failed_commits, "board": 0, "model": 0}
        | bandit.stats.failures, "kind",
    ),
)  # fmt: skip

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
        lambda learner: learner.history_changes,
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
        lambda learner: {name: float(name in learner.adviser.current) for name in CHECKS}
        if learner.leads() else {}, "warning",
    ),
    _of_learner(
        _GAUGE, "belated_delay_dependence",
        "How far rewards depend on their delay, over what chance may reach: above 1 they do.",
        lambda learner: learner.adviser.dependence.ratio
        if learner.leads() and learner.adviser.dependence is not None else None,
    ),
)  # fmt: skip


class Metrics:
    """A registry of its own, which looks at what is there when it is asked.

    Args:
        bandits: by the name of the bandit.
        learners: that run in this process.
        requests: how many there were, by method and path of their route and status.
        guard: gives what knows the keys, if anything does.
        tokens: by the name of the bandit.
        commits: gives what commits for all bandits, if anything does.
        reports: of all bandits, made anew for those that are led here; a scrape is a look at them.
    """

    def __init__(
        self,
        bandits: Mapping[str, ServedBandit],
        learners: Learners,
        requests: Mapping[tuple[str, str, int], int],
        guard: Callable[[], Authorizer | None] = lambda: None,
        tokens: Mapping[str, RewardTokens] | None = None,
        commits: Callable[[], GroupCommit | None] = lambda: None,
        reports: Reports | None = None,
    ) -> None:
        self._bandits = bandits
        self._learners = learners
        self._requests = requests
        self._guard = guard
        self._tokens = tokens or {}
        self._commits = commits
        self._reports = reports
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
        """What the registry asks for."""
        for measure in OF_BANDITS:
            yield _family(measure, dict(self._bandits))
        for measure in OF_LEARNERS:
            yield _family(measure, dict(self._learners.running))
        yield from commit_metrics(self._commits())
        yield from report_metrics(self._reports, self._learners)
        failures = _COUNTER(
            "belated_learner_restarts",
            "Learners that failed and were made anew.",
            labels=["bandit"],
        )
        for name in self._learners.names:
            failures.add_metric([name], self._learners.failures[name])
        yield failures
        requests = _COUNTER(
            "belated_http_requests", "Requests.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in list(self._requests.items()):
            requests.add_metric([method, route, str(status)], count)
        yield requests
        known = _GAUGE("belated_active_api_keys", "Keys that work.")
        age = _GAUGE("belated_keys_age_seconds", "Since the keys were last looked at.")
        if (guard := self._guard()) is not None:
            known.add_metric([], guard.known)
            age.add_metric([], guard.age)
        tokens = _COUNTER(
            "belated_reward_tokens", "Rewards by what their token was.", labels=["bandit", "token"]
        )
        for name, one in self._tokens.items():
            for verdict, count in one.seen.items():
                tokens.add_metric([name, verdict], count)
        yield from (known, age, tokens)


def _family(measure: Measure, subjects: Mapping[str, Any]) -> Metric:
    labels = ["bandit", measure.label] if measure.label else ["bandit"]
    family = measure.kind(measure.name, measure.help, labels=labels)
    for name, subject in subjects.items():
        shared = isinstance(subject, SharedLearner)
        value = (OF_SHARED.get(measure.name, nothing) if shared else measure.read)(subject)
        if isinstance(value, Histogram):
            family.add_metric([name], *buckets(value))
        elif isinstance(value, Mapping):
            for label, one in value.items():
                family.add_metric([name, label], one)
        elif value is not None:
            family.add_metric([name], value)
    return family  # type: ignore[no-any-return]


def _age(bandit: ServedBandit, since: int | None) -> float:
    return 0.0 if since is None else max(0.0, (bandit.now() - since) / 1e6)


def _counted(learner: LearningService, *, unmatched: bool) -> dict[str, float]:
    """Events by status. Those that are unmatched leave again, so that they are no counter."""
    total: dict[str, float] = {}
    for ledger in () if learner.fold is None else learner.fold.ledgers:
        for status, count in dict(ledger.counters).items():  # a copy: it is counted on meanwhile
            if (status == "unmatched") is unmatched:
                total[status] = total.get(status, 0.0) + count
    return total


def _half_life(learner: LearningService) -> tuple[float, float] | None:
    """The half-life in use and since when, in seconds; None if the policy has none."""
    if learner.fold is None or learner.fold.policy.half_life is None:
        return None
    fitted = learner.fold.learner
    if not isinstance(fitted, ForgettingLearner):  # it has one, and no others to compare with
        return (fitted.policy.half_life_us or 0) / 1e6, 0.0
    return math.inf if fitted.half_life is None else fitted.half_life / 1e6, fitted.since / 1e6
