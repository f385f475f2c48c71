"""The few numbers of a report that a monitoring system keeps."""

from __future__ import annotations

from typing import Any

import msgspec


class Gauges(msgspec.Struct, frozen=True):
    """What a bandit earns, and what needs attention.

    Attributes:
        reward: reward per decision, of the bandit and, if there is one, of the holdout.
        lift: of the bandit over its holdout, as a share: the estimate and both ends of its
            interval; empty if it is not known.
        share: of each action in the decisions of the last period.
        predicted: what was predicted for recent decisions, over what they came to; None if too
            little has come.
        attention: the kinds of what needs attention.
    """

    reward: dict[str, float] = {}
    lift: dict[str, float] = {}
    share: dict[str, float] = {}
    predicted: float | None = None
    attention: list[str] = []

    @classmethod
    def of(cls, data: dict[str, Any]) -> Gauges:
        """Those of a report.

        Args:
            data: of the report.
        """
        head = data["headline"]
        groups = {"bandit": "per_decision", "holdout": "per_decision_holdout"}
        lift = head.get("lift", {})
        last = max((row["t"] for row in data["share"]), default=0)
        off = data["calibration"]
        return cls(
            reward=_known({group: head.get(key, {}).get("p") for group, key in groups.items()}),
            lift=_known({"estimate": lift.get("p"), "low": lift.get("lo"), "high": lift.get("hi")}),
            share={row["action"]: row["share"] for row in data["share"] if row["t"] == last},
            predicted=None if off is None else 1.0 + off["bias"],
            attention=sorted({one["kind"] for one in data["attention"]}),
        )


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
