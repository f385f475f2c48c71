"""The names of policies in commands and files: those of belated, and those you register."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from belated import policies
from belated.exceptions import InvalidInput
from belated.expressions.reader import exported
from belated.policies import Policy

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
