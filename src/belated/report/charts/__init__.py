"""From data to pictures, as specifications of Vega-Lite 5: the second of three rooms."""

from __future__ import annotations

from typing import Any

from belated.report.charts import earning, running, trust, waiting
from belated.report.charts.tokens import DARK, LIGHT, coloured

__all__ = ["CHARTS", "DARK", "LIGHT", "coloured", "has_data", "specifications"]

#: By the name of the panel, in the order in which they are shown.
CHARTS = {
    "earn": earning.earn,
    "per_action": earning.per_action,
    "share": earning.share,
    "segments": earning.segments,
    "delay": waiting.delay,
    "forecast": waiting.forecast,
    "cohorts": waiting.cohorts,
    "pending": waiting.pending,
    "calibration": trust.calibration,
    "foregone": trust.foregone,
    "explore": trust.explore,
    "coefficients": trust.coefficients,
    "feed": running.feed,
    "lag": running.lag,
}


def has_data(data: dict[str, Any], panel: str) -> bool:
    """Whether there is something to draw."""
    if panel == "lag":
        return bool(data["feed"] and data["feed"]["lag"])
    return bool(data[panel])


def specifications(data: dict[str, Any], palette: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the specification of every chart that has data.

    Args:
        data: of the report.
        palette: of its colours; None: CSS variables of the page.
    """
    return {
        name: coloured(chart(data), palette)
        for name, chart in CHARTS.items()
        if has_data(data, name)
    }
