"""Policies: choose an action given a model and rows, and return its exact propensity.

Each module contains one algorithm. A policy is immutable and holds only settings; everything that
is learned is in the model. A policy declares what it requires of the learner, so no other module
refers to a policy by name.
"""

from belated.policies.blind import BlindThompson, BlindUCB
from belated.policies.delayed_thompson import DelayedThompson
from belated.policies.delayed_ucb import DelayedUCB
from belated.policies.greedy import EpsilonGreedy, Greedy
from belated.policies.paper import paper_dts, paper_dts_lcb, paper_ducb
from belated.policies.policy import Choice, Policy
from belated.policies.uniform import Uniform
from belated.policies.wait_for_window import WaitForWindow
from belated.policies.warmup import Warmup

__all__ = [
    "BlindThompson",
    "BlindUCB",
    "Choice",
    "DelayedThompson",
    "DelayedUCB",
    "EpsilonGreedy",
    "Greedy",
    "Policy",
    "Uniform",
    "WaitForWindow",
    "Warmup",
    "paper_dts",
    "paper_dts_lcb",
    "paper_ducb",
]
