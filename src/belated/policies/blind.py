"""The usual way: what is outstanding does not count."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from belated.policies.delayed_thompson import DelayedThompson
from belated.policies.delayed_ucb import DelayedUCB


@dataclass(frozen=True)
class BlindUCB(DelayedUCB):
    """UCB on what has arrived only: it repeats its choice until the first answer comes.

    >>> from belated import Bernoulli
    >>> BlindUCB(2, Bernoulli()).pending_weight
    0.0
    """

    _: KW_ONLY
    pending_weight: float = 0.0


@dataclass(frozen=True)
class BlindThompson(DelayedThompson):
    """Thompson sampling on what has arrived only, as in the paper.

    >>> from belated import Bernoulli
    >>> BlindThompson(2, Bernoulli()).pending_weight
    0.0
    """

    _: KW_ONLY
    pending_weight: float = 0.0
