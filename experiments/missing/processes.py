"""The delays whose missing rewards are counted: light and heavy tails, dependent and lost ones."""

from __future__ import annotations

from belated.delays import (
    Batched,
    BlockDependent,
    DelayProcess,
    Exponential,
    FiniteChain,
    Geometric,
    HalfNormal,
    LazyMarkov,
    Lognormal,
    Lomax,
    Mixture,
    RegimeSwitch,
    Uniform,
    Weibull,
)

#: T.
HORIZON = 3000

PROCESSES: dict[str, DelayProcess] = {
    "geometric, mean 5": Geometric(mean=5),
    "geometric, mean 100": Geometric(mean=100),
    "exponential, mean 50": Exponential(mean=50),
    "half-normal, scale 5": HalfNormal(scale=5),
    "half-normal, scale 50": HalfNormal(scale=50),
    "uniform, 0 to 100": Uniform(100),
    "lognormal, median 30": Lognormal(median=30, sigma=1.5),
    "Lomax, shape 1.5": Lomax(shape=1.5, scale=50),
    "Lomax, shape .8": Lomax(shape=0.8, scale=50),
    "30 % never, geometric 100": Mixture(never=0.3, base=Geometric(mean=100)),
    "lazy ρ .5, geometric 20": LazyMarkov(0.5, base=Geometric(mean=20)),
    "lazy ρ .95, geometric 20": LazyMarkov(0.95, base=Geometric(mean=20)),
    "regimes, geometric 5 and 50": RegimeSwitch(
        [[0.99, 0.01], [0.03, 0.97]], laws=[Geometric(mean=5), Geometric(mean=50)]
    ),
    "chain of three states": FiniteChain(
        [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.7, 0.1, 0.2]], values=[40, 0, 7]
    ),
    "Weibull 4, blocks of 30": BlockDependent(Weibull(shape=4, scale=40), length=30),
    "midnight, period 100": Batched(100),
}
