"""How many machines it takes: what things cost here, and what that comes to at a rate.

:func:`measure` finds out what a decision, an event and a commit cost on this machine, and
:func:`plan` does the arithmetic. ``belated plan`` is both on the command line.

>>> from belated.planning.costs import REFERENCE
>>> made = plan(REFERENCE, Demand(rate=200.0, reward_share=0.1, dim=20, window=86_400.0))
>>> made.setup.log, made.partitions
('sqlite', 1)
"""

from belated.planning.arithmetic import Demand, Plan, Setup, plan
from belated.planning.costs import Costs, Linear, LogCosts
from belated.planning.measuring import measure

__all__ = ["Costs", "Demand", "Linear", "LogCosts", "Plan", "Setup", "measure", "plan"]
