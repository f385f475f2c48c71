"""What a bandit takes, before there is one: machines, and time to learn.

:func:`measure` finds out what a decision, an event and a commit cost on this machine, and
:func:`plan` says how many machines a rate takes. :func:`plan_learning` simulates what a delay, a
window and a stale model cost, and says how long it takes until a lift is known. ``belated plan`` is
both on the command line.

>>> from belated.planning.costs import REFERENCE
>>> made = plan(REFERENCE, Demand(rate=200.0, reward_share=0.1, dim=20, window=86_400.0))
>>> made.setup.log, made.partitions
('sqlite', 1)
"""

from belated.planning.arithmetic import Demand, Plan, Setup, plan
from belated.planning.costs import Costs, Linear, LogCosts
from belated.planning.learning import Learning, LearningPlan, holdout_times, plan_learning
from belated.planning.measuring import measure

__all__ = [
    "Costs",
    "Demand",
    "Learning",
    "LearningPlan",
    "Linear",
    "LogCosts",
    "Plan",
    "Setup",
    "holdout_times",
    "measure",
    "plan",
    "plan_learning",
]
