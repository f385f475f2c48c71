"""From changes to sums, to an estimate, to the model.

``learner`` keeps the model of a policy; an ``account`` keeps, for one partition of a journal, which
decision is pending with which row and which reward it was learned with. A ``window`` holds rewards
back, if the policy learns them at its end.
"""

from belated.learner.account import Account
from belated.learner.learner import Learner
from belated.learner.window import DecisionWindow

__all__ = ["Account", "DecisionWindow", "Learner"]
