"""Metrics of what bandits earn, from their reports; told by the process that leads a bandit."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from belated.advice import CHECKS
from belated.service.console.reports import BanditReport, Reports
from belated.service.learning.learners import Learners

#: For actions that only callers name.
OTHERS = "others"


def report_metrics(reports: Reports | None, learners: Learners) -> Iterator[Metric]:
    """Return what the last reports say of the bandits that are led here, and have newer ones made.

    Args:
        reports: of all bandits of the process; None if nobody makes any.
        learners: that run in it.
    """
    made: dict[str, BanditReport] = {}
    if reports is not None:
        led = [name for name, one in list(learners.running.items()) if one.leads()]
        reports.watch(led)
        made = {name: reports[name] for name in led}
    age = _gauge("belated_report_age_seconds", "Since the last report was made.")
    reward = _gauge("belated_reward_per_decision", "What a decision earns.", "group")
    lift = _gauge("belated_lift_ratio", "How much more the bandit earns than its holdout.", "bound")
    share = _gauge("belated_action_share", "Of the decisions of the last period.", "action")
    predicted = _gauge("belated_predicted_ratio", "Predicted rewards over those that came.")
    attention = _gauge("belated_attention", "1 for what needs attention.", "kind")
    for name, report in made.items():
        gauges = report.gauges
        if gauges is None:
            continue
        age.add_metric([name], time.monotonic() - report.made_at)
        for family, values in (
            (reward, gauges.reward),
            (lift, gauges.lift),
            (share, _named(gauges.share, report.actions)),
            (attention, {kind: float(kind in gauges.attention) for kind in CHECKS}),
        ):
            for label, value in values.items():
                family.add_metric([name, label], value)
        if gauges.predicted is not None:
            predicted.add_metric([name], gauges.predicted)
    yield from (age, reward, lift, share, predicted, attention)


def _named(shares: Mapping[str, float], actions: Collection[str]) -> dict[str, float]:
    """The shares of actions that the configuration names, and of all others together."""
    found = {name: share for name, share in shares.items() if name in actions}
    rest = sum(share for name, share in shares.items() if name not in actions)
    return found | {OTHERS: rest} if rest else found


def _gauge(name: str, help: str, label: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, labels=["bandit", label] if label else ["bandit"])
