"""One bandit learned by several: each folds some partitions, and one merges their sums.

* :class:`PartitionFold`: one partition, folded into a ledger and into sums that add; no model.
* :class:`PartitionSums`: these sums as they travel, with the position they are of.
* :class:`Merging`: the sums of all partitions, merged into one model.
"""

from belated.learner.partitioned.fold import PartitionFold
from belated.learner.partitioned.learner import PartitionLearner, check_mergeable
from belated.learner.partitioned.merging import Center, Merging
from belated.learner.partitioned.sums import PartitionSums

__all__ = [
    "Center",
    "Merging",
    "PartitionFold",
    "PartitionLearner",
    "PartitionSums",
    "check_mergeable",
]
