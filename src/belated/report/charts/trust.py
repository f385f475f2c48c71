"""Charts of the model."""

from __future__ import annotations

import math

from belated.report.charts.earning import value_format
from belated.report.charts.parts import RANGE, Spec, TimeAxis, layer, spec, tips, y

#: Coefficients in the chart; the table has some more.
SHOWN = 10


def calibration(data: Spec) -> Spec:
    """Predicted against observed."""
    bins, form = data["calibration"]["bins"], value_format(data)
    axis = "~%" if data["rewards"]["shares"] else "~g"
    most = 1.05 * max(max(row["predicted"], row["hi"]) for row in bins)
    least = min(0.0, *(min(row["predicted"], row["lo"]) for row in bins))
    domain = {"domain": [least, most]}
    across = {
        "field": "predicted", "type": "quantitative", "title": "predicted", "scale": domain,
        "axis": {"format": axis, "grid": True, "titleAnchor": "end"},
    }  # fmt: skip
    up = y("observed", axis, scale=domain)
    ends = [{"predicted": one, "observed": one} for one in (least, most)]
    near = [{"predicted": 0.8 * most, "observed": 0.8 * most}]
    told = tips(
        ("predicted", "Predicted", form), ("observed", "Observed", form), ("lo", "from", form),
        ("hi", "to", form), ("n", "Decisions", ",d"),
    )  # fmt: skip
    text = {"type": "text", "fill": "$muted", "align": "right", "dx": -10}
    point = {"type": "point", "filled": True, "fill": "$accent", "size": 60, "opacity": 1}
    return spec(
        [
            layer(ends, {"type": "line", "stroke": "$muted", "strokeDash": [4, 4]}, x=across, y=up),
            layer(near, text, x=across, y=up, text={"value": "perfect"}),
            layer(
                bins, {**RANGE, "stroke": "$accent"}, x=across, y=y("lo", axis), y2={"field": "hi"}
            ),
            layer(bins, point, x=across, y=up, tooltip=told),
        ],
        240,
    )


def foregone(data: Spec) -> Spec:
    """What is left on the table by period."""
    time, form = TimeAxis(data), value_format(data).replace("1%", "2%")
    axis = "~%" if data["rewards"]["shares"] else "~g"
    rows = time.named(data["foregone"]["days"])
    told = tips(
        ("when", "At", None),
        ("p", "Left per decision", form),
        ("lo", "from", form),
        ("hi", "to", form),
    )
    area = {"type": "area", "fill": "$accent", "opacity": 0.16, "interpolate": "monotone"}
    line = {"type": "line", "stroke": "$accent", "strokeWidth": 2.5, "interpolate": "monotone"}
    return spec(
        [
            layer(rows, area, x=time.x(), y=y("lo", axis), y2={"field": "hi"}),
            layer(rows, line, x=time.x(), y=y("p", axis)),
            layer(
                rows,
                {"type": "point", "opacity": 0, "size": 200},
                x=time.x(),
                y=y("p", axis),
                tooltip=told,
            ),
        ],
        240,
    )


def explore(data: Spec) -> Spec:
    """Effective numbers of actions."""
    time = TimeAxis(data)
    rows = time.named(data["explore"])
    scale = {"domain": ["in use overall", "for one decision"], "range": ["$slate", "$accent"]}
    colour = {"field": "what", "type": "nominal", "scale": scale}
    most = max(2.0, 1.15 * max(row["n"] for row in rows))
    up = y("n", ".1f", scale={"domain": [0, most], "nice": False})
    dash = {
        "condition": {"test": "datum.what=='in use overall'", "value": [5, 3]}, "value": [1, 0],
    }  # fmt: skip
    told = tips(("when", "At", None), ("what", "Actions", None), ("n", "Effective number", ".2f"))
    labels = explore_labels(rows, 0.12 * most)
    text = {"type": "text", "align": "right", "fontWeight": 600, "fontSize": 12}
    above, below = ([one for one in labels if one["above"] is side] for side in (True, False))
    line = {"type": "line", "strokeWidth": 2.5, "interpolate": "monotone"}
    return spec(
        [
            layer(rows, line, x=time.x(), y=up, color=colour, strokeDash=dash),
            layer(
                rows, {"type": "point", "opacity": 0, "size": 200}, x=time.x(), y=up, tooltip=told
            ),
            *(
                layer(
                    some, {**text, "dy": dy}, x=time.x(), y={**up, "field": "at"},
                    text={"field": "what"}, color=colour,
                )
                for some, dy in ((above, -10), (below, 12))
            ),
        ],
        240,
    )  # fmt: skip


def explore_labels(rows: list[Spec], room: float) -> list[Spec]:
    """Above all that a label covers; the lower one below it, where there is no room between."""
    covered: dict[str, list[float]] = {}
    for last in rows[-2:]:
        course = [row["n"] for row in rows if row["what"] == last["what"]]
        covered[last["what"]] = course[-max(len(course) // 3, 1) :]
    overall = covered.get("in use overall", [math.inf])
    labels = []
    for last in rows[-2:]:
        course = covered[last["what"]]
        above = course is overall or min(overall) - max(course) > room
        labels.append({**last, "at": max(course) if above else min(course), "above": above})
    return labels


def coefficients(data: Spec) -> Spec:
    """The strongest effects, as they are used and as the auditor sees them."""
    rows = [
        {**row, "label": f"{row['action']} · {row['name']}" if row["action"] else row["name"]}
        for row in data["coefficients"][:SHOWN]
    ]
    up = {
        "field": "label", "type": "nominal", "sort": None, "title": None,
        "axis": {"labelColor": "$ink", "labelFontSize": 11.5, "labelLimit": 200, "grid": False},
    }  # fmt: skip
    unit = {"Bernoulli": "change in log-odds", "Poisson": "change in log-rate"}

    def across(field: str) -> Spec:
        title = unit.get(data["family"], "change in reward")
        axis = {"grid": True, "titleAnchor": "end"}
        return {"field": field, "type": "quantitative", "title": title, "axis": axis}

    told = tips(
        ("label", "Feature", None), ("theta", "In use", ".2f"),
        ("lo", "from", ".2f"), ("hi", "to", ".2f"),
        ("audit", "Age-matched", ".2f"),
    )  # fmt: skip
    zero = {"field": "zero", "type": "quantitative"}
    point = {"type": "point", "filled": True, "size": 70, "opacity": 1, "fill": "$accent"}
    diamond = {
        "type": "point", "filled": False, "size": 60, "stroke": "$ink", "strokeWidth": 1.6,
        "shape": "diamond", "opacity": 1,
    }  # fmt: skip
    return spec(
        [
            layer([{"zero": 0}], {"type": "rule", "stroke": "$muted"}, x=zero),
            layer(
                rows,
                {**RANGE, "stroke": "$accent"},
                y=up,
                x=across("lo"),
                x2={"field": "hi"},
                tooltip=told,
            ),
            layer(rows, point, y=up, x=across("theta"), tooltip=told),
            layer(
                [row for row in rows if "audit" in row],
                diamond,
                y=up,
                x=across("audit"),
                tooltip=told,
            ),
        ],
        270,
    )
