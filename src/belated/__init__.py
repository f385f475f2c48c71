"""Contextual bandits for rewards that come late."""

from belated import delays, theory
from belated.bandit import Bandit
from belated.events import Decision
from belated.families import Bernoulli, Gaussian, Poisson
from belated.features import Category, Flag, Hashed, Number, PerArm, Shared
from belated.ledger.receipts import Receipt
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
from belated.rewards import ConversionsOnly, DefaultAfter, Explicit
from belated.simulation import environments, simulate
from belated.simulation.sweeps import simulate_many

__all__ = [
    "Bandit",
    "Bernoulli",
    "BlindThompson",
    "BlindUCB",
    "Category",
    "ConversionsOnly",
    "Decision",
    "DefaultAfter",
    "DelayedThompson",
    "DelayedUCB",
    "EpsilonGreedy",
    "Explicit",
    "Flag",
    "Gaussian",
    "Greedy",
    "Hashed",
    "Number",
    "PerArm",
    "Poisson",
    "Receipt",
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
