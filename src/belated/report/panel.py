"""What a panel of a report is: its numbers, its chart, its words, and the card with all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from belated.report.facts import Facts
from belated.report.html import around, element, numbers
from belated.report.text import Data
from belated.report.vega import Rows, Spec, TimeAxis

#: Columns of an interval in tables, by field.
ENDS = {"lo": "from", "hi": "to"}
BAND = {"p": "value", **ENDS}


class Said(NamedTuple):
    """What a panel says.

    Attributes:
        title: its message.
        definition: what the numbers are.
        why: what may explain them, if something does.
    """

    title: str
    definition: str
    why: str = ""


@dataclass(frozen=True)
class Panel:
    """One chart of a report with its numbers and words.

    Attributes:
        name: of the panel, and of its data in the report.
        collect: makes its data; None or empty if there is none.
        chart: draws it, given the data of the report; so do the others.
        words: its message.
        columns: of its table, by field; ``when`` is the time in words.
        rows: of its table; none: the panel has nothing to show.
        none: what to say then.
        legend: its items: a class of the style sheet, a name, and a number.
    """

    name: str
    collect: Callable[[Facts], Any]
    chart: Callable[[Data], Spec]
    words: Callable[[Data], Said]
    columns: dict[str, str]
    rows: Callable[[Data], Rows] | None = None
    none: Callable[[Data], str] | str = "There is nothing to show yet."
    legend: Callable[[Data], list[tuple[str, str, str]]] = lambda data: []

    def table(self, data: Data) -> Rows:
        """The rows of its table, with their times in words."""
        rows: Rows = (data[self.name] if self.rows is None else self.rows(data)) or []
        return TimeAxis(data).named(rows) if rows and "t" in rows[0] else rows

    def card(self, data: Data) -> str:
        """The card of the panel, or what is missing for one."""
        table = self.table(data)
        if not table:
            none = self.none if isinstance(self.none, str) else self.none(data)
            title = element("h3", self.name.replace("_", " ").capitalize())
            return around("div", title + element("p", none, cls="none"), cls="card", id=self.name)
        said = self.words(data)
        inner = element("h3", said.title) + element("p", said.definition, cls="sub")
        if items := self.legend(data):
            lines = "".join(
                f'<li><i class="{kind}"></i>{element("span", name)} {element("b", more)}</li>'
                for kind, name, more in items
            )
            inner += f'<ul class="leg">{lines}</ul>'
        label = escape(said.title)
        inner += f'<div class="chart" id="chart-{self.name}" role="img" aria-label="{label}"></div>'
        if said.why:
            inner += element("p", said.why, cls="why")
        return around("div", inner + numbers(table, self.columns), cls="card", id=self.name)
