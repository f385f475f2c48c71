"""One bandit learned by several: each folds some partitions, and one merges their sums.

* :class:`PartitionFold`: one partition, folded into a ledger and into sums that add; no model.
* :class:`PartitionSums`: these sums as they travel, with the position they are of.
* :class:`Merging`: the sums of all partitions, merged into one model.
"""

from belated.fold.partitioned.fold import PartitionFold as PartitionFold
from belated.fold.partitioned.learner import (
    PartitionLearner as PartitionLearner,
    check_mergeable as check_mergeable,
)
from belated.fold.partitioned.merging import Center as Center, Merging as Merging
from belated.fold.partitioned.sums import PartitionSums as PartitionSums
