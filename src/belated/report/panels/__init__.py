"""The panels of a report, by the question that they answer."""

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
from belated.report.vega import coloured


class Question(NamedTuple):
    """A section of the page.

    Attributes:
        name: for links.
        question: its heading.
        whom: who asks.
        panels: that answer it.
    """

    name: str
    question: str
    whom: str
    panels: tuple[Panel, ...]


QUESTIONS = (
    Question("earning", "Does it earn?", "for whoever owns the result",
             (EARN, PER_ACTION, SHARE, SEGMENTS)),
    Question("waiting", "What is still to come?", "what has not arrived yet",
             (DELAY, FORECAST, COHORTS, PENDING)),
    Question("trust", "Can the model be trusted?", "for whoever owns the model",
             (CALIBRATION, FOREGONE, EXPLORE, COEFFICIENTS)),
    Question("running", "Is it running well?", "for whoever is on call", (FEED, LAG)),
)  # fmt: skip
#: In the order in which they are shown.
PANELS = tuple(panel for question in QUESTIONS for panel in question.panels)


def specifications(data: Data, palette: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the specification of every chart that has data.

    Args:
        data: of the report.
        palette: of its colours; None: CSS variables of the page.
    """
    return {
        panel.name: coloured(panel.chart(data), palette) for panel in PANELS if panel.table(data)
    }
