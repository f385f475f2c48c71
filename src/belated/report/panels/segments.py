"""Who is shown what, by parts of the context that are 0 or 1."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.report.facts import ACTIONS, Facts, short
from belated.report.panel import Panel, Said
from belated.report.text import Data, percent, periods
from belated.report.vega import Spec, layer, names, number, spec, tips

#: Columns of the context that make segments; and recent decisions that are read.
COLUMNS, DECISIONS = 2, 4_000


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Who was shown what lately, by context columns that are 0 or 1."""
    recent = np.flatnonzero(facts.own & (facts.period >= facts.calendar.recent))
    if not len(recent):
        return []
    some = recent[np.unique(np.linspace(0, len(recent) - 1, DECISIONS).astype(int))]
    table = facts.table.select(some)
    contexts: dict[int, Mapping[str, Any]] = {}
    for line, context in facts.log.contexts(table):
        if isinstance(context, Mapping):
            contexts[line] = context
    columns = _binary(list(contexts.values()))
    if not columns:
        return []
    counts: dict[tuple[bool, ...], Counter[str]] = defaultdict(Counter)
    for line, context in contexts.items():
        key = tuple(bool(context[name]) for name in columns)
        counts[key][str(table.actions[table.action[line]])] += 1
    rows = []
    for key in sorted(counts, reverse=True):
        said = [name if yes else f"not {name}" for name, yes in zip(columns, key, strict=True)]
        total = counts[key].total()
        rows += [
            {
                "segment": ", ".join(said),
                "action": name,
                "share": short(counts[key][name] / total, 4),
                "n": counts[key][name],
            }
            for name in facts.actions[:ACTIONS]
        ]
    return rows


def _binary(contexts: list[Mapping[str, Any]]) -> list[str]:
    """Columns that all contexts have and that are both 0 and 1, those split most evenly first."""
    if not contexts:
        return []
    found = []
    for name in contexts[0]:
        values = [context.get(name) for context in contexts]
        if all(isinstance(one, bool | int | float) and one in (0, 1) for one in values):
            part = sum(map(bool, values)) / len(values)
            if 0.02 <= part <= 0.98:
                found.append((abs(part - 0.5), name))
    return [name for _, name in sorted(found)[:COLUMNS]]


def chart(data: Spec) -> Spec:
    """Share of a segment's decisions by action."""
    across = {"field": "action", "sort": data["actions"], "type": "nominal", "title": None}
    up = names("segment", labelFontSize=12, labelLimit=220)
    below = {
        "labelAngle": 0, "domain": False, "labelExpr": "split(datum.label, ' ')",
        "labelColor": "$ink", "labelOverlap": False, "labelFlush": False, "labelLimit": 90,
    }  # fmt: skip
    strength = {"domain": [0, 1], "range": [0.06, 1]}
    tip = tips(
        ("segment", "Segment", None), ("action", "Action", None), ("share", "Share", ".1%"),
        ("n", "Decisions", ",d"),
    )  # fmt: skip
    on = {"condition": {"test": "datum.share > 0.55", "value": "$onfill"}, "value": "$ink"}
    return spec(
        [
            layer(
                None,
                {"type": "rect", "fill": "$accent", "stroke": "$card", "strokeWidth": 3},
                x={**across, "axis": below}, y=up,
                opacity={**number("share"), "scale": strength}, tooltip=tip,
            ),
            layer(
                None, {"type": "text", "fontSize": 12, "fontWeight": 500},
                x=across, y=up, text={"field": "share", "format": ".0%"}, color=on,
            ),
        ],
        250,
        data={"values": data["segments"]},
    )  # fmt: skip


def words(data: Data) -> Said:
    """Who is shown what."""
    best = max(data["segments"], key=lambda row: (row["share"], row["n"]))
    return Said(
        f"{best['segment'][:1].upper()}{best['segment'][1:]}: {percent(best['share'], 0)} "
        f"see {best['action']}",
        f"Share of a segment's decisions in the last {periods(data, 7)}, by parts of the "
        f"context that are 0 or 1.",
    )


SEGMENTS = Panel(
    "segments", collect, chart, words,
    columns={"segment": "segment", "action": "action", "share": "share", "n": "decisions"},
    none="The stored contexts have no parts that are 0 or 1.",
)  # fmt: skip
