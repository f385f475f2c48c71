"""Reads a text like Python, and never runs it.

Only names that are known can be called, with numbers, texts, lists, mappings and further such
calls. A name
alone is a call without arguments.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from belated.exceptions import BelatedError, InvalidInput

T = TypeVar("T")

#: Entries of a list that a label shows.
SHOWN = 6
#: What a constructor may raise that was given the wrong kind of thing.
WRONG = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, MemoryError)


@dataclass(frozen=True)
class Kind(Generic[T]):
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


def exported(module: Any, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """Those public names of a module that are wanted."""
    public = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in public.items() if wanted(value)}


def by_name(*made: Callable[..., Any]) -> dict[str, Any]:
    """Each under its own name."""
    return {make.__name__: make for make in made}


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


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a text.

    >>> shortened("one two three", most=8)
    'one two…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # whatever is odd is refused anyway
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(text.strip(), mode="eval").body


class Reader(Generic[T]):
    """Reads one text.

    Args:
        kind: what it can stand for.
        text: as it was written.
        given: arguments that are not written, for whatever takes them.

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
        """What the text stands for."""
        try:
            tree = _parsed(self._text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.refuse("it is not written like Python")
        if not isinstance(tree, ast.Call | ast.Name):
            self.refuse("a name with its arguments was expected")
        try:
            made: T = self._called(tree, self._kind.names)
            return made
        except RecursionError:
            self.refuse("it is nested too deeply")

    def refuse(self, why: str) -> NoReturn:
        """Raise an error that says what is wrong, and what is accepted."""
        kind, text = self._kind, shortened(self._text)
        accepted = f"known: {kind.known}; example: {kind.example}"
        message = f"{text!r} is not a valid {kind.noun}: {why} ({accepted})"
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
            case ast.Dict(keys=keys, values=values):
                return self._mapping(keys, values)
            case ast.Name(id=name) if not callable(self._kind.parts.get(name, callable)):
                return self._kind.parts[name]
            case ast.Call() | ast.Name():
                return self._called(node, {**self._kind.names, **self._kind.parts})
        self.refuse(
            f"{shortened(ast.unparse(node))} is no number, text, list, mapping or known name"
        )

    def _mapping(self, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                self.refuse("the keys of a mapping are texts")
            if key.value in found:
                self.refuse(f"{key.value!r} is written twice")
            found[key.value] = self._value(value)
        return found

    def _called(self, node: ast.Call | ast.Name, names: Mapping[str, Any]) -> Any:
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Name):
            self.refuse(f"{shortened(ast.unparse(function))} is no known name")
        name = function.id
        if not callable(make := names.get(name)):
            close = difflib.get_close_matches(name, names, n=1)
            self.refuse(f"there is no {name}" + (f", but {close[0]}" if close else ""))
        signature = inspect.signature(make)
        parameters = signature.parameters
        given = {name: value for name, value in self._given.items() if name in parameters}
        written, named = self._arguments(node, name, positional=not given)
        taken = [one for one in parameters if one not in self._kind.given]
        takes = f"it takes {', '.join(taken) or 'no argument'}"
        if unknown := [one for one in named if one not in taken]:
            self.refuse(f"{name} has no argument {unknown[0]}; {takes}")
        try:
            bound = signature.bind(*written, **named, **given)
        except TypeError as error:
            self.refuse(f"{name}: {error}; {takes}")
        try:
            return make(*bound.args, **bound.kwargs)
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
