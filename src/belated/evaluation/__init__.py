"""What a bandit earns: off-policy values, lift over a holdout, delay curves, what is to come.

All of it are functions of a :class:`DecisionTable`, one line a decision.
"""

from belated.evaluation.delays import DelayCurve, Dependence, delay_curve, delay_depends
from belated.evaluation.forecasts import Expected, Forecast, forecast
from belated.evaluation.journal import JournalEvaluation
from belated.evaluation.lifts import GroupValue, Lift, earned, lift
from belated.evaluation.requests import Offers
from belated.evaluation.sources import JournalTable, read_journal
from belated.evaluation.table import NEVER, DecisionTable
from belated.evaluation.values import Value, off_policy_value

__all__ = [
    "NEVER",
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
    "Value",
    "delay_curve",
    "delay_depends",
    "earned",
    "forecast",
    "lift",
    "off_policy_value",
    "read_journal",
]
