"""From changes to sums, to an estimate, to the model; and the fold over a journal.

* ``learner`` keeps the model of a policy; an ``account`` keeps, for one partition of a journal,
  which decision is pending with which row and which reward it was learned with. A ``window`` holds
  rewards back, if the policy learns them at its end.
* ``fold`` is the state of a bandit: a ledger and an account for each partition, one learner.
* ``follower`` keeps a fold up to date with its journal; ``live`` is its model for a decider;
  ``view`` and ``pending`` are what people read of it.
"""

from belated.learner.adapter import LearnerAdapter
from belated.learner.fold import Fold, same_sums
from belated.learner.follower import Follower
from belated.learner.learner import Learner
from belated.learner.live import LiveModel
from belated.learner.parts import check_learnable, new_learner
from belated.learner.pending import Pending
from belated.learner.view import FoldView
from belated.learner.window import DecisionWindow

__all__ = [
    "DecisionWindow",
    "Fold",
    "FoldView",
    "Follower",
    "Learner",
    "LearnerAdapter",
    "LiveModel",
    "Pending",
    "check_learnable",
    "new_learner",
    "same_sums",
]
