"""How much decisions and rewards count by their age.

* ``constant``: in full, for ever.
* ``half_life``: for half as much after each half-life.
* ``automatic``: by the half-life that predicts best.
* ``conversions``: for what should be seen by their age, where only conversions are reported;
  ``age_blocks`` are its sums.
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
    """Return how the rewards of a policy count.

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
    """Refuse a policy that cannot learn from such rewards, or is for simulations only."""
    if not policy.learns_late:
        message = "WaitForWindow, which drops rewards, is for comparisons in simulate(): use"
        raise InvalidInput(f"{message} DelayedUCB(learn_after=...)", policy)
    _check_combination(policy, rewards)


def _check_combination(policy: Policy, rewards: Rewards) -> None:
    if not isinstance(rewards, ConversionsOnly):
        estimator: object = policy.estimator
        if isinstance(estimator, Thinned):
            message = "Thinned is the estimator of conversions: use rewards=ConversionsOnly(window)"
            raise InvalidInput(f"{message}, or another estimator", estimator)
        together = isinstance(rewards, DefaultAfter) and rewards.learn == "together"
        if together and (policy.half_life is not None or policy.learns_after is not None):
            message = "DefaultAfter(learn='together') cannot be combined with a half_life or"
            raise InvalidInput(f"{message} learn_after: use learn='on arrival'", rewards)
        return
    reasons = {
        "half_life='auto', which judges predictions by outcomes (give one, such as '30d')": (
            policy.half_life == "auto"
        ),
        "metric='gram'": policy.metric == "gram",
        "learn_after": policy.learns_after is not None,
        "the estimator Online()": isinstance(policy.estimator, Online),
        "a family of your own": policy.family.number is None,
    }
    for what, is_so in reasons.items():
        if is_so:
            message = f"ConversionsOnly cannot be combined with {what}: leave that out"
            raise InvalidInput(f"{message}, or use rewards=DefaultAfter(window)", policy)
