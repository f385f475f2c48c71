"""The parts of a fold, by its policy: those that forget are loaded only if it has a half-life."""

from __future__ import annotations

from collections.abc import Sequence

from belated.kernels import Kernels
from belated.learner.adapter import LearnerAdapter
from belated.learner.learner import Learner
from belated.ledger import Ledger
from belated.policies.policy import Policy
from belated.tuning import USUAL, Tuning


def new_learner(
    policy: Policy,
    *,
    partitions: int = 1,
    kernels: Kernels | None = None,
    tuning: Tuning = USUAL,
    interval: float | None = None,
) -> Learner:
    """Return the learner of a policy.

    Args:
        policy: whose model is learned.
        partitions: of the journal.
        kernels: to use instead of the best available.
        tuning: sizes.
        interval: microseconds between two decisions, if that is known: for a half-life of "auto".
    """
    if policy.half_life is None:
        return Learner(policy, partitions=partitions, kernels=kernels, tuning=tuning)
    from belated.learner.forgetting import ComparingLearner, ForgettingLearner

    kind = ComparingLearner if policy.half_life == "auto" else ForgettingLearner
    return kind(policy, partitions=partitions, kernels=kernels, tuning=tuning, interval=interval)


def new_adapters(learner: Learner) -> Sequence[LearnerAdapter]:
    """Return an adapter for each partition of a learner."""
    partitions = range(len(learner.observations))
    if learner.policy.half_life is None:
        return [LearnerAdapter(learner, one) for one in partitions]
    from belated.learner.forgetting import ForgettingAdapter, ForgettingLearner

    assert isinstance(learner, ForgettingLearner)
    adapters = [ForgettingAdapter(learner, one) for one in partitions]
    learner.outstanding = lambda: [adapter.outstanding() for adapter in adapters]
    return adapters


def ledger_of(policy: Policy) -> type[Ledger]:
    """Return the kind of ledger that tells a learner of this policy all it needs."""
    if policy.half_life is None:
        return Ledger
    from belated.learner.forgetting import StampedLedger

    return StampedLedger
