"""Charts for whoever is on call."""

from __future__ import annotations

from belated.report.charts.parts import RANGE, Spec, TimeAxis, layer, outages, spec, tips, y


def feed(data: Spec) -> Spec:
    """Rewards as they reach the journal."""
    time, step = TimeAxis(data), data["feed"]["step"]
    rows = [{**row, "t2": row["t"] + step} for row in time.named(data["feed"]["bins"])]
    told = tips(("when", "At", None), ("n", "Rewards", ",d"))
    bar = {"type": "rect", "fill": "$accent", "xOffset": 0.5, "x2Offset": -0.5}
    where = {"x": time.x(), "x2": {"field": "t2"}, "y": y("n", "~s"), "y2": {"datum": 0}}
    return spec([*outages(data), layer(rows, bar, tooltip=told, **where)], 200)


def lag(data: Spec) -> Spec:
    """Time from the event to the journal."""
    time = TimeAxis(data)
    least = 1 / 60
    rows = [
        {**row, "p50": max(row["p50"], least), "p99": max(row["p99"], least)}
        for row in time.named(data["feed"]["lag"])
    ]
    most = max(row["p99"] for row in rows)
    low = min(row["p50"] for row in rows)
    ticks = [
        t
        for t in (1 / 60, 1 / 6, 1, 3, 10, 30, 60, 180, 360, 1440, 10080)
        if low / 3 <= t <= 3 * most
    ]
    written = (
        "datum.value < 1 ? format(datum.value * 60, '.0f') + ' s' : datum.value < 60 ? "
        "format(datum.value, '.0f') + ' min' : format(datum.value / 60, '.0f') + ' h'"
    )
    up = {
        "field": "p50", "type": "quantitative", "title": None,
        "scale": {"type": "log", "domain": [low / 2, 2 * most]},
        "axis": {"values": ticks, "labelExpr": written},
    }  # fmt: skip
    told = tips(
        ("when", "At", None), ("p50", "Median, minutes", ".2f"), ("p99", "99 %, minutes", ",.1f")
    )
    point = {"type": "point", "filled": True, "fill": "$accent", "size": 45, "opacity": 1}
    return spec(
        [
            *outages(data),
            layer(
                rows,
                {**RANGE, "stroke": "$accent"},
                x=time.x(),
                y=up,
                y2={"field": "p99"},
                tooltip=told,
            ),
            layer(rows, point, x=time.x(), y=up, tooltip=told),
        ],
        200,
    )
