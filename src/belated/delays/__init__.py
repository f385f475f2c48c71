r"""How late rewards are: laws of the delay, and processes of delays over the rounds.

The reward of round :math:`t` is seen at the end of round :math:`t + D_t`. A delay is a whole number
of rounds and not negative; a time that is not whole is rounded up. :data:`NEVER` is the delay of a
reward that is lost: larger than any horizon, and :math:`t + D_t` still fits an int64.

**The same law every round, independently** (:class:`Law`): :class:`Constant`, :class:`Uniform`,
:class:`Geometric`, :class:`Empirical`, :class:`Mixture`; and times made whole:
:class:`Exponential`, :class:`Weibull`, :class:`HalfNormal`, :class:`Lognormal`, :class:`Lomax`.
Each turns one uniform number a round into a delay, by its quantiles. So two runs with the same
generator see the same luck, whatever their laws.

**Dependent over the rounds**: :class:`LazyMarkov`, :class:`RegimeSwitch`, :class:`FiniteChain`,
:class:`BlockDependent`, :class:`Batched`.

**Dependent on the row or on the reward**: :class:`ContextDependent`, :class:`RewardDependent`.

Every process knows its exact tail :math:`P(D \ge i)` and the :class:`Parameters` of the paper's
assumptions.

>>> import numpy as np
>>> law = Geometric(mean=100)
>>> law.sample(5, np.random.default_rng(0))
array([101,  31,   4,   1, 168])
>>> law.params().sigma
7.0887
>>> expected_missing(law, [1, 2, 10_000])
array([  0.        ,   0.99009901, 100.        ])
"""

from belated.delays.dependent import (
    Batched,
    BlockDependent,
    Conditional,
    ContextDependent,
    FiniteChain,
    LazyMarkov,
    RegimeSwitch,
    RewardDependent,
)
from belated.delays.laws import (
    Constant,
    Empirical,
    Exponential,
    Geometric,
    HalfNormal,
    Lognormal,
    Lomax,
    Mixture,
    Uniform,
    Weibull,
)
from belated.delays.process import (
    NEVER,
    DelayProcess,
    Independent,
    Law,
    Parameters,
    expected_missing,
)

__all__ = [
    "NEVER",
    "Batched",
    "BlockDependent",
    "Conditional",
    "Constant",
    "ContextDependent",
    "DelayProcess",
    "Empirical",
    "Exponential",
    "FiniteChain",
    "Geometric",
    "HalfNormal",
    "Independent",
    "Law",
    "LazyMarkov",
    "Lognormal",
    "Lomax",
    "Mixture",
    "Parameters",
    "RegimeSwitch",
    "RewardDependent",
    "Uniform",
    "Weibull",
    "expected_missing",
]
