"""What can be written as text, in commands and files: policies, rewards, features, simulations."""

from __future__ import annotations

import datetime
import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from belated import delays, policies
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.delays import DelayProcess
from belated.exceptions import InvalidInput
from belated.expressions.reader import WRONG, Kind, Reader, by_name, exported
from belated.features import Category, Features, Flag, Hashed, Number, PerArm, Shared
from belated.model import estimators, families
from belated.model.families import Family
from belated.policies import Policy
from belated.simulation.environments import Environment, arms, ball, digits, fixed, fresh, users

M = TypeVar("M", bound=Callable[..., Policy])


def _makes_policies(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, Policy) and value != Policy
    return inspect.isfunction(value)  # such as those of the paper


#: What makes each policy, by its name.
POLICY_NAMES: dict[str, Callable[..., Policy]] = exported(policies, _makes_policies)
_OURS = frozenset(POLICY_NAMES)


def register(make: M) -> M:
    """Let a policy be written by its name, in commands and in the file of a service.

    Use it as a decorator, on a subclass of :class:`~belated.policies.Policy` or on a function that
    makes a policy. Its first two arguments are ``dim`` and ``family``.

    Raises:
        InvalidInput: it makes no policies, or another policy has its name.

    >>> from belated import Bernoulli, DelayedUCB
    >>> @register
    ... def Bold(dim, family):
    ...     return DelayedUCB(dim, family, alpha=2.0)
    >>> from belated.expressions import as_whole_policy
    >>> as_whole_policy("Bold(dim=2, family=Bernoulli())").alpha
    2.0
    >>> del POLICY_NAMES["Bold"]
    """
    if not _makes_policies(make) or not make.__name__.isidentifier():
        message = f"{make!r} makes no policies: a subclass of Policy, or a function, was expected"
        raise InvalidInput(message, make)
    name = make.__name__
    known = POLICY_NAMES.get(name, make)
    if _place(known) != _place(make):
        message = f"{_place(make)} cannot be registered: {_place(known)} has its name"
        raise InvalidInput(f"{message}; rename one of them", make)
    POLICY_NAMES[name] = make
    return make


def registered(text: str = "") -> dict[str, Callable[..., Policy]]:
    """What was registered, and may be named in a text."""
    return {
        name: make
        for name, make in POLICY_NAMES.items()
        if name not in _OURS and (not text or name in text)
    }


def load_modules(names: Iterable[str]) -> None:
    """Import modules that :func:`register` policies. Their code runs: name none you do not trust.

    Raises:
        InvalidInput: a module cannot be imported, or registers nothing.

    >>> load_modules(["shop.policies"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: the module 'shop.policies' cannot be imported (...
    """
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as error:  # whatever its code may raise
            message = f"the module {name!r} cannot be imported ({type(error).__name__}: {error})"
            raise InvalidInput(f"{message}: install it where belated runs", name) from error
        within = f"{name}."
        if not any(
            f"{make.__module__}.".startswith(within) or getattr(module, label, None) is make
            for label, make in registered().items()
        ):
            message = f"the module {name!r} registers no policy"
            raise InvalidInput(f"{message}: put @belated.expressions.register above one", name)


def _place(make: Callable[..., Policy]) -> str:
    return f"{make.__module__}.{make.__qualname__}"


_FAMILIES = (families.Bernoulli, families.Gaussian, families.Poisson)
_ESTIMATORS = (estimators.Laplace, estimators.Online, estimators.Ridge, estimators.Thinned)


def timedelta(
    *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> datetime.timedelta:
    """That of :mod:`datetime`, with its arguments written by name."""
    return datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


WHOLE_POLICIES = Kind[Policy](
    noun="policy",
    example="DelayedUCB(dim=20, family=Bernoulli())",
    names=POLICY_NAMES,
    parts=by_name(*_FAMILIES, *_ESTIMATORS),
    given={"prior": "it cannot be written as text"},
)
FAMILIES = Kind[Family](noun="family of rewards", example="Bernoulli()", names=by_name(*_FAMILIES))
REWARDS = Kind[Rewards](
    noun="value of rewards",
    example="ConversionsOnly('7d')",
    names=by_name(ConversionsOnly, DefaultAfter, Explicit),
    parts={"timedelta": timedelta},
)
FEATURES = Kind[Features](
    noun="description of features",
    example="PerArm(['blue', 'red'], context={'age': Number(18, 90)})",
    names=by_name(PerArm, Shared, Hashed),
    parts=by_name(Number, Category, Flag),
)


def as_whole_policy(text: str) -> Policy:
    """A policy that says itself how wide its rows are, and of which family its rewards.

    >>> as_whole_policy("DelayedUCB(dim=20, family=Bernoulli())").dim
    20
    """
    return Reader(WHOLE_POLICIES, text).made()


def family_in(text: str) -> Family:
    """The family of rewards in the ``repr`` of a policy, whatever else it says.

    >>> family_in("DelayedUCB(dim=20, family=Bernoulli(), prior=None)")
    Bernoulli()

    Raises:
        InvalidInput: it names no family of this library.
    """
    found = re.search(r"\bfamily=(\w+\([^()]*\))", text)
    return Reader(FAMILIES, text if found is None else found[1]).made()


def as_semantics(text: str) -> Rewards:
    """Return what a missing reward means.

    >>> as_semantics("ConversionsOnly('12h')").window
    datetime.timedelta(seconds=43200)
    """
    return Reader(REWARDS, text).made()


def as_features(text: str) -> Features:
    """From records to rows; ``repr`` of the features is such a text.

    >>> as_features("PerArm(['blue', 'red'], context={'age': Number(18, 90)})").dim
    4
    """
    return Reader(FEATURES, text).made()


def _is_delay(value: Any) -> bool:
    """The delays are data; a rate that is a function of the row cannot be written."""
    return is_dataclass(value) and hasattr(value, "sample") and value != delays.ContextDependent


DELAYS = Kind[DelayProcess](
    noun="delay",
    example="Geometric(mean=100)",
    names=exported(delays, _is_delay),
    parts={"NEVER": delays.NEVER},
)
POLICIES = Kind[Policy](
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
ENVIRONMENTS = Kind[Environment](
    noun="environment",
    example="fixed(dim=5, n_arms=8)",
    names=by_name(fixed, users, fresh, ball, arms, digits),
    parts=by_name(*_FAMILIES),
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
        return Reader(POLICIES, self.text, dim=world.dim, family=world.family).made()


def _environment(text: str, seed: int) -> Environment:
    return Reader(ENVIRONMENTS, text, seed=seed).made()


def as_delay(text: str) -> DelayProcess:
    """A delay.

    >>> as_delay("Mixture(never=0.3, base=Geometric(mean=100))")
    Mixture(never=0.3, base=Geometric(mean=100.0))
    """
    return Reader(DELAYS, text).made()


def as_policy(text: str) -> WrittenPolicy:
    """A policy, once there is an environment to say how wide its rows are.

    >>> from belated.simulation.environments import fixed
    >>> as_policy("BlindUCB(alpha=0.5)")(fixed(seed=0)).dim
    10
    """
    Reader(POLICIES, text, dim=2, family=families.Bernoulli()).made()  # refused now, not later
    return WrittenPolicy(text, tuple(registered(text).values()))


def as_environment(text: str) -> Callable[[int], Environment]:
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
    return partial(_environment, text)
