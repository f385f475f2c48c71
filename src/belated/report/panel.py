"""A panel of a report: data, chart and text, and the card that shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from belated.report.facts import Facts
from belated.report.html import around, element, numbers
from belated.report.text import Data
from belated.report.vega import Rows, Spec, TimeAxis

#: Column headings of an interval, by field.
ENDS = {"lo": "from", "hi": "to"}
BAND = {"p": "value", **ENDS}


class Said(NamedTuple):
    """The text of a panel.

    Attributes:
        title: title, which states the main result.
        definition: definition of the numbers.
        why: a possible explanation, if any.
    """

    title: str
    definition: str
    why: str = ""


@dataclass(frozen=True)
class Panel:
    """One chart of a report with its data and text.

    Attributes:
        name: name of the panel, and of its data in the report.
        heading: title if there is no data.
        collect: returns the panel's data; None or empty if there is none.
        chart: returns the chart's specification, given the data of the report.
        words: returns the text, given the data of the report.
        columns: column headings of the table by field; ``when`` is the formatted time.
        rows: returns the rows of the table; without rows, the panel has nothing to show.
        none: text to show if there are no rows.
        legend: returns the CSS class, name and number of each item in the legend.
    """

    name: str
    heading: str
    collect: Callable[[Facts], Any]
    chart: Callable[[Data], Spec]
    words: Callable[[Data], Said]
    columns: dict[str, str]
    rows: Callable[[Data], Rows] | None = None
    none: Callable[[Data], str] | str = "There is nothing to show yet."
    legend: Callable[[Data], list[tuple[str, str, str]]] = lambda data: []

    def table(self, data: Data) -> Rows:
        """Return the rows of the table, with formatted times."""
        rows: Rows = (data[self.name] if self.rows is None else self.rows(data)) or []
        return TimeAxis(data).named(rows) if rows and "t" in rows[0] else rows

    def card(self, data: Data) -> str:
        """Return the card as HTML; if there is no data, the card says what is missing."""
        table = self.table(data)
        if not table:
            none = self.none if isinstance(self.none, str) else self.none(data)
            title = element("h3", self.heading)
            return around("div", title + element("p", none, cls="none"), cls="card", id=self.name)
        words = self.words(data)
        inner = element("h3", words.title) + element("p", words.definition, cls="sub")
        if items := self.legend(data):
            lines = "".join(
                f'<li><i class="{kind}"></i>{element("span", name)} {element("b", number)}</li>'
                for kind, name, number in items
            )
            inner += f'<ul class="leg">{lines}</ul>'
        label = escape(words.title)
        inner += f'<div class="chart" id="chart-{self.name}" role="img" aria-label="{label}"></div>'
        if words.why:
            inner += element("p", words.why, cls="why")
        return around("div", inner + numbers(table, self.columns), cls="card", id=self.name)
