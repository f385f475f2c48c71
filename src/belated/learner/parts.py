"""The parts of a fold, by its policy and rewards: what is less usual is loaded only if needed."""

from __future__ import annotations

from collections.abc import Sequence

from belated.estimators import Online, Thinned
from belated.exceptions import InvalidInput
from belated.kernels import Kernels
from belated.learner.adapter import LearnerAdapter
from belated.learner.learner import Learner
from belated.ledger import Ledger
from belated.policies.policy import Policy
from belated.rewards import ConversionsOnly, DefaultAfter, Rewards
from belated.tuning import USUAL, Tuning


def check_learnable(policy: Policy, rewards: Rewards) -> None:
    """Refuse a policy that cannot learn from such rewards."""
    if not isinstance(rewards, ConversionsOnly):
        estimator: object = policy.estimator
        if isinstance(estimator, Thinned):
            message = "Thinned is the estimator of conversions: use rewards=ConversionsOnly(window)"
            raise InvalidInput(f"{message}, or another estimator", estimator)
        together = isinstance(rewards, DefaultAfter) and rewards.learn == "together"
        if together and (policy.half_life is not None or policy.learns_after is not None):
            message = "DefaultAfter(learn='together') cannot be combined with a half_life or with"
            raise InvalidInput(f"{message} WaitForWindow: use learn='on arrival'", rewards)
        return
    reasons = {
        "half_life='auto', which judges predictions by outcomes (give one, such as '30d')": (
            policy.half_life == "auto"
        ),
        "metric='gram'": policy.metric == "gram",
        "WaitForWindow": policy.learns_after is not None,
        "the estimator Online()": isinstance(policy.estimator, Online),
        "a family of your own": policy.family.number is None,
    }
    for what, is_so in reasons.items():
        if is_so:
            message = f"ConversionsOnly cannot be combined with {what}: leave that out"
            raise InvalidInput(f"{message}, or use rewards=DefaultAfter(window)", policy)


def new_learner(
    policy: Policy,
    rewards: Rewards | None = None,
    *,
    partitions: int = 1,
    kernels: Kernels | None = None,
    tuning: Tuning = USUAL,
    interval: float | None = None,
) -> Learner:
    """Return the learner of a policy.

    Args:
        policy: whose model is learned.
        rewards: what a missing reward means; None if every reward comes.
        partitions: of the journal.
        kernels: to use instead of the best available.
        tuning: sizes.
        interval: microseconds between two decisions, if that is known: for a half-life of "auto".
    """
    if rewards is not None:
        check_learnable(policy, rewards)
    if isinstance(rewards, ConversionsOnly):
        from belated.learner.thinning import ThinnedLearner

        assert rewards.window_us is not None  # checked when it was made
        return ThinnedLearner(
            policy,
            window=rewards.window_us,
            delivery=rewards.delivery,
            partitions=partitions,
            kernels=kernels,
            tuning=tuning,
        )
    if policy.half_life is None:
        return Learner(policy, partitions=partitions, kernels=kernels, tuning=tuning)
    from belated.learner.forgetting import ComparingLearner, ForgettingLearner

    kind = ComparingLearner if policy.half_life == "auto" else ForgettingLearner
    return kind(policy, partitions=partitions, kernels=kernels, tuning=tuning, interval=interval)


def new_adapters(learner: Learner, rewards: Rewards) -> Sequence[LearnerAdapter]:
    """Return an adapter for each partition of a learner."""
    partitions = range(len(learner.observations))
    if isinstance(rewards, ConversionsOnly):
        from belated.learner.thinning import ThinnedAdapter, ThinnedLearner

        assert isinstance(learner, ThinnedLearner)
        thinned = [ThinnedAdapter(learner, one) for one in partitions]
        learner.outstanding = lambda: [adapter.outstanding() for adapter in thinned]
        return thinned
    if isinstance(rewards, DefaultAfter) and rewards.learn == "together":
        from belated.learner.together import TogetherAdapter

        return [TogetherAdapter(learner, one) for one in partitions]
    if learner.policy.half_life is None:
        return [LearnerAdapter(learner, one) for one in partitions]
    from belated.learner.forgetting import ForgettingAdapter, ForgettingLearner

    assert isinstance(learner, ForgettingLearner)
    adapters = [ForgettingAdapter(learner, one) for one in partitions]
    learner.outstanding = lambda: [adapter.outstanding() for adapter in adapters]
    return adapters


def ledger_of(policy: Policy, rewards: Rewards) -> type[Ledger]:
    """Return the kind of ledger that tells a learner all it needs."""
    if isinstance(rewards, ConversionsOnly):
        from belated.learner.thinning import ThinnedLedger

        return ThinnedLedger
    if isinstance(rewards, DefaultAfter) and rewards.learn == "together":
        from belated.learner.together import TogetherLedger

        return TogetherLedger
    if policy.half_life is None:
        return Ledger
    from belated.learner.forgetting import StampedLedger

    return StampedLedger
