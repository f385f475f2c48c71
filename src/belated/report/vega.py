"""Parts of Vega-Lite specifications: colours, axes, marks and time labels.

Colours are named by their meaning. They become CSS variables on a page and hex codes in an image.
``tests/unit/test_report_page.py`` measures their contrast.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from belated.core.times import largest_unit
from belated.report.text import symbol

Rows = list[dict[str, Any]]
Spec = dict[str, Any]

LIGHT = {
    "bg": "#f6f8fb", "card": "#ffffff", "ink": "#1a1f36", "muted": "#5b6478", "grid": "#e6eaf1",
    "accent": "#3a5bd9", "slate": "#5f6a7e", "warn": "#c2410c", "good": "#0b7a53",
    "a1": "#3a5bd9", "a2": "#b4560f", "a3": "#0f7f71", "a4": "#a03a8c",
    "a5": "#5f6b7d", "a6": "#8a6d00", "a7": "#2b7bb0", "a8": "#b3374f",
}  # fmt: skip
DARK = {
    "bg": "#0d1117", "card": "#161c26", "ink": "#e8ecf4", "muted": "#9aa5b8", "grid": "#28303d",
    "accent": "#7c9cff", "slate": "#a3aec0", "warn": "#ff9a5c", "good": "#4fd6a0",
    "a1": "#7c9cff", "a2": "#f2a65a", "a3": "#4cc9b5", "a4": "#e08fd0",
    "a5": "#9aa5b8", "a6": "#d9c25a", "a7": "#6fc3f0", "a8": "#ff8fa3",
}  # fmt: skip
#: Colours of actions, in order.
COLOURS = tuple(f"$a{n}" for n in range(1, 9))
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
#: Mark of an interval.
RANGE: Spec = {"type": "rule", "strokeWidth": 5, "opacity": 0.28, "strokeCap": "round"}
#: Approximate number of ticks of a time axis.
TICKS = 5


def spec(layers: Rows, height: int, **more: Any) -> Spec:
    """Return a layered specification that is as wide as its card."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": layers,
        **more,
    }


def layer(rows: Rows | None, mark: Spec | str, **encoding: Any) -> Spec:
    """Return a layer with one mark; if ``rows`` is None, it inherits the specification's data."""
    result: Spec = {"mark": mark, "encoding": encoding}
    return result if rows is None else {"data": {"values": rows}, **result}


def config(data: Spec) -> Spec:
    """Return the settings of all charts, with the currency of the report."""
    if not data["currency"]:
        return CONFIG
    number = {"decimal": ".", "thousands": ",", "grouping": [3]}
    return {**CONFIG, "locale": {"number": {**number, "currency": [symbol(data["currency"]), ""]}}}


class TimeAxis:
    """The time axis of a report.

    Args:
        data: data of the report.
    """

    def __init__(self, data: Spec) -> None:
        self.step: int = data["period_ms"]
        self._partial: int | None = data.get("partial")
        formats = {86_400_000: "%-d %b", 3_600_000: "%-d %b %H:%M", 60_000: "%H:%M"}
        fitting = (form for least, form in formats.items() if self.step >= least)
        self._format = next(fitting, "%H:%M:%S")
        first, last = data["from"], data["as_of"]
        spacing = self.step * max(round((last - first) / self.step / TICKS), 1)
        self._ticks = [_moment(at) for at in range(first, last + 3 * spacing, spacing)]

    def x(self, field: str = "t") -> Spec:
        """Return the axis. Ticks are date objects, because numeric ticks require ``eval``."""
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
        """Format a time."""
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(self._format)

    def named(self, rows: Rows, field: str = "t") -> Rows:
        """Return the rows with a time label, which also marks a partial period."""
        partial = self._partial
        return [
            {**row, "when": self.name(row[field]) + (" (partial)" if row[field] == partial else "")}
            for row in rows
        ]


def _moment(ms: int) -> Spec:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    fields = {"year": at.year, "month": at.month, "date": at.day, "hours": at.hour}
    return {**fields, "minutes": at.minute, "seconds": at.second, "utc": True}


def y(field: str, form: str, **more: Any) -> Spec:
    """Return a vertical axis."""
    axis = {"format": form, **more.pop("axis", {})}
    return {**number(field), "axis": axis, "title": None, **more}


def count_axis(field: str) -> Spec:
    """Return a vertical axis of whole numbers; ticks between them have no label."""
    return y(field, ",d", axis={"labelExpr": "datum.value % 1 ? '' : datum.label"})


def tips(*items: tuple[str, str, str | None]) -> Rows:
    """Return the tooltip of a mark: field, name and format of each line."""
    return [
        {**number(field), "title": name, "format": form}
        if form
        else {"field": field, "type": "nominal", "title": name}
        for field, name, form in items
    ]


def ends(form: str) -> tuple[tuple[str, str, str], ...]:
    """Return the ends of an interval, for :func:`tips`."""
    return ("lo", "from", form), ("hi", "to", form)


def number(field: str) -> Spec:
    """Return the encoding of a number without an axis."""
    return {"field": field, "type": "quantitative"}


def names(field: str, sort: list[str] | None = None, **axis: Any) -> Spec:
    """Return a vertical axis of names."""
    axis = {"labelColor": "$ink", "grid": False, **axis}
    return {"field": field, "type": "nominal", "sort": sort, "title": None, "axis": axis}


def across(field: str, title: str | None, **axis: Any) -> Spec:
    """Return a horizontal axis of numbers with the title at the end."""
    axis = {"grid": False, "titleAnchor": "end", **axis}
    return {**number(field), "title": title, "axis": axis}


def point(size: int, **more: Any) -> Spec:
    """Return the mark of a dot."""
    return {"type": "point", "filled": True, "opacity": 1, "size": size, **more}


def band(rows: Rows, x: Spec, up: Spec, tip: Rows, opacity: float) -> Rows:
    """Return the layers of a curve with its interval; ``up`` is the vertical axis."""
    area = {"type": "area", "fill": "$accent", "opacity": opacity, "interpolate": "monotone"}
    low = y("lo", up["axis"]["format"])
    return [
        layer(rows, area, x=x, y=low, y2={"field": "hi"}),
        layer(rows, line(stroke="$accent"), x=x, y=up),
        layer(rows, hover(200), x=x, y=up, tooltip=tip),
    ]


def line(width: float = 2.5, **more: Any) -> Spec:
    """Return the mark of a curve."""
    return {"type": "line", "strokeWidth": width, "interpolate": "monotone", **more}


def label(**more: Any) -> Spec:
    """Return the mark of a label."""
    return {"type": "text", "align": "right", "fontWeight": 600, "fontSize": 12, **more}


def rule(*dash: int) -> Spec:
    """Return the mark of a line across the chart."""
    return {"type": "rule", "stroke": "$muted"} | ({"strokeDash": [*dash]} if dash else {})


def dashed(test: str) -> Spec:
    """Return an encoding that draws dashes where a condition holds."""
    return {"condition": {"test": test, "value": [5, 3]}, "value": [1, 0]}


def hover(size: int) -> Spec:
    """Return an invisible mark that shows a tooltip under the pointer."""
    return {"type": "point", "opacity": 0, "size": size}


def arms() -> Spec:
    """Return the colours of the bandit and the holdout."""
    scale = {"domain": ["Bandit", "Holdout"], "range": ["$accent", "$slate"]}
    return {"field": "arm", "type": "nominal", "scale": scale}


def arm_tips(first: tuple[str, str, None], form: str) -> Rows:
    """Return a tooltip with a first line, followed by an arm's reward per decision."""
    per = ("p", "Reward per decision", form)
    return tips(first, ("arm", "Decisions of", None), per, *ends(form), ("n", "Decisions", ",d"))


def gaps(data: Spec) -> Rows:
    """Return the outages of the reward feed: gaps that are too long to be due to chance."""
    return list((data.get("feed") or {}).get("outages", ()))


def outages(data: Spec) -> Rows:
    """Return a layer that shades outages of the reward feed."""
    if not gaps(data):
        return []
    x = {"field": "from", "type": "temporal", "scale": {"type": "utc"}}
    mark = {"type": "rect", "fill": "$warn", "opacity": 0.16}
    return [layer(gaps(data), mark, x=x, x2={"field": "to"})]


def complete(data: Spec, rows: Rows) -> Rows:
    """Return the rows of complete periods; all rows if there are none.

    >>> complete({"partial": 2}, [{"t": 1}, {"t": 2}]), complete({"partial": 1}, [{"t": 1}])
    ([{'t': 1}], [{'t': 1}])
    """
    start = data.get("partial")
    return [row for row in rows if start is None or row["t"] < start] or rows


def partial_period(data: Spec) -> Rows:
    """Return layers that shade the last period if it is partial."""
    if data.get("partial") is None:
        return []
    rows = [{"from": data["partial"], "to": data["as_of"], "label": "partial"}]
    x = {"field": "from", "type": "temporal", "scale": {"type": "utc"}}
    end = {**x, "field": "to"}
    text = {"type": "text", "align": "right", "baseline": "bottom", "dy": -2, "fontSize": 10}
    return [
        layer(rows, {"type": "rect", "fill": "$slate", "opacity": 0.12}, x=x, x2={"field": "to"}),
        layer(rows, text | {"fill": "$muted"}, x=end, y={"value": 0}, text={"field": "label"}),
    ]


def value_format(data: Spec) -> str:
    """Return the format of a reward."""
    typical = abs(data["headline"].get("per_decision", {}).get("p", 1.0))
    if data["rewards"]["shares"]:
        return ".1%" if typical >= 0.01 else ".2%"
    if not data["currency"]:
        return ",.4~r"
    return "$,.2f" if typical >= 1.0 else "$,.3r"


def axis_format(data: Spec) -> str:
    """Return the format of a reward along an axis."""
    if data["rewards"]["shares"]:
        return "~%"
    return "$,.4~r" if data["currency"] else ",.4~r"


def span_of(days: float) -> tuple[float, str]:
    """Return the unit for durations up to ``days``, as the number of units per day and the name.

    >>> span_of(14.0), span_of(0.01)
    ((1.0, 'days'), (1440.0, 'minutes'))
    """
    size, unit = largest_unit(86_400 * days, least=3.0)
    return 86_400 / size, f"{unit}s"


def coloured(part: Any, palette: dict[str, str] | None = None) -> Any:
    """Replace tokens such as ``$accent`` in a specification with colours.

    Args:
        part: a specification, or part of one.
        palette: colours by token; None means CSS variables.

    >>> coloured({"fill": "$accent"}), coloured(["$ink"], LIGHT)
    ({'fill': 'var(--accent)'}, ['#1a1f36'])
    """
    if isinstance(part, dict):
        return {name: coloured(item, palette) for name, item in part.items()}
    if isinstance(part, list):
        return [coloured(item, palette) for item in part]
    if isinstance(part, str) and part[:1] == "$" and part[1:] in LIGHT:
        return f"var(--{part[1:]})" if palette is None else palette[part[1:]]
    return part
