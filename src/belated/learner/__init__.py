"""From changes to sums, to an estimate, to the model.

``learner`` keeps the model of a policy; an ``account`` keeps, for one partition of a journal, which
decision is pending with which row and which reward it was learned with.
"""

from belated.learner.account import Account
from belated.learner.learner import Learner

__all__ = ["Account", "Learner"]
