"""Let several learners share a bandit: each folds some partitions, and one merges their sums.

* :class:`PartitionFold` folds one partition into a ledger and additive sums, without a model.
* :class:`PartitionSums` is the format in which the sums and their position are sent.
* :class:`Merging` merges the sums of all partitions into one model; a subclass does so for bandits
  whose observations are weighted by age.
"""

from belated.fold.partitioned.fold import PartitionFold as PartitionFold
from belated.fold.partitioned.learner import (
    PartitionLearner as PartitionLearner,
    check_mergeable as check_mergeable,
)
from belated.fold.partitioned.merging import Merging as Merging
from belated.fold.partitioned.sums import PartitionSums as PartitionSums
