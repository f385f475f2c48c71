"""The state of a bandit: a fold over its journal.

These modules derive the state of each decision from records:

* ``rules`` determines a decision's state from its records.
* ``ledger`` folds the records of a partition, applies the rules, and reports changes to a listener.
  ``table``, ``unmatched`` and ``subjects`` hold the ledger's data.

These modules update the model from the changes:

* ``adapter`` stores the rows of a partition's pending decisions and the handles of rewards, and
  passes changes on to the learner.
* ``learner`` maintains the model of a policy; ``weighting`` defines how much a decision counts
  depending on its age.

These modules combine both:

* ``fold`` has a ledger and an adapter for each partition, one learner for all partitions, and their
  snapshots.
* ``follower`` keeps the fold of an embedded bandit up to date with its journal.
* ``published`` defines the format of published models.
"""
