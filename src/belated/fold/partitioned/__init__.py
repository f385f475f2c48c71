"""Several learners that share a bandit: each folds some partitions, and one merges their sums.

* :class:`PartitionFold`: folds one partition into a ledger and additive sums, without a model.
* :class:`PartitionSums`: the format in which these sums are sent, with their position.
* :class:`Merging`: merges the sums of all partitions into one model.
"""

from belated.fold.partitioned.fold import PartitionFold as PartitionFold
from belated.fold.partitioned.learner import (
    PartitionLearner as PartitionLearner,
    check_mergeable as check_mergeable,
)
from belated.fold.partitioned.merging import Center as Center, Merging as Merging
from belated.fold.partitioned.sums import PartitionSums as PartitionSums
