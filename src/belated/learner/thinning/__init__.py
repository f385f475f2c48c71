"""Learning where only conversions are reported: every decision counts by its age.

* ``blocks``: sums of decisions by age, from which θ̂ is one step.
* ``deliveries``: whether conversions come in batches, and up to when all that happened is known.
* ``times``: when decisions began and conversions were reported, by their handles.
* ``learner`` and ``adapter``: in the place of those that learn a reward when it comes.
"""

from belated.learner.thinning.adapter import ThinnedAdapter, ThinnedLedger
from belated.learner.thinning.learner import ThinnedLearner

__all__ = ["ThinnedAdapter", "ThinnedLearner", "ThinnedLedger"]
