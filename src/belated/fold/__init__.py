"""The state of a bandit: a fold over its journal.

From records to the state of each decision:

* ``rules``: the rules that determine a decision's state from its records.
* ``ledger``: folds the records of a partition, applies the rules, and reports what has changed to a
  listener. ``table``, ``unmatched`` and ``subjects`` hold its data.

From changes to the model:

* ``adapter``: stores the rows of a partition's pending decisions and the handles of learned
  rewards, and passes changes on to the learner.
* ``learner``: maintains the model of a policy; ``weighting`` defines how much a decision counts
  depending on its age.

Both together:

* ``fold``: a ledger and an adapter for each partition, one learner for all, and their snapshots.
* ``follower``: keeps the fold of an embedded bandit up to date with its journal.
* ``published``: the format in which models are published.
"""
