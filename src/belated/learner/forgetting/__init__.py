"""Learning that forgets: what a decision counts for halves with every half-life of its age.

* ``sums``: sums that decay, whatever the order in which things are added.
* ``pace``: how often decisions are made and how late rewards come, by the journal alone.
* ``evidence``: which half-life has predicted best.
* ``arrivals``: when the decisions of rewards were made, and what was predicted for them.
* ``tracks``: one half-life, with its own fit.
* ``rivals``: the models that are only compared.
* ``learner`` and ``adapter``: in the place of those that forget nothing.
* ``comparing``: the learner that finds its half-life.
"""

from belated.learner.forgetting.adapter import ForgettingAdapter, StampedLedger
from belated.learner.forgetting.comparing import ComparingLearner
from belated.learner.forgetting.learner import ForgettingLearner

__all__ = ["ComparingLearner", "ForgettingAdapter", "ForgettingLearner", "StampedLedger"]
