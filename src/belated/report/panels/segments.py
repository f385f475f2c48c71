"""The actions shown to each segment, by context field and by hour."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from belated.report.facts import ACTIONS, DAY, HOUR, Facts, short
from belated.report.panel import Panel, Said
from belated.report.text import Data, percent, periods
from belated.report.vega import Spec, layer, names, number, spec, tips

#: Maximum number of combined yes/no fields, of categorical fields, and of values per such field.
COLUMNS, CATEGORIES, VALUES = 2, 2, 5
#: Maximum number of recent decisions to read; minimum number of decisions for a segment to be named
#: in the title.
DECISIONS, FEW = 4_000, 30
#: Length of a segment of the day, in hours.
PART = 6
#: Minimum share of decisions with the rarer value of a yes/no field.
RARE = 0.02
#: Maximum number of actions for which names are written horizontally.
WIDE = 6
#: Opacity of a cell with all decisions, chosen so that text on it is readable in both themes.
STRONGEST = 0.58

Context = Mapping[str, Any]


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Compute the share of each action in the segments of recent decisions."""
    recent = np.flatnonzero(facts.own & (facts.period >= facts.calendar.recent))
    if not len(recent):
        return []
    sample = recent[np.unique(np.linspace(0, len(recent) - 1, DECISIONS).astype(int))]
    table = facts.table.select(sample)
    contexts: dict[int, Context] = {
        line: context for line, context in facts.log.contexts(table) if isinstance(context, Mapping)
    }
    actions = [str(table.actions[code]) for code in table.action]
    rows = []
    for field, segment_of in _divisions(list(contexts.values())):
        segments = ((segment_of(context), actions[line]) for line, context in contexts.items())
        rows += _rows(facts, field, segments)
    hours = (table.made % DAY // HOUR).astype(int) // PART * PART
    if len(set(hours.tolist())) > 1:
        rows += _rows(facts, "hour (UTC)", zip(map(_part_of_day, hours), actions, strict=True))
    return rows


def _divisions(contexts: list[Context]) -> list[tuple[str, Callable[[Context], str]]]:
    """Return ways to divide contexts: a name, and a function that returns a context's segment."""
    fields = list(contexts[0]) if contexts else []
    values = {name: [context.get(name) for context in contexts] for name in fields}
    divisions: list[tuple[str, Callable[[Context], str]]] = []
    if columns := _yes_no(values):
        divisions.append(
            (
                " and ".join(columns),
                lambda context: ", ".join(
                    name if context[name] else f"not {name}" for name in columns
                ),
            )
        )
    for name, common in _categories(values):
        divisions.append(
            (
                name,
                lambda context, name=name, common=common: (  # type: ignore[misc]
                    f"{name} = {context.get(name) if context.get(name) in common else 'other'}"
                ),
            )
        )
    return divisions


def _yes_no(values: Mapping[str, list[Any]]) -> list[str]:
    """Return the fields that are 0 or 1 in all contexts, starting with the most evenly split."""
    fields = []
    for name, column in values.items():
        if all(isinstance(value, bool | int | float) and value in (0, 1) for value in column):
            share = sum(map(bool, column)) / len(column)
            if RARE <= share <= 1.0 - RARE:
                fields.append((abs(share - 0.5), name))
    return [name for _, name in sorted(fields)[:COLUMNS]]


def _categories(values: Mapping[str, list[Any]]) -> list[tuple[str, list[str]]]:
    """Return the text fields that have a few common values, and these values."""
    fields = []
    for name, column in values.items():
        texts = [value for value in column if isinstance(value, str)]
        common = Counter(texts).most_common(VALUES)
        covered = sum(count for _, count in common) / len(column)
        if len(common) > 1 and covered > 0.5:
            fields.append((name, [value for value, _ in common]))
    return fields[:CATEGORIES]


def _part_of_day(hour: int) -> str:
    return f"{hour:02d}:00–{hour + PART:02d}:00"


def _rows(facts: Facts, by: str, segments: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the share of each action by segment; rare actions are combined."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    shown = facts.actions[:ACTIONS]
    for segment, action in segments:
        counts[segment][action if action in shown else "others"] += 1
    if len(facts.actions) > ACTIONS:
        shown.append("others")
    return [
        {
            "by": by,
            "segment": segment,
            "action": action,
            "share": short(counts[segment][action] / counts[segment].total(), 4),
            "n": counts[segment][action],
        }
        for segment in sorted(counts)
        for action in shown
    ]


def chart(data: Spec) -> Spec:
    """Return the chart of shares by segment and action."""
    rows = data["segments"]
    order = list(dict.fromkeys(row["segment"] for row in rows))
    sort = [*data["actions"], "others"]
    across = {"field": "action", "sort": sort, "type": "nominal", "title": None}
    up = names("segment", order, labelFontSize=12, labelLimit=200)
    many = len({row["action"] for row in rows}) > WIDE
    place = (
        {"labelAngle": -90} if many else {"labelAngle": 0, "labelExpr": "split(datum.label, ' ')"}
    )
    below = {
        "domain": False, "labelColor": "$ink", "labelOverlap": False, "labelFlush": False,
        "labelLimit": 90, **place,
    }  # fmt: skip
    strength = {"domain": [0, 1], "range": [0.04, STRONGEST]}
    tip = tips(
        ("by", "By", None), ("segment", "Segment", None), ("action", "Action", None),
        ("share", "Share", ".1%"), ("n", "Decisions", ",d"),
    )  # fmt: skip
    return spec(
        [
            layer(
                None,
                {"type": "rect", "fill": "$accent", "stroke": "$card", "strokeWidth": 3},
                x={**across, "axis": below}, y=up,
                opacity={**number("share"), "scale": strength}, tooltip=tip,
            ),
            layer(
                None, {"type": "text", "fontSize": 9 if many else 12, "fontWeight": 500},
                x=across, y=up, text={"field": "share", "format": ".0%"},
            ),
        ],
        max(250, 24 * len(order) + 40),
        data={"values": rows},
    )  # fmt: skip


def words(data: Data) -> Said:
    """Return the title, which names the segment with the largest share, and the caption."""
    rows, sizes = data["segments"], Counter[str]()
    for row in rows:
        sizes[row["segment"]] += row["n"]
    large = [row for row in rows if sizes[row["segment"]] >= FEW] or rows
    best = max(large, key=lambda row: (row["share"], row["n"]))
    return Said(
        f"{best['segment']}: {percent(best['share'], 0)} see {best['action']}",
        f"Share of each action in the bandit's decisions of the last {periods(data, 7)}, by yes/no "
        "and categorical fields of the context and by time of day (UTC).",
    )


SEGMENTS = Panel(
    "segments", "Segments", collect, chart, words,
    columns={
        "by": "by", "segment": "segment", "action": "action", "share": "share", "n": "decisions",
    },
    none="The contexts have no yes/no or categorical fields, and all decisions were made at the "
    "same time of day.",
)  # fmt: skip
