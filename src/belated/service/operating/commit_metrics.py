"""Metrics of the commits, which all bandits of a process share."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from belated.service.histogram import Histogram
from belated.service.serving.group_commit import GroupCommit


def commit_metrics(commits: GroupCommit | None) -> Iterator[Metric]:
    """Return how long commits took, and how many events each had; nothing where nothing commits."""
    seconds = HistogramMetricFamily("belated_commit_seconds", "Duration of a commit.")
    events = HistogramMetricFamily("belated_commit_events", "Events in a commit, of all bandits.")
    if commits is not None:
        seconds.add_metric([], *buckets(commits.seconds))
        events.add_metric([], *buckets(commits.sizes))
    yield from (seconds, events)


def buckets(histogram: Histogram) -> tuple[list[tuple[str, int]], float]:
    """Return what a metric takes: counts by their bound, and the sum."""
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    return list(zip(bounds, histogram.cumulative, strict=True)), histogram.total
