"""Ways to choose: a model and rows in, an action with its exact propensity out.

One algorithm a file. A policy is a frozen value: what it is, not what it has seen. What was seen is
in the model. It says itself what it needs of the learner, so nothing else knows any policy by name.
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
