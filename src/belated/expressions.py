"""Parse policies, delays, features and environments written as Python expressions.

Commands and configuration files contain expressions such as
``Mixture(never=0.3, base=Geometric(mean=100))``. Expressions are parsed with :mod:`ast` and never
evaluated. Only known names can be called, with numbers, strings, lists, mappings and other such
calls as arguments. A name alone is a call without arguments.

In a simulation, policies take ``dim`` and ``family`` from the environment. For a bandit, the
expression specifies the family, and also ``dim`` if the bandit has no features. :func:`register`
adds custom policies to the known names.
"""

from __future__ import annotations

import ast
import datetime
import difflib
import importlib
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from belated import delays, policies
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.delays import DelayProcess
from belated.exceptions import BelatedError, InvalidInput
from belated.features import (
    Category,
    Datetime,
    Features,
    Flag,
    Hashed,
    Number,
    PerArm,
    RandomFeatures,
    Shared,
    Text,
    Vector,
)
from belated.model import estimators, families
from belated.model.families import Family
from belated.policies import Policy
from belated.simulation.environments import Environment, arms, ball, digits, fixed, fresh, users

__all__ = ["register"]


T = TypeVar("T")

#: Maximum number of list entries in a label.
SHOWN = 6
#: Exceptions that a constructor may raise for arguments of the wrong type or value.
WRONG = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, MemoryError)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of object that can be written as text, such as a policy or a delay.

    Args:
        noun: the name of the kind in error messages.
        example: an example expression.
        names: the functions that create such objects, by name.
        parts: additional names that are allowed in arguments.
        given: arguments that must not be specified, with the reason.
    """

    noun: str
    example: str
    names: Mapping[str, Callable[..., Any]]
    parts: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> str:
        """The known names, as text."""
        return ", ".join(sorted(self.names, key=str.lower))


def exported(module: Any, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """Return the public names of a module whose values satisfy `wanted`."""
    public = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in public.items() if wanted(value)}


def by_name(*made: Callable[..., Any]) -> dict[str, Any]:
    """Map the name of each function or class to the object itself."""
    return {make.__name__: make for make in made}


def label(text: str, shown: int = SHOWN) -> str:
    """Return an expression in a normalized form, with long lists abbreviated.

    >>> label("Lomax( shape=1.2,scale=100)"), label("DelayedUCB()")
    ('Lomax(shape=1.2, scale=100)', 'DelayedUCB')
    >>> label("Empirical([0, 0, 1, 1, 2, 3, 5, 8])")
    'Empirical([0, 0, 1, 1, 2, 3, … 8 in all])'
    """
    tree = _parsed(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > shown:
            summary: ast.expr = ast.Name(f"… {len(node.elts)} in all")
            node.elts = [*node.elts[:shown], summary]
    return ast.unparse(tree).removesuffix("()")


def shortened(text: str, most: int = 60) -> str:
    """Truncate a string to `most` characters.

    >>> shortened("one two three", most=8)
    'one two…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # such expressions are rejected later
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(text.strip(), mode="eval").body


class Reader(Generic[T]):
    """Creates the object that an expression describes.

    Args:
        kind: the kind of object.
        text: the expression.
        given: arguments to add to each call that accepts them.

    >>> from fractions import Fraction
    >>> number = Kind("fraction", "Fraction(1, 2)", {"Fraction": Fraction})
    >>> Reader(number, "Fraction(numerator=3, denominator=4)").made()
    Fraction(3, 4)
    """

    def __init__(self, kind: Kind[T], text: str, **given: Any) -> None:
        self._kind = kind
        self._text = text
        self._given = given

    def made(self) -> T:
        """Return the object that the expression describes."""
        try:
            tree = _parsed(self._text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.refuse("it is not a Python expression", names=True)
        if not isinstance(tree, ast.Call | ast.Name):
            self.refuse("expected a name with arguments", names=True)
        try:
            result: T = self._called(tree, self._kind.names)
            return result
        except RecursionError:
            self.refuse("it is nested too deeply")

    def refuse(self, why: str, names: bool = False) -> NoReturn:
        """Raise an error that says what is wrong and, with `names`, lists the known names."""
        kind, text = self._kind, shortened(self._text)
        hint = f" (known: {kind.known}; example: {kind.example})" if names else ""
        raise InvalidInput(
            f"{text!r} is not a valid {kind.noun}: {why}{hint}", self._text
        ) from None

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | str() | None as value):
                return value
            case ast.Constant(value=float() as value) if math.isfinite(value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.List() | ast.Tuple():
                return [self._value(element) for element in node.elts]
            case ast.Dict(keys=keys, values=values):
                return self._mapping(keys, values)
            case ast.Name(id=name) if not callable(self._kind.parts.get(name, callable)):
                return self._kind.parts[name]
            case ast.Call() | ast.Name():
                return self._called(node, {**self._kind.names, **self._kind.parts})
        text = shortened(ast.unparse(node))
        self.refuse(f"{text} is not a number, string, list, mapping or known name", names=True)

    def _mapping(self, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                self.refuse("the keys of a mapping must be strings")
            if key.value in mapping:
                self.refuse(f"the key {key.value!r} is repeated")
            mapping[key.value] = self._value(value)
        return mapping

    def _called(self, node: ast.Call | ast.Name, names: Mapping[str, Any]) -> Any:
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Name):
            self.refuse(f"{shortened(ast.unparse(function))} is not a known name", names=True)
        name = function.id
        if not callable(make := names.get(name)):
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self.refuse(f"unknown name {name}{hint}", names=True)
        signature = inspect.signature(make)
        parameters = signature.parameters
        keywords = {name: value for name, value in self._given.items() if name in parameters}
        arguments, named = self._arguments(node, name, positional=not keywords)
        accepted = [parameter for parameter in parameters if parameter not in self._kind.given]
        takes = f"it takes {', '.join(accepted) or 'no arguments'}"
        if unknown := [parameter for parameter in named if parameter not in accepted]:
            close = difflib.get_close_matches(unknown[0], accepted, n=1)
            hint = f". Did you mean {close[0]}?" if close else ""
            self.refuse(f"{name} has no argument {unknown[0]}; {takes}{hint}")
        try:
            bound = signature.bind(*arguments, **named, **keywords)
        except TypeError as error:
            self.refuse(f"{name}: {error}; {takes}")
        try:
            return make(*bound.args, **bound.kwargs)
        except InvalidInput as error:
            self.refuse(str(error))
        except BelatedError:  # such as a missing extra; the expression itself is valid
            raise
        except WRONG as error:
            self.refuse(f"{name}: {error}")

    def _arguments(
        self, node: ast.Call | ast.Name, name: str, positional: bool
    ) -> tuple[list[Any], dict[str, Any]]:
        if isinstance(node, ast.Name):
            return [], {}
        if node.args and not positional:
            self.refuse(f"{name}: arguments must be passed by keyword")
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(f"{name}: ** is not supported")
            if keyword.arg in self._kind.given:
                why = self._kind.given[keyword.arg]
                self.refuse(f"{name}: {keyword.arg} must not be set here: {why}")
            if keyword.arg in named:
                self.refuse(f"{name}: the argument {keyword.arg} is repeated")
            named[keyword.arg] = self._value(keyword.value)
        return [self._value(argument) for argument in node.args], named


M = TypeVar("M", bound=Callable[..., Policy])


def _makes_policies(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, Policy) and value != Policy
    return inspect.isfunction(value)  # such as paper_ducb


#: The classes and functions that create policies, by name.
POLICY_NAMES: dict[str, Callable[..., Policy]] = exported(policies, _makes_policies)
_BUILT_IN = frozenset(POLICY_NAMES)


def register(make: M) -> M:
    """Make a policy available by name in commands and service configurations.

    Use this function to decorate a subclass of :class:`~belated.policies.Policy`, or a function
    that returns a policy. The first two parameters must be ``dim`` and ``family``.

    Raises:
        InvalidInput: `make` does not create policies, or another policy has the same name.

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
        message = f"cannot register {make!r}: expected a Policy subclass or a function"
        raise InvalidInput(message, make)
    name = make.__name__
    existing = POLICY_NAMES.get(name, make)
    if _path(existing) != _path(make):
        message = f"{_path(make)} cannot be registered: {_path(existing)} has the same name"
        raise InvalidInput(f"{message}: rename one of them", make)
    POLICY_NAMES[name] = make
    return make


def registered(text: str = "") -> dict[str, Callable[..., Policy]]:
    """Return the registered policies; if `text` is given, only those that occur in it."""
    return {
        name: make
        for name, make in POLICY_NAMES.items()
        if name not in _BUILT_IN and (not text or name in text)
    }


def load_modules(names: Iterable[str]) -> None:
    """Import modules that :func:`register` policies.

    Importing a module runs its code, so name only modules that you trust.

    Raises:
        InvalidInput: a module cannot be imported, or registers nothing.

    >>> load_modules(["shop.policies"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: the module 'shop.policies' cannot be imported (...
    """
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as error:  # the module's code may raise anything
            message = f"the module {name!r} cannot be imported ({type(error).__name__}: {error})"
            raise InvalidInput(f"{message}: install it where belated runs", name) from error
        within = f"{name}."
        if not any(
            f"{make.__module__}.".startswith(within) or getattr(module, label, None) is make
            for label, make in registered().items()
        ):
            message = f"the module {name!r} registers no policy"
            raise InvalidInput(f"{message}: decorate one with @belated.expressions.register", name)


def _path(make: Callable[..., Policy]) -> str:
    return f"{make.__module__}.{make.__qualname__}"


_FAMILIES = (families.Bernoulli, families.Gaussian, families.Poisson)
_ESTIMATORS = (estimators.Laplace, estimators.Online, estimators.Ridge, estimators.Thinned)


def timedelta(
    *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> datetime.timedelta:
    """Return a :class:`datetime.timedelta`; its arguments are keyword-only."""
    return datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


WHOLE_POLICIES = Kind[Policy](
    noun="policy",
    example="DelayedUCB(family=Bernoulli(), floor=0.02)",
    names=POLICY_NAMES,
    parts=by_name(*_FAMILIES, *_ESTIMATORS),
    given={
        "prior": "it cannot be written as text",
        "features": "they come from the bandit",
    },
)
FAMILIES = Kind[Family](noun="family of rewards", example="Bernoulli()", names=by_name(*_FAMILIES))
REWARDS = Kind[Rewards](
    noun="`rewards` setting",
    example="ConversionsOnly('7d')",
    names=by_name(ConversionsOnly, DefaultAfter, Explicit),
    parts={"timedelta": timedelta},
)
FEATURES = Kind[Features](
    noun="description of features",
    example="PerArm(['blue', 'red'], context={'age': Number(18, 90)})",
    names=by_name(PerArm, Shared, Hashed),
    parts=by_name(Number, Category, Flag, Datetime, Vector, Text, RandomFeatures),
)


def as_whole_policy(text: str) -> Policy:
    """Return the policy that an expression describes, including its family.

    >>> as_whole_policy("DelayedUCB(family=Gaussian(), floor=0.02)").floor
    0.02
    """
    return Reader(WHOLE_POLICIES, text).made()


def family_in(text: str) -> Family:
    """Return the reward family in the ``repr`` of a policy.

    >>> family_in("DelayedUCB(dim=20, family=Bernoulli(), prior=None)")
    Bernoulli()

    Raises:
        InvalidInput: the text does not contain a family of this library.
    """
    match = re.search(r"\bfamily=(\w+\([^()]*\))", text)
    return Reader(FAMILIES, text if match is None else match[1]).made()


def as_semantics(text: str) -> Rewards:
    """Return the `rewards` setting that an expression describes.

    >>> as_semantics("ConversionsOnly('12h')").window
    datetime.timedelta(seconds=43200)
    """
    return Reader(REWARDS, text).made()


def as_features(text: str) -> Features:
    """Return the features that an expression describes, such as the ``repr`` of features.

    >>> as_features("PerArm(['blue', 'red'], context={'age': Number(18, 90)})").dim
    4
    """
    return Reader(FEATURES, text).made()


def _is_delay(value: Any) -> bool:
    """Return whether a value is a delay that can be written as text, without function arguments."""
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
        "features": "they come from the bandit",
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
    """A policy written as text, to be created for an environment, possibly in another process.

    Args:
        text: the expression.
        needs: the registered policies that the expression uses.
    """

    text: str
    needs: tuple[Callable[..., Policy], ...] = ()

    def __call__(self, world: Environment) -> Policy:
        """Return the policy for the rows and rewards of an environment."""
        for make in self.needs:
            register(make)
        return Reader(POLICIES, self.text, dim=world.dim, family=world.family).made()


def _environment(text: str, seed: int) -> Environment:
    return Reader(ENVIRONMENTS, text, seed=seed).made()


def as_delay(text: str) -> DelayProcess:
    """Return the delay that an expression describes.

    >>> as_delay("Mixture(never=0.3, base=Geometric(mean=100))")
    Mixture(never=0.3, base=Geometric(mean=100.0))
    """
    return Reader(DELAYS, text).made()


def as_policy(text: str) -> WrittenPolicy:
    """Return a function that creates the policy for an environment, with the environment's ``dim``.

    >>> from belated.simulation.environments import fixed
    >>> as_policy("BlindUCB(alpha=0.5)")(fixed(seed=0)).dim
    10
    """
    Reader(POLICIES, text, dim=2, family=families.Bernoulli()).made()  # raises if invalid
    return WrittenPolicy(text, tuple(registered(text).values()))


def as_environment(text: str) -> Callable[[int], Environment]:
    """Return a function that creates the environment from a seed.

    >>> as_environment("fixed(dim=5, family=Poisson())")(0).dim
    5
    """
    reader = Reader(ENVIRONMENTS, text, seed=0)
    world = reader.made()
    try:
        rows, means = next(world.rounds(1, np.random.default_rng(0)))
    except WRONG as error:
        reader.refuse(f"it returned no rows ({error})")
    if not (rows.size and np.isfinite(rows).all() and np.isfinite(means).all()):
        reader.refuse("its rows must be finite numbers")
    return partial(_environment, text)
