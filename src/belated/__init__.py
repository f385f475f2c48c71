"""Contextual bandits for rewards that come late."""

from belated import delays, environments, theory
from belated.families import Bernoulli, Gaussian, Poisson
from belated.features import Hashed, PerArm, Shared
from belated.policies import (
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Greedy,
    Uniform,
    WaitForWindow,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
)
from belated.simulation import simulate
from belated.sweeps import simulate_many

__all__ = [
    "Bernoulli",
    "BlindThompson",
    "BlindUCB",
    "DelayedThompson",
    "DelayedUCB",
    "EpsilonGreedy",
    "Gaussian",
    "Greedy",
    "Hashed",
    "PerArm",
    "Poisson",
    "Shared",
    "Uniform",
    "WaitForWindow",
    "delays",
    "environments",
    "paper_dts",
    "paper_dts_lcb",
    "paper_ducb",
    "simulate",
    "simulate_many",
    "theory",
]
