"""Policies that ignore pending decisions, as most libraries do."""

from __future__ import annotations

from dataclasses import dataclass, field

from belated.policies.delayed_thompson import DelayedThompson
from belated.policies.delayed_ucb import DelayedUCB


@dataclass(frozen=True)
class BlindUCB(DelayedUCB):
    """UCB on arrived rewards only; the policy repeats its choice until the first reward arrives.

    >>> from belated import Bernoulli
    >>> BlindUCB(2, Bernoulli(), alpha=0.5).pending_weight
    0.0
    """

    pending_weight: float = field(default=0.0, init=False, repr=False)


@dataclass(frozen=True)
class BlindThompson(DelayedThompson):
    """Thompson sampling on arrived rewards only, as in the paper.

    >>> from belated import Bernoulli
    >>> BlindThompson(2, Bernoulli(), scale=1.0).pending_weight
    0.0
    """

    pending_weight: float = field(default=0.0, init=False, repr=False)
