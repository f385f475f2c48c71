"""Charts of what is earned."""

from __future__ import annotations

from belated.report.charts.parts import RANGE, Rows, Spec, TimeAxis, arms, layer, spec, tips, y
from belated.report.charts.tokens import ACTIONS


def value_format(data: Spec) -> str:
    """How rewards are written: as shares if they are from 0 to 1."""
    return ".1%" if data["rewards"]["shares"] else ".4~g"


def earn(data: Spec) -> Spec:
    """Reward per decision by trailing periods."""
    time, form = TimeAxis(data), value_format(data)
    axis = "~%" if data["rewards"]["shares"] else "~g"
    rows = time.named(data["earn"])
    last = {row["arm"]: row for row in rows}
    spread = max(row["hi"] for row in rows) - min(row["lo"] for row in rows)
    labels = [
        {**row, "at": row["p"] + (0.05 if arm == "Bandit" else -0.05) * spread}
        for arm, row in last.items()
    ]
    told = tips(
        ("when", "Up to", None),
        ("arm", "Decisions of", None),
        ("p", "Reward per decision", form),
        ("lo", "from", form),
        ("hi", "to", form),
        ("n", "Decisions", ",d"),
    )
    dash = {"condition": {"test": "datum.arm=='Holdout'", "value": [5, 3]}, "value": [1, 0]}
    return spec(
        [
            layer(
                None, {"type": "area", "opacity": 0.14, "interpolate": "monotone"},
                x=time.x(), y=y("lo", axis), y2={"field": "hi"}, color=arms(),
            ),
            layer(
                None, {"type": "line", "strokeWidth": 2.5, "interpolate": "monotone"},
                x=time.x(), y=y("p", axis), color=arms(), strokeDash=dash,
            ),
            layer(
                None, {"type": "point", "opacity": 0, "size": 220, "filled": True},
                x=time.x(), y=y("p", axis), tooltip=told,
            ),
            layer(
                labels, {"type": "text", "align": "right", "fontWeight": 600, "fontSize": 12},
                x=time.x(), y=y("at", axis), text={"field": "arm"}, color=arms(),
            ),
        ],
        250,
        data={"values": rows},
    )  # fmt: skip


def per_action(data: Spec) -> Spec:
    """Reward per decision by action."""
    rows, form = data["per_action"], value_format(data)
    first = "Bandit" if any(row["arm"] == "Bandit" for row in rows) else "Holdout"
    ranked = sorted((row for row in rows if row["arm"] == first), key=lambda row: -row["p"])
    order = [row["action"] for row in ranked]
    up = {
        "field": "action", "type": "nominal", "sort": order, "title": None,
        "axis": {"labelColor": "$ink", "labelFontSize": 12, "grid": False, "labelLimit": 130},
    }  # fmt: skip
    offset = {"field": "arm", "scale": {"domain": ["Bandit", "Holdout"]}}
    high, low = max(row["hi"] for row in rows), min(0.0, *(row["lo"] for row in rows))
    across = {
        "field": "lo", "type": "quantitative", "title": None,
        "scale": {"domain": [low, high + 0.16 * (high - low)], "nice": False},
        "axis": {"format": "~%" if data["rewards"]["shares"] else "~g", "grid": True},
    }  # fmt: skip
    told = tips(
        ("action", "Action", None),
        ("arm", "Decisions of", None),
        ("p", "Reward per decision", form),
        ("lo", "from", form),
        ("hi", "to", form),
        ("n", "Decisions", ",d"),
    )
    point = {"type": "point", "size": 70, "filled": True, "opacity": 1}
    at = {"field": "p", "type": "quantitative"}
    where = {"y": up, "yOffset": offset}
    inner = layer(None, {**point, "size": 22, "fill": "$card"}, x=at, **where)
    return spec(
        [
            layer(None, RANGE, x=across, x2={"field": "hi"}, color=arms(), tooltip=told, **where),
            layer(None, point, x=at, color=arms(), tooltip=told, **where),
            {"transform": [{"filter": "datum.arm=='Holdout'"}], **inner},
            layer(
                None, {"type": "text", "align": "left", "dx": 8},
                x={"field": "hi", "type": "quantitative"}, text={"field": "p", "format": form},
                color=arms(), **where,
            ),
        ],
        max(250, 44 * len(order)),
        data={"values": rows},
    )  # fmt: skip


def shown_actions(data: Spec) -> list[tuple[str, str, float]]:
    """Actions of the shares, with their colour and last share; the largest last."""
    last: dict[str, float] = {}
    for row in data["share"]:
        last[row["action"]] = row["share"]
    order = sorted(last, key=lambda name: -last[name])
    return [(name, ACTIONS[n % len(ACTIONS)], last[name]) for n, name in enumerate(order)]


def share(data: Spec) -> Spec:
    """Share of decisions by action, one upon the other."""
    time, actions = TimeAxis(data), shown_actions(data)
    by_time: dict[int, dict[str, float]] = {}
    for row in data["share"]:
        by_time.setdefault(row["t"], {})[row["action"]] = row["share"]
    rows: Rows = []
    for when, shares in by_time.items():
        below = 0.0
        for name, _, _ in actions:
            part = shares.get(name, 0.0)
            ends = {"y0": round(below, 4), "y1": round(below + part, 4)}
            rows.append({"t": when, "when": time.name(when), "action": name, "share": part, **ends})
            below += part
    scale = {"domain": [one[0] for one in actions], "range": [one[1] for one in actions]}
    colour = {"field": "action", "type": "nominal", "scale": scale}
    up = y("y0", "%", axis={"values": [0, 0.25, 0.5, 0.75, 1]}, scale={"domain": [0, 1]})
    area = {"type": "area", "stroke": "$card", "strokeWidth": 1.2, "interpolate": "monotone"}
    told = tips(("when", "At", None), ("action", "Action", None), ("share", "Share", ".1%"))
    return spec(
        [
            layer(None, area, x=time.x(), y=up, y2={"field": "y1"}, color=colour),
            layer(
                None, {"type": "rule", "strokeWidth": 14, "opacity": 0},
                x=time.x(), y=up, y2={"field": "y1"}, tooltip=told,
            ),
        ],
        250,
        data={"values": rows},
    )  # fmt: skip


def segments(data: Spec) -> Spec:
    """Share of a segment's decisions by action."""
    across = {"field": "action", "sort": data["actions"], "type": "nominal", "title": None}
    up = {"field": "segment", "type": "nominal", "sort": None, "title": None}
    below = {
        "labelAngle": 0, "domain": False, "labelExpr": "split(datum.label, ' ')",
        "labelColor": "$ink", "labelOverlap": False, "labelFlush": False, "labelLimit": 90,
    }  # fmt: skip
    left = {"labelColor": "$ink", "grid": False, "labelFontSize": 12, "labelLimit": 220}
    strength = {"domain": [0, 1], "range": [0.06, 1]}
    told = tips(
        ("segment", "Segment", None),
        ("action", "Action", None),
        ("share", "Share", ".1%"),
        ("n", "Decisions", ",d"),
    )
    on = {"condition": {"test": "datum.share > 0.55", "value": "$onfill"}, "value": "$ink"}
    return spec(
        [
            layer(
                None,
                {"type": "rect", "fill": "$accent", "stroke": "$card", "strokeWidth": 3},
                x={**across, "axis": below}, y={**up, "axis": left},
                opacity={"field": "share", "type": "quantitative", "scale": strength}, tooltip=told,
            ),
            layer(
                None, {"type": "text", "fontSize": 12, "fontWeight": 500},
                x=across, y=up, text={"field": "share", "format": ".0%"}, color=on,
            ),
        ],
        250,
        data={"values": data["segments"]},
    )  # fmt: skip
