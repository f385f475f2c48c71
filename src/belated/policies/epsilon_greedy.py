"""What looks best now, with a fixed share of random choices."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from belated.policies.greedy import Greedy


@dataclass(frozen=True)
class EpsilonGreedy(Greedy):
    """Greedy, but for a share of uniformly random choices: greedy with another ``floor``.

    >>> from belated import Bernoulli
    >>> EpsilonGreedy(2, Bernoulli()).floor
    0.05
    """

    _: KW_ONLY
    floor: float = 0.05
