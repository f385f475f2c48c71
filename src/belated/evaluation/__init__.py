"""What a bandit earns, or another system: values of policies, lift, delay curves, what is to come.

A :class:`Log` has the decisions and answers the questions. Its answers are functions of a table
with one line a decision.
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
