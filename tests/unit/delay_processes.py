"""Delays of every kind, for tests that hold for all of them."""

import math
from collections.abc import Callable

import numpy as np

from belated.core.inputs import Vector
from belated.delays import (
    Batched,
    BlockDependent,
    Constant,
    DelayProcess,
    Empirical,
    Exponential,
    FiniteChain,
    Geometric,
    HalfNormal,
    Law,
    LazyMarkov,
    Lognormal,
    Lomax,
    Mixture,
    RegimeSwitch,
    Uniform,
    Weibull,
)
from belated.delays.process import least_sigma


def min_sigma(tail: Callable[[Vector], Vector], mu: float, q: float, upto: int) -> float:
    """The least σ with which Assumption 2 holds for a given q, at the delays up to ``upto``.

    For Assumption 4 with some q_R ask for q = 1 + 2 q_R. If the result keeps growing with ``upto``,
    the assumption fails.
    """
    atoms = np.arange(math.floor(mu) + 1.0, upto + 1.0)
    return least_sigma(atoms, tail(atoms), mu, q)


def shown(process: object) -> str:
    """What a process prints, in one line."""
    return " ".join(repr(process).split())


LAWS: list[Law] = [
    Constant(0),
    Constant(7),
    Uniform(100),
    Uniform(0),
    Geometric(mean=5),
    Geometric(mean=100),
    Geometric(mean=0.01),
    Exponential(mean=50),
    Exponential(mean=1.001),
    Weibull(shape=0.6, scale=20),
    Weibull(shape=1.5, scale=40),
    Weibull(shape=2, scale=40),
    Weibull(shape=3, scale=40),
    Weibull(shape=4, scale=40),
    HalfNormal(scale=20),
    HalfNormal(scale=0.5),
    Lognormal(median=30, sigma=1.5),
    Lognormal(median=0.3, sigma=0.5),
    Lomax(shape=1.2, scale=100),
    Lomax(shape=0.8, scale=20),
    Mixture(never=0.3, base=Geometric(mean=100)),
    Mixture(never=0.0, base=Uniform(10)),
    Empirical([4, 0, 0, 12, 12, 3]),
    Empirical([4, 0, math.inf]),
]
SWITCH = [[0.99, 0.01], [0.03, 0.97]]
CYCLE = [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]]  # not reversible
DEPENDENT: list[DelayProcess] = [
    LazyMarkov(0.5, base=Geometric(mean=20)),
    LazyMarkov(0.95, base=Weibull(shape=4, scale=40)),
    LazyMarkov(0.0, base=Uniform(9)),
    RegimeSwitch(SWITCH, laws=[Geometric(mean=5), Geometric(mean=50)]),
    RegimeSwitch(CYCLE, laws=[Uniform(3), Constant(9), Uniform(30)]),
    RegimeSwitch([[0.5, 0.5], [0.5, 0.5]], laws=[Uniform(3), Uniform(30)]),
    FiniteChain(CYCLE, values=[10, 0, 3]),
    FiniteChain([[0.2, 0.8], [0.2, 0.8]], values=[10, 0]),
    BlockDependent(Weibull(shape=4, scale=40), length=30),
    BlockDependent(Geometric(mean=5), length=1),
    Batched(10),
    Batched(10, offset=4),
]
PROCESSES = [*LAWS, *DEPENDENT]


def rng(seed: int = 0) -> np.random.Generator:
    """A new generator, the same for the same seed."""
    return np.random.default_rng(seed)
