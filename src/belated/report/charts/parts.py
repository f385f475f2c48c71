"""What specifications are made of: axes, marks, and names of times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Rows = list[dict[str, Any]]
Spec = dict[str, Any]

CONFIG: Spec = {
    "background": None,
    "font": "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "padding": {"left": 2, "right": 2, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domain": False, "ticks": False, "gridColor": "$grid", "labelColor": "$muted",
        "labelFontSize": 11, "labelPadding": 6, "title": None, "titleColor": "$muted",
        "titleFontSize": 11, "titleFontWeight": 400, "tickCount": 5,
    },
    "axisX": {"grid": False, "labelFlush": True, "domain": True, "domainColor": "$grid"},
    "legend": {"disable": True},
    "text": {"fontSize": 11, "fill": "$ink"},
}  # fmt: skip
#: How ranges are drawn.
RANGE: Spec = {"type": "rule", "strokeWidth": 5, "opacity": 0.28, "strokeCap": "round"}
#: Ticks of a time axis.
TICKS = 5


def spec(layers: Rows, height: int, **more: Any) -> Spec:
    """A specification of layers, as wide as its card."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": layers,
        "config": CONFIG,
        **more,
    }


def layer(rows: Rows | None, mark: Spec | str, **encoding: Any) -> Spec:
    """One mark of rows; of the rows of the specification if None."""
    found: Spec = {"mark": mark, "encoding": encoding}
    return found if rows is None else {"data": {"values": rows}, **found}


class TimeAxis:
    """Times of a report: its ticks, and how a moment is written."""

    def __init__(self, data: Spec) -> None:
        day = 86_400_000
        self.step: int = data["period_ms"]
        self._format = "%-d %b" if self.step >= day else "%H:%M"
        if self.step < 60_000:
            self._format = "%H:%M:%S"
        if day > self.step >= 3_600_000:
            self._format = "%-d %b %H:%M"
        first, last = data["from"], data["as_of"]
        every = self.step * max(round((last - first) / self.step / TICKS), 1)
        self._ticks = [_moment(at) for at in range(first, last + 3 * every, every)]

    def x(self, field: str = "t") -> Spec:
        """The axis. Its ticks are moments: plain numbers vanish without ``eval``."""
        return {
            "field": field,
            "type": "temporal",
            "scale": {"type": "utc"},
            "axis": {
                "values": self._ticks,
                "labelOverlap": True,
                "grid": False,
                "labelExpr": f"utcFormat(datum.value, '{self._format}')",
            },
            "title": None,
        }

    def name(self, ms: int) -> str:
        """A moment in words."""
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(self._format)

    def named(self, rows: Rows, field: str = "t") -> Rows:
        """Rows with the name of their time."""
        return [{**row, "when": self.name(row[field])} for row in rows]


def _moment(ms: int) -> Spec:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    found = {"year": at.year, "month": at.month, "date": at.day, "hours": at.hour}
    return {**found, "minutes": at.minute, "seconds": at.second, "utc": True}


def y(field: str, form: str, **more: Any) -> Spec:
    """A number upwards."""
    axis = {"format": form, **more.pop("axis", {})}
    return {"field": field, "type": "quantitative", "axis": axis, "title": None, **more}


def tips(*items: tuple[str, str, str | None]) -> Rows:
    """What is told of a mark under the pointer: field, name and format."""
    found = []
    for field, name, form in items:
        kind = "nominal" if form is None else "quantitative"
        found.append(
            {"field": field, "type": kind, "title": name} | ({"format": form} if form else {})
        )
    return found


def arms() -> Spec:
    """The colours of bandit and holdout."""
    scale = {"domain": ["Bandit", "Holdout"], "range": ["$accent", "$slate"]}
    return {"field": "arm", "type": "nominal", "scale": scale}


def outages(data: Spec) -> Rows:
    """Shades where no reward came."""
    found = (data.get("feed") or {}).get("outages")
    if not found:
        return []
    scale = {"type": "utc"}
    x = {"field": "from", "type": "temporal", "scale": scale}
    mark = {"type": "rect", "fill": "$warn", "opacity": 0.16}
    return [layer(found, mark, x=x, x2={"field": "to"})]
