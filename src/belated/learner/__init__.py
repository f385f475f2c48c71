"""From changes to sums, to an estimate, to the model; and the fold over a journal.

* ``learner`` keeps the model of a policy, and ``weighting`` how much a decision counts by its age.
* ``adapter`` keeps, for one partition of a journal, which decision is pending with which row and
  which reward it was learned with.
* ``fold`` is the state of a bandit: a ledger and an adapter for each partition, one learner.
* ``follower`` keeps a fold up to date with its journal; ``live`` is its model for a decider.
"""

from belated.learner.adapter import LearnerAdapter
from belated.learner.fold import Fold, same_sums
from belated.learner.follower import Follower
from belated.learner.learner import Learner
from belated.learner.live import LiveModel
from belated.learner.weighting import check_learnable

__all__ = [
    "Fold",
    "Follower",
    "Learner",
    "LearnerAdapter",
    "LiveModel",
    "check_learnable",
    "same_sums",
]
