"""Delays, policies and problems as they are written on a command line: like in Python.

``Mixture(never=0.3, base=Geometric(mean=100))`` is read as Python would read it, and never run:
only names that belated knows can be called, with numbers, texts, lists and further such calls. A
name alone is a call without arguments.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any, NoReturn

import numpy as np

from belated import delays, environments, families, policies
from belated.cli.text import shortened
from belated.delays import DelayProcess
from belated.environments import Environment
from belated.exceptions import BelatedError, InvalidInput
from belated.policies import Policy

#: Entries of a list that a label shows.
SHOWN = 6
#: What a constructor may raise that was given the wrong kind of thing.
WRONG = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, MemoryError)


@dataclass(frozen=True)
class Kind:
    """What a text can stand for.

    Args:
        noun: what it is called.
        example: of a text.
        names: what can be called.
        parts: what can stand inside besides.
        given: arguments that are not written, and where they come from.
    """

    noun: str
    example: str
    names: Mapping[str, Callable[..., Any]]
    parts: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> str:
        """All names."""
        return ", ".join(sorted(self.names, key=str.lower))


def _exported(module: Any, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    exported = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in exported.items() if wanted(value)}


def _is_delay(value: Any) -> bool:
    """The delays are data; a rate that is a function of the row cannot be written."""
    return is_dataclass(value) and hasattr(value, "sample") and value != delays.ContextDependent


def _is_policy(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, Policy) and value != Policy
    return inspect.isfunction(value)  # those of the paper


DELAYS = Kind(
    noun="delay",
    example="Geometric(mean=100)",
    names=_exported(delays, _is_delay),
    parts={"NEVER": delays.NEVER},
)
POLICIES = Kind(
    noun="policy",
    example="DelayedUCB(alpha=0.5)",
    names=_exported(policies, _is_policy),
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
    names={
        make.__name__: make
        for make in (
            environments.fixed,
            environments.users,
            environments.fresh,
            environments.ball,
            environments.arms,
            environments.digits,
        )
    },
    parts={
        make.__name__: make for make in (families.Bernoulli, families.Gaussian, families.Poisson)
    },
    given={"seed": "it comes from --seeds"},
)


@dataclass(frozen=True)
class WrittenPolicy:
    """Makes the policy of a text for an environment."""

    text: str

    def __call__(self, world: Environment) -> Policy:
        """The policy, for rows and rewards of this environment."""
        policy: Policy = _Reader(POLICIES, self.text, dim=world.dim, family=world.family).made()
        return policy


@dataclass(frozen=True)
class WrittenEnvironment:
    """Makes the problem of a text from a seed."""

    text: str

    def __call__(self, seed: int) -> Environment:
        """The problem of this seed."""
        world: Environment = _Reader(ENVIRONMENTS, self.text, seed=seed).made()
        return world


def as_delay(text: str) -> DelayProcess:
    """A delay.

    >>> as_delay("Mixture(never=0.3, base=Geometric(mean=100))")
    Mixture(never=0.3, base=Geometric(mean=100.0))
    """
    delay: DelayProcess = _Reader(DELAYS, text).made()
    return delay


def as_policy(text: str) -> WrittenPolicy:
    """A policy, once there is an environment to say how wide its rows are.

    >>> from belated.environments import fixed
    >>> as_policy("BlindUCB(alpha=0.5)")(fixed(seed=0)).dim
    10
    """
    _Reader(POLICIES, text, dim=2, family=families.Bernoulli()).made()  # refused now, not later
    return WrittenPolicy(text)


def as_environment(text: str) -> WrittenEnvironment:
    """A problem, once there is a seed.

    >>> as_environment("fixed(dim=5, family=Poisson())")(0).dim
    5
    """
    reader = _Reader(ENVIRONMENTS, text, seed=0)
    world = reader.made()
    try:
        rows, means = next(world.rounds(1, np.random.default_rng(0)))
    except WRONG as error:
        reader.refuse(f"it offers no rows ({error})")
    if not (rows.size and np.isfinite(rows).all() and np.isfinite(means).all()):
        reader.refuse("it offers no rows of finite numbers")
    return WrittenEnvironment(text)


def label(text: str, shown: int = SHOWN) -> str:
    """A text as it is shown: in one style, and long lists cut short.

    >>> label("Lomax( shape=1.2,scale=100)"), label("DelayedUCB()")
    ('Lomax(shape=1.2, scale=100)', 'DelayedUCB')
    >>> label("Empirical([0, 0, 1, 1, 2, 3, 5, 8])")
    'Empirical([0, 0, 1, 1, 2, 3, … 8 in all])'
    """
    tree = _parsed(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > shown:
            rest: ast.expr = ast.Name(f"… {len(node.elts)} in all")
            node.elts = [*node.elts[:shown], rest]
    return ast.unparse(tree).removesuffix("()")


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # whatever is odd is refused anyway
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(text.strip(), mode="eval").body


class _Reader:
    """Reads one text."""

    def __init__(self, kind: Kind, text: str, **given: Any) -> None:
        self._kind = kind
        self._text = text
        self._given = given

    def made(self) -> Any:
        """What the text stands for."""
        try:
            tree = _parsed(self._text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.refuse("it is not written like Python")
        if not isinstance(tree, ast.Call | ast.Name):
            self.refuse("a name with its arguments was expected")
        try:
            return self._called(tree, self._kind.names)
        except RecursionError:
            self.refuse("it is nested too deeply")

    def refuse(self, why: str) -> NoReturn:
        """Say what is wrong, and what would be right."""
        kind, text = self._kind, shortened(self._text)
        message = f"{text!r} is no {kind.noun}: {why} (known: {kind.known}; write {kind.example})"
        raise InvalidInput(message, self._text) from None

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | str() | None as value):
                return value
            case ast.Constant(value=float() as value) if math.isfinite(value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.List() | ast.Tuple():
                return [self._value(one) for one in node.elts]
            case ast.Name(id=name) if not callable(self._kind.parts.get(name, callable)):
                return self._kind.parts[name]
            case ast.Call() | ast.Name():
                return self._called(node, {**self._kind.names, **self._kind.parts})
        self.refuse(f"{shortened(ast.unparse(node))} is no number, text, list or known name")

    def _called(self, node: ast.Call | ast.Name, names: Mapping[str, Any]) -> Any:
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Name):
            self.refuse(f"{shortened(ast.unparse(function))} is no known name")
        name = function.id
        if not callable(make := names.get(name)):
            close = difflib.get_close_matches(name, names, n=1)
            self.refuse(f"there is no {name}" + (f", but {close[0]}" if close else ""))
        parameters = inspect.signature(make).parameters
        given = {name: value for name, value in self._given.items() if name in parameters}
        written, named = self._arguments(node, name, positional=not given)
        taken = [one for one in parameters if one not in self._kind.given]
        takes = f"it takes {', '.join(taken) or 'no argument'}"
        if unknown := [one for one in named if one not in taken]:
            self.refuse(f"{name} has no argument {unknown[0]}; {takes}")
        try:
            inspect.signature(make).bind(*written, **named, **given)
        except TypeError as error:
            self.refuse(f"{name}: {error}; {takes}")
        try:
            return make(*written, **named, **given)
        except InvalidInput as error:
            self.refuse(str(error))
        except BelatedError:  # an extra is missing: nothing is wrong with the text
            raise
        except WRONG as error:
            self.refuse(f"{name}: {error}")

    def _arguments(
        self, node: ast.Call | ast.Name, name: str, positional: bool
    ) -> tuple[list[Any], dict[str, Any]]:
        if isinstance(node, ast.Name):
            return [], {}
        if node.args and not positional:
            self.refuse(f"{name}: arguments are written with their names")
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(f"{name}: ** is not known here")
            if keyword.arg in self._kind.given:
                why = self._kind.given[keyword.arg]
                self.refuse(f"{name}: {keyword.arg} is not an argument here: {why}")
            if keyword.arg in named:
                self.refuse(f"{name}: {keyword.arg} is written twice")
            named[keyword.arg] = self._value(keyword.value)
        return [self._value(one) for one in node.args], named
