"""Charts of what is still to come."""

from __future__ import annotations

from typing import Any

from belated.report.charts.parts import Spec, TimeAxis, layer, outages, spec, tips, y

#: Periods of the past beside the forecast.
PAST = 14


def delay(data: Spec) -> Spec:
    """The delay curve with its band, its quantiles and the window."""
    found = data["delay"]
    scale, unit = span_of(found["curve"][-1]["d"])
    curve = [{**row, "d": row["d"] * scale} for row in found["curve"]]
    marks = [
        {"d": found[name] * scale, "F": at, "label": f"{label} after {found[name] * scale:.1f}"}
        for name, at, label in (("median", 0.5, "half"), ("p90", 0.9, "90%"))
        if found[name] is not None
    ]
    across: Spec = {
        "field": "d", "type": "quantitative", "title": f"{unit} after the decision",
        "axis": {"grid": False, "titleAnchor": "end"},
    }  # fmt: skip
    up = y("F", "%", scale={"domain": [0, 1]})
    layers = []
    if "window" in found:
        at = {"field": "d", "type": "quantitative"}
        window = found["window"] * scale
        said = f"window ends: {found['in_window']:.0%} are in"
        rule = {"type": "rule", "stroke": "$muted", "strokeDash": [2, 3]}
        side: Spec = {"align": "left", "dx": 6}
        if 2 * window > curve[-1]["d"]:  # no room for the label on the right
            side = {"align": "right", "dx": -6}
        text = {"type": "text", **side, "fill": "$muted"}
        here = [{"d": window, "F": 0.06, "label": said}]
        layers = [
            layer(here, rule, x=at),
            layer(here, text, x=at, y=up, text={"field": "label"}),
        ]
    band = {"type": "area", "fill": "$accent", "opacity": 0.18, "interpolate": "monotone"}
    line = {"type": "line", "stroke": "$accent", "strokeWidth": 2.5, "interpolate": "monotone"}
    point = {"type": "point", "filled": True, "size": 80, "fill": "$accent", "opacity": 1}
    told = tips(
        ("d", unit.capitalize(), ".2f"),
        ("F", "Arrived", ".1%"),
        ("lo", "from", ".1%"),
        ("hi", "to", ".1%"),
    )
    label: Spec = {
        "type": "text",
        "align": "left",
        "dx": 11,
        "dy": 3,
        "fontWeight": 600,
        "fontSize": 12,
    }
    layers += [
        layer(curve, band, x=across, y=y("lo", "%"), y2={"field": "hi"}),
        layer(curve, line, x=across, y=up),
        layer(curve, {"type": "point", "opacity": 0, "size": 200}, x=across, y=up, tooltip=told),
        layer(marks, {**point, "stroke": "$card", "strokeWidth": 2}, x=across, y=up),
        layer(marks, {**label, "dy": 14}, x=across, y=up, text={"field": "label"}),
    ]
    return spec(layers, 240)


def span_of(days: float) -> tuple[float, str]:
    """The unit in which spans of up to so many days are read, and how many make a day.

    >>> span_of(14.0), span_of(0.01)
    ((1.0, 'days'), (1440.0, 'minutes'))
    """
    for scale, unit in ((1.0, "days"), (24.0, "hours"), (1440.0, "minutes")):
        if days * scale >= 3.0:
            return scale, unit
    return 86_400.0, "seconds"


def forecast(data: Spec) -> Spec:
    """Rewards by period: arrived, and expected."""
    time = TimeAxis(data)
    wide = [
        [{**row, "t2": row["t"] + time.step} for row in time.named(data["forecast"][name])]
        for name in ("past", "next")
    ]
    past, to_come = wide[0][-PAST:], wide[1]
    past[-1]["t2"] = min(past[-1]["t2"], data["as_of"])
    bar: Spec = {"type": "rect", "fill": "$accent", "cornerRadius": 2, "xOffset": 1, "x2Offset": -1}
    dashed = {"fillOpacity": 0.28, "stroke": "$accent", "strokeDash": [3, 2], "strokeWidth": 1}
    where: dict[str, Any] = {
        "x": time.x(), "x2": {"field": "t2"}, "y": y("n", "~s"), "y2": {"datum": 0},
    }  # fmt: skip
    now = [{"t": data["as_of"], "label": "now"}]
    text = {"type": "text", "align": "left", "dx": 5, "fill": "$muted", "baseline": "top"}
    told = tips(
        ("when", "From", None), ("n", "Expected", ",.0f"), ("by_then", "In all by then", ",.0f"),
        ("lo", "at least", ",.0f"), ("hi", "at most", ",.0f"),
    )  # fmt: skip
    came = tips(("when", "At", None), ("n", "Arrived", ",d"))
    return spec(
        [
            layer(past, bar, tooltip=came, **where),
            layer(to_come, bar | dashed, tooltip=told, **where),
            layer(now, {"type": "rule", "stroke": "$muted", "strokeDash": [2, 3]}, x=time.x()),
            layer(now, text, x=time.x(), y={"value": 0}, text={"field": "label"}),
        ],
        240,
    )


def cohorts(data: Spec) -> Spec:
    """How the decisions of each period ripen."""
    found, time = data["cohorts"], TimeAxis(data)
    scale, unit = span_of(found["expected"][-1]["age"])
    gone = [(one["from"], one["to"]) for one in (data.get("feed") or {}).get("outages", ())]
    rows = [
        {
            **row,
            "age": row["age"] * scale,
            "hit": any(start - 2 * time.step < row["cohort"] < end for start, end in gone),
        }
        for row in time.named(found["lines"], "cohort")
    ]
    expected = [{**row, "age": row["age"] * scale} for row in found["expected"]]
    across: Spec = {
        "field": "age", "type": "quantitative", "title": f"age in {unit}",
        "axis": {"grid": False, "titleAnchor": "end"},
    }  # fmt: skip
    up, one = y("share", "~%"), {"field": "cohort"}
    line: Spec = {"type": "line", "interpolate": "monotone"}
    strength = {
        "field": "cohort", "type": "quantitative",
        "scale": {"domain": [data["from"], data["as_of"]], "range": [0.15, 0.85]},
    }  # fmt: skip
    usual = layer(
        None,
        {**line, "strokeWidth": 1.4, "stroke": "$accent"},
        x=across,
        y=up,
        detail=one,
        opacity=strength,
    )
    hit = layer(None, {**line, "strokeWidth": 2, "stroke": "$warn"}, x=across, y=up, detail=one)
    told = tips(
        ("when", "Decided", None), ("age", f"Age, {unit}", ".1f"), ("share", "Rewarded", ".1%")
    )
    dashed = {"type": "line", "stroke": "$ink", "strokeWidth": 2, "strokeDash": [5, 4]}
    text: Spec = {"type": "text", "align": "right", "dy": 16, "fontWeight": 600}
    return spec(
        [
            {"transform": [{"filter": "!datum.hit"}], **usual},
            {"transform": [{"filter": "datum.hit"}], **hit},
            layer(expected, dashed, x=across, y=up),
            layer(expected[-1:], text, x=across, y=up, text={"value": "expected"}),
            layer(None, {"type": "point", "opacity": 0, "size": 50}, x=across, y=up, tooltip=told),
        ],
        240,
        data={"values": rows},
    )


def pending(data: Spec) -> Spec:
    """Pending decisions over time."""
    time = TimeAxis(data)
    edge = {"stroke": "$accent", "strokeWidth": 2}
    area = {"type": "area", "fill": "$accent", "fillOpacity": 0.15, "line": edge}
    told = tips(("when", "At", None), ("n", "Pending", ",d"))
    rows = time.named(data["pending"])
    return spec([*outages(data), layer(rows, area, x=time.x(), y=y("n", "~s"), tooltip=told)], 240)
