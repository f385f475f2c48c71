"""Evaluation of a bandit or another system: policy values, lift, delay curves and forecasts.

A :class:`Log` holds the decisions and computes the estimates, each from a table with one row per
decision.
"""

from belated.evaluation.delays import DelayCurve, Dependence
from belated.evaluation.forecasts import Expected, Forecast
from belated.evaluation.frames import Log
from belated.evaluation.lifts import GroupValue, Lift
from belated.evaluation.values import Value

__all__ = [
    "DelayCurve",
    "Dependence",
    "Expected",
    "Forecast",
    "GroupValue",
    "Lift",
    "Log",
    "Value",
]
