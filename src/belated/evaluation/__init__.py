"""What a bandit earns: off-policy values, lift over a holdout, delay curves, what is to come.

All of it are functions of a :class:`DecisionTable`, one line a decision.
"""

from belated.evaluation.arrivals import arrival_weights
from belated.evaluation.delays import DelayCurve, Dependence, delay_curve, delay_depends
from belated.evaluation.forecasts import Expected, Forecast, forecast
from belated.evaluation.journal import JournalEvaluation
from belated.evaluation.lifts import GroupValue, Lift, earned, lift
from belated.evaluation.requests import Offers
from belated.evaluation.silences import Silence, Slowing, silence, slowing
from belated.evaluation.sources import JournalTable, read_journal
from belated.evaluation.table import NEVER, SOURCES, DecisionTable
from belated.evaluation.values import Value, off_policy_value

__all__ = [
    "NEVER",
    "SOURCES",
    "DecisionTable",
    "DelayCurve",
    "Dependence",
    "Expected",
    "Forecast",
    "GroupValue",
    "JournalEvaluation",
    "JournalTable",
    "Lift",
    "Offers",
    "Silence",
    "Slowing",
    "Value",
    "arrival_weights",
    "delay_curve",
    "delay_depends",
    "earned",
    "forecast",
    "lift",
    "off_policy_value",
    "read_journal",
    "silence",
    "slowing",
]
