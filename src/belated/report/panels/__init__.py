"""The panels of a report, grouped by the question that they answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from belated.report.panel import Panel
from belated.report.panels.calibration import CALIBRATION
from belated.report.panels.coefficients import COEFFICIENTS
from belated.report.panels.cohorts import COHORTS
from belated.report.panels.delay import DELAY
from belated.report.panels.earn import EARN
from belated.report.panels.explore import EXPLORE
from belated.report.panels.feed import FEED, LAG
from belated.report.panels.forecast import FORECAST
from belated.report.panels.foregone import FOREGONE
from belated.report.panels.pending import PENDING
from belated.report.panels.per_action import PER_ACTION
from belated.report.panels.segments import SEGMENTS
from belated.report.panels.share import SHARE
from belated.report.text import Data
from belated.report.vega import coloured, config


class Question(NamedTuple):
    """A section of the page.

    Attributes:
        name: anchor for links.
        question: heading.
        whom: the readers for whom the section is meant.
        panels: panels that answer the question.
    """

    name: str
    question: str
    whom: str
    panels: tuple[Panel, ...]


QUESTIONS = (
    Question("earning", "Does it earn?", "for the owner of the result",
             (EARN, PER_ACTION, SHARE, SEGMENTS)),
    Question("waiting", "What is still to come?", "rewards that have not arrived yet",
             (DELAY, FORECAST, COHORTS, PENDING)),
    Question("trust", "Can the model be trusted?", "for the owner of the model",
             (CALIBRATION, FOREGONE, EXPLORE, COEFFICIENTS)),
    Question("running", "Is it running well?", "for the person on call", (FEED, LAG)),
)  # fmt: skip
#: All panels in the order of the page.
PANELS = tuple(panel for question in QUESTIONS for panel in question.panels)


def specifications(data: Data, palette: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the specification of every chart that has data.

    Args:
        data: data of the report.
        palette: colours by token; None means CSS variables of the page.
    """
    specs = {}
    for panel in PANELS:
        if panel.table(data):
            chart = panel.chart(data)
            specs[panel.name] = coloured(chart | {"config": config(data)}, palette)
    return specs
