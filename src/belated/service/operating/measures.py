"""What can be told of each bandit, and how it becomes a metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client.core import Metric

from belated.service.histogram import Histogram
from belated.service.learning.shared_learner import SharedLearner
from belated.service.operating.commit_metrics import buckets
from belated.service.operating.shared_metrics import OF_SHARED, nothing

S = TypeVar("S")


@dataclass(frozen=True)
class Measure(Generic[S]):
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
    read: Callable[[S], float | Histogram | Mapping[str, float] | None]
    label: str = ""


def metric_of(measure: Measure[Any], subjects: Mapping[str, Any]) -> Metric:
    """The metric of all these, by the names of their bandits."""
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
