"""Metrics for Prometheus: counted where things happen, put into its format when it asks.

Names, units and what to do about each are in the how-to on metrics. Labels are names of bandits,
paths of routes, and words from short lists: never an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from belated.exceptions import MissingExtra
from belated.service.access.authorizer import Authorizer
from belated.service.access.tokens import RewardTokens
from belated.service.console.reports import Reports
from belated.service.learning.learners import Learners
from belated.service.runtime import dead_workers
from belated.service.runtime import failures as worker_failures
from belated.service.serving.group_commit import GroupCommit
from belated.service.serving.served_bandit import ServedBandit

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import generate_latest, start_http_server

    from belated.service.operating.bandit_metrics import OF_BANDITS
    from belated.service.operating.commit_metrics import commit_metrics
    from belated.service.operating.learner_metrics import OF_LEARNERS
    from belated.service.operating.measures import metric_of
    from belated.service.operating.report_metrics import report_metrics
except ModuleNotFoundError:
    raise MissingExtra("the service", "service") from None


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
        bandits, learners = dict(self._bandits), dict(self._learners.running)
        yield from (metric_of(measure, bandits) for measure in OF_BANDITS)
        yield from (metric_of(measure, learners) for measure in OF_LEARNERS)
        yield from commit_metrics(self._commits())
        yield from report_metrics(self._reports, self._learners)
        failures = CounterMetricFamily(
            "belated_learner_restarts",
            "Learners that failed and were made anew.",
            labels=["bandit"],
        )
        for name in self._learners.names:
            failures.add_metric([name], self._learners.failures[name])
        yield failures
        dead = GaugeMetricFamily(
            "belated_dead_workers", "Workers that have ended, or have failed for a minute."
        )
        dead.add_metric([], len(dead_workers()))
        failed = CounterMetricFamily(
            "belated_worker_failures", "Errors of workers; each is retried.", labels=["worker"]
        )
        for name, count in worker_failures.copy().items():
            failed.add_metric([name], count)
        yield from (dead, failed)
        requests = CounterMetricFamily(
            "belated_http_requests", "Requests.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in list(self._requests.items()):
            requests.add_metric([method, route, str(status)], count)
        yield requests
        known = GaugeMetricFamily("belated_active_api_keys", "Keys that work.")
        age = GaugeMetricFamily("belated_keys_age_seconds", "Since the keys were last looked at.")
        if (guard := self._guard()) is not None:
            known.add_metric([], guard.known)
            age.add_metric([], guard.age)
        tokens = CounterMetricFamily(
            "belated_reward_tokens", "Rewards by what their token was.", labels=["bandit", "token"]
        )
        for name, one in self._tokens.items():
            for verdict, count in one.seen.items():
                tokens.add_metric([name, verdict], count)
        yield from (known, age, tokens)
