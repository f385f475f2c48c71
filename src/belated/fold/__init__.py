"""The state of a bandit: a fold over its journal.

The join, from the records of a partition to what each decision has come to:

* ``rules``: the rules, in ``judge``.
* ``ledger``: reads records, keeps what is known of each decision, judges it by the rules, and tells
  a listener what has changed. ``table`` and ``unmatched`` are its memory.

From changes to the model:

* ``adapter``: keeps, for one partition, which decision is pending with which row, and which reward
  it was learned with.
* ``learner``: keeps the model of a policy, and ``weighting`` how much a decision counts by its age.

Both together:

* ``fold``: a ledger and an adapter for each partition, and one learner for all; snapshots of them.
* ``follower``: keeps a fold up to date with its journal, for the embedded bandit.
* ``published``: a model as it travels.
"""
