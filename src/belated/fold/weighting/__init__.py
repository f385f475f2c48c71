"""Weights of decisions and rewards by age.

* ``constant``: the weight is always 1.
* ``half_life``: the weight halves with every half-life that passes.
* ``automatic``: the half-life is chosen by the quality of its predictions.
* ``conversions``: if only conversions are reported, a decision is weighted by the share of
  conversions expected by its age; ``age_blocks`` maintains the sums.
"""

from __future__ import annotations

from belated.core.rewards import ConversionsOnly, DefaultAfter, Rewards
from belated.exceptions import InvalidInput
from belated.fold.weighting.automatic import AutomaticHalfLife as AutomaticHalfLife
from belated.fold.weighting.constant import Constant as Constant, Outstanding as Outstanding
from belated.fold.weighting.conversions import ExpectedConversions as ExpectedConversions
from belated.fold.weighting.half_life import HalfLife as HalfLife
from belated.model.estimators import Online, Thinned
from belated.policies.policy import Policy


def weighting_of(policy: Policy, rewards: Rewards | None) -> type[Constant]:
    """Return the weighting for a policy and the meaning of missing rewards.

    Raises:
        InvalidInput: the policy cannot learn from such rewards.
    """
    if rewards is not None:
        _check_combination(policy, rewards)
    if isinstance(rewards, ConversionsOnly):
        return ExpectedConversions
    if policy.half_life is None:
        return Constant
    return AutomaticHalfLife if policy.half_life == "auto" else HalfLife


def check_learnable(policy: Policy, rewards: Rewards) -> None:
    """Reject policies that cannot learn from such rewards or that are for simulations only."""
    if not policy.learns_late:
        message = "WaitForWindow drops rewards and is for comparisons in simulate() only: use"
        raise InvalidInput(f"{message} DelayedUCB(learn_after=...)", policy)
    _check_combination(policy, rewards)


def _check_combination(policy: Policy, rewards: Rewards) -> None:
    if not isinstance(rewards, ConversionsOnly):
        estimator: object = policy.estimator
        if isinstance(estimator, Thinned):
            message = "Thinned estimates conversions only: use rewards=ConversionsOnly(window)"
            raise InvalidInput(f"{message}, or another estimator", estimator)
        together = isinstance(rewards, DefaultAfter) and rewards.learn == "together"
        if together and (policy.half_life is not None or policy.learns_after is not None):
            message = "DefaultAfter(learn='together') cannot be combined with a half_life or"
            raise InvalidInput(f"{message} learn_after: use learn='on arrival'", rewards)
        return
    reasons = {
        "half_life='auto', which compares predictions with outcomes (a fixed one is allowed)": (
            policy.half_life == "auto"
        ),
        "metric='gram'": policy.metric == "gram",
        "learn_after": policy.learns_after is not None,
        "the estimator Online()": isinstance(policy.estimator, Online),
        "a custom family": policy.family.number is None,
    }
    for option, applies in reasons.items():
        if applies:
            message = f"ConversionsOnly cannot be combined with {option}: remove it"
            raise InvalidInput(f"{message}, or use rewards=DefaultAfter(window)", policy)
