r"""Delay distributions, and processes that generate delays over rounds.

The reward of round :math:`t` is seen at the end of round :math:`t + D_t`. A delay is a non-negative
whole number of rounds. :data:`NEVER` is the delay of a lost reward: it is larger than any horizon,
but :math:`t + D_t` still fits in an int64.

**Independent delays with the same distribution in every round** (:class:`Law`): :class:`Constant`,
:class:`Uniform`, :class:`Geometric`, :class:`Empirical`, :class:`Mixture`; and continuous times
rounded to whole rounds: :class:`Exponential`, :class:`Weibull`, :class:`HalfNormal`,
:class:`Lognormal`, :class:`Lomax`. Each uses its quantile function to turn one uniform number per
round into a delay, so two runs with the same seed use the same random numbers, even if their
distributions differ.

**Delays that depend on earlier rounds**: :class:`LazyMarkov`, :class:`RegimeSwitch`,
:class:`FiniteChain`, :class:`BlockDependent`, :class:`Batched`.

**Delays that depend on the row or the reward**: :class:`ContextDependent`,
:class:`RewardDependent`.

Every process except the last two has an exact tail :math:`P(D \ge i)`, and all return the
:class:`Parameters` of the paper's assumptions.

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
