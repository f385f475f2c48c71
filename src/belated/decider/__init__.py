"""Deciding without I/O: choices, unapplied decisions, look-ups, modes, paused actions, baseline.

One :class:`Decider` is behind everything that decides: a :class:`~belated.Bandit` is a decider
with a fold and a journal, a served bandit is a decider with asynchronous commits, and the fault
simulator runs both. Time and randomness are arguments.
"""

from belated.decider.actions import ActionState
from belated.decider.baselines import FIRST, UNIFORM
from belated.decider.decider import Decider, HoldoutDecider, Made, ModelSource
from belated.decider.holdouts import Holdout
from belated.decider.loaded import LoadedModel
from belated.decider.modes import MODES, Mode
from belated.decider.requests import ParsedRequest, check_same

__all__ = [
    "FIRST",
    "MODES",
    "UNIFORM",
    "ActionState",
    "Decider",
    "Holdout",
    "HoldoutDecider",
    "LoadedModel",
    "Made",
    "Mode",
    "ModelSource",
    "ParsedRequest",
    "check_same",
]
