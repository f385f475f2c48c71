"""Policies, delays and the like as they are written in a command or a file: like in Python.

``Mixture(never=0.3, base=Geometric(mean=100))`` is read as Python would read it, and never run:
only names that belated knows can be called, with numbers, texts, lists and further such calls. A
name alone is a call without arguments.

What is simulated takes dim and family from the problem; in what a bandit is made of, they are
written. :func:`register` gives a name to a policy of your own.
"""

from belated.expressions.kinds import (
    as_delay,
    as_environment,
    as_features,
    as_policy,
    as_semantics,
    as_whole_policy,
    family_in,
    load_modules,
    register,
)

__all__ = [
    "as_delay",
    "as_environment",
    "as_features",
    "as_policy",
    "as_semantics",
    "as_whole_policy",
    "family_in",
    "load_modules",
    "register",
]
