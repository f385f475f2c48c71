"""Policies, delays and the like as they are written in a command or a file: like in Python.

``Mixture(never=0.3, base=Geometric(mean=100))`` is read as Python would read it, and never run:
only names that belated knows can be called, with numbers, texts, lists and further such calls. A
name alone is a call without arguments.

* ``simulations``: what is simulated, where dim and family come from the problem.
* ``definitions``: what a bandit is made of; here dim and family are written.
* ``registry``: policies of your own, by name.
"""

from belated.expressions.definitions import (
    FEATURES,
    REWARDS,
    WHOLE_POLICIES,
    as_features,
    as_semantics,
    as_whole_policy,
    family_in,
)
from belated.expressions.reader import Kind, label
from belated.expressions.registry import load_modules, register
from belated.expressions.simulations import (
    DELAYS,
    ENVIRONMENTS,
    POLICIES,
    as_delay,
    as_environment,
    as_policy,
)

__all__ = [
    "DELAYS",
    "ENVIRONMENTS",
    "FEATURES",
    "POLICIES",
    "REWARDS",
    "WHOLE_POLICIES",
    "Kind",
    "as_delay",
    "as_environment",
    "as_features",
    "as_policy",
    "as_semantics",
    "as_whole_policy",
    "family_in",
    "label",
    "load_modules",
    "register",
]
