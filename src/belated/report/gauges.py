"""Report values that are exported as metrics."""

from __future__ import annotations

from typing import Any

import msgspec

from belated.report.vega import complete


class Gauges(msgspec.Struct, frozen=True):
    """Headline figures of a report, and the findings that need attention.

    Attributes:
        reward: reward per decision of the bandit and, if there is one, of the holdout.
        lift: relative lift over the holdout: the estimate, and the lower and upper bound of its
            interval; empty if unknown.
        share: share of each action in the decisions of the last complete period.
        predicted: ratio of predicted to observed reward of recent decisions; None if there are too
            few rewards.
        attention: kinds of findings that need attention.
    """

    reward: dict[str, float] = {}
    lift: dict[str, float] = {}
    share: dict[str, float] = {}
    predicted: float | None = None
    attention: list[str] = []

    @classmethod
    def of(cls, data: dict[str, Any]) -> Gauges:
        """Create the gauges from a report.

        Args:
            data: data of the report.
        """
        head = data["headline"]
        groups = {"bandit": "per_decision", "holdout": "per_decision_holdout"}
        lift = head.get("lift", {})
        shares = complete(data, data["share"])
        last = max((row["t"] for row in shares), default=0)
        calibration = data["calibration"]
        return cls(
            reward=_known({group: head.get(key, {}).get("p") for group, key in groups.items()}),
            lift=_known({"estimate": lift.get("p"), "low": lift.get("lo"), "high": lift.get("hi")}),
            share={row["action"]: row["share"] for row in shares if row["t"] == last},
            predicted=None if calibration is None else 1.0 + calibration["bias"],
            attention=sorted({item["kind"] for item in data["attention"]}),
        )


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
