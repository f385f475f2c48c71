"""Decision logic without I/O: choices, unapplied decisions, modes, paused actions, baselines.

Everything that makes decisions uses a :class:`Decider`. A :class:`~belated.Bandit` is a decider
with a fold and a journal, a served bandit is a decider with asynchronous commits, and the fault
simulator runs both. The current time and the random generator are passed as arguments.
"""

from belated.decider.actions import ActionState as ActionState
from belated.decider.baselines import FIRST as FIRST, UNIFORM as UNIFORM
from belated.decider.decider import (
    Decider as Decider,
    HoldoutDecider as HoldoutDecider,
    Made as Made,
    ModelSource as ModelSource,
)
from belated.decider.holdouts import Holdout as Holdout
from belated.decider.loaded import LoadedModel as LoadedModel
from belated.decider.modes import MODES as MODES, Mode as Mode
from belated.decider.requests import ParsedRequest as ParsedRequest, check_same as check_same
