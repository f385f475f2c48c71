"""Delays, policies and problems to simulate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from belated import delays
from belated.delays import DelayProcess
from belated.expressions.reader import WRONG, Kind, Reader, by_name, exported
from belated.expressions.registry import POLICY_NAMES, register, registered
from belated.model import families
from belated.policies import Policy
from belated.simulation import environments
from belated.simulation.environments import Environment


def _is_delay(value: Any) -> bool:
    """The delays are data; a rate that is a function of the row cannot be written."""
    return is_dataclass(value) and hasattr(value, "sample") and value != delays.ContextDependent


DELAYS = Kind(
    noun="delay",
    example="Geometric(mean=100)",
    names=exported(delays, _is_delay),
    parts={"NEVER": delays.NEVER},
)
POLICIES = Kind(
    noun="policy",
    example="DelayedUCB(alpha=0.5)",
    names=POLICY_NAMES,
    given={
        "dim": "it comes from the environment",
        "family": "it comes from the environment",
        "prior": "it cannot be written on a command line",
        "estimator": "it cannot be written on a command line",
    },
)
ENVIRONMENTS = Kind(
    noun="environment",
    example="fixed(dim=5, n_arms=8)",
    names=by_name(
        environments.fixed,
        environments.users,
        environments.fresh,
        environments.ball,
        environments.arms,
        environments.digits,
    ),
    parts=by_name(families.Bernoulli, families.Gaussian, families.Poisson),
    given={"seed": "it comes from --seeds"},
)


@dataclass(frozen=True)
class WrittenPolicy:
    """Makes the policy of a text for an environment, also in another process.

    Args:
        text: what was written.
        needs: what makes the policies in it that are not belated's own.
    """

    text: str
    needs: tuple[Callable[..., Policy], ...] = ()

    def __call__(self, world: Environment) -> Policy:
        """The policy, for rows and rewards of this environment."""
        for make in self.needs:
            register(make)
        policy: Policy = Reader(POLICIES, self.text, dim=world.dim, family=world.family).made()
        return policy


@dataclass(frozen=True)
class WrittenEnvironment:
    """Makes the problem of a text from a seed."""

    text: str

    def __call__(self, seed: int) -> Environment:
        """The problem of this seed."""
        world: Environment = Reader(ENVIRONMENTS, self.text, seed=seed).made()
        return world


def as_delay(text: str) -> DelayProcess:
    """A delay.

    >>> as_delay("Mixture(never=0.3, base=Geometric(mean=100))")
    Mixture(never=0.3, base=Geometric(mean=100.0))
    """
    delay: DelayProcess = Reader(DELAYS, text).made()
    return delay


def as_policy(text: str) -> WrittenPolicy:
    """A policy, once there is an environment to say how wide its rows are.

    >>> from belated.simulation.environments import fixed
    >>> as_policy("BlindUCB(alpha=0.5)")(fixed(seed=0)).dim
    10
    """
    Reader(POLICIES, text, dim=2, family=families.Bernoulli()).made()  # refused now, not later
    return WrittenPolicy(text, tuple(registered(text).values()))


def as_environment(text: str) -> WrittenEnvironment:
    """A problem, once there is a seed.

    >>> as_environment("fixed(dim=5, family=Poisson())")(0).dim
    5
    """
    reader = Reader(ENVIRONMENTS, text, seed=0)
    world = reader.made()
    try:
        rows, means = next(world.rounds(1, np.random.default_rng(0)))
    except WRONG as error:
        reader.refuse(f"it offers no rows ({error})")
    if not (rows.size and np.isfinite(rows).all() and np.isfinite(means).all()):
        reader.refuse("it offers no rows of finite numbers")
    return WrittenEnvironment(text)
