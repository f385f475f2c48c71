"""Command-line options shared by several commands, and parsers for option values."""

from __future__ import annotations

import argparse
import getpass
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from belated.cli.text import wrapped
from belated.core.events import Configured
from belated.core.rewards import DefaultAfter, Explicit, Reduce, Rewards, retention_us
from belated.core.times import as_microseconds, parse_duration
from belated.exceptions import InvalidInput
from belated.expressions import DELAYS, ENVIRONMENTS, POLICIES, Kind
from belated.journals.identity import semantics_of

T = TypeVar("T")


def as_argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Wrap a parser so that argparse reports the errors it raises."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except InvalidInput as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


#: Parses a duration: whole numbers with units, such as 1h30m.
duration = as_argument(parse_duration)
#: Parses an ISO 8601 time with a time zone, and returns microseconds since 1970.
time = as_argument(partial(as_microseconds, name="the time"))


def count(text: str) -> int:
    """Return ``text`` as a positive integer; raise unless it is one.

    >>> count("10_000")
    10000
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


#: Placeholders for option values in the help, by type.
PLACEHOLDERS: dict[Any, str] = {count: "N", duration: "TIME", time: "TIME"}


def add_option(
    parser: Any, name: str, about: str, type: Any = None, default: Any = None, **more: Any
) -> None:
    """Add an option with a placeholder for its type, and with its default in the help text."""
    if default is not None:
        about, more["default"] = f"{about}; default: {default}", default
    if type is not None:
        more = {"type": type, "metavar": PLACEHOLDERS.get(type), **more}
    parser.add_argument(name, help=about, **more)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for JSON output."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_expression(
    parser: argparse.ArgumentParser,
    kind: Kind[Any],
    about: str,
    *,
    default: str = "",
    several: bool,
    instead: str = "",
) -> Any:
    """Add an option for a Python-like expression. The help lists the known names.

    Returns:
        The option group, to which the alternative option ``instead`` can be added.
    """
    description = wrapped(f"  {about}, such as {kind.example}; known: {kind.known}", indent="  ")
    group = parser.add_argument_group(kind.noun, description.lstrip().replace("\n  ", "\n"))
    group.add_argument(
        f"--{kind.noun}",
        required=not (default or instead),
        metavar=kind.noun.upper(),
        help=f"default: {default}" if default else f"or {instead}" if instead else "required",
        **({"nargs": "+", "action": "extend"} if several else {"default": default}),
    )
    return group


def add_module(parser: Any) -> None:
    """Add the option for modules that define custom policies."""
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="import a Python module that registers custom policies; its code is executed",
    )


def add_simulation(
    parser: argparse.ArgumentParser, delay: str, policy: str, default: str, *, several: bool
) -> None:
    """Add simulation options; ``delay`` and ``policy`` are the help texts of these two options."""
    add_expression(parser, DELAYS, delay, several=several)
    add_module(add_expression(parser, POLICIES, policy, default=default, several=several))
    problems = "problems, drawn for each seed"
    add_expression(parser, ENVIRONMENTS, problems, default="fixed", several=several)
    about = "meaning of a missing reward; a round counts as a second: \"ConversionsOnly('500s')\""
    add_option(parser, "--rewards", about)
    add_option(parser, "--rounds", "rounds per run", count, 2_000)
    add_option(parser, "--seeds", "number of problems", count, 10)


def add_semantics(parser: argparse.ArgumentParser) -> None:
    """Add the options that override the reward settings in the journal."""
    group = parser.add_argument_group(
        "reward settings",
        "default: those in the journal; durations such as 7d, 12h, 30m, 45s",
    )
    add_option(group, "--window", "reward window", duration)
    about = "value of a missing reward when the window ends (DefaultAfter); if omitted: Explicit"
    add_option(group, "--default", about, float, metavar="VALUE")
    add_option(group, "--retention", "how long decisions accept rewards", duration)
    about = "how the parts of a reward are combined; if omitted: latest"
    add_option(group, "--reduce", about, choices=("latest", "sum", "max"))
    about = "range of rewards"
    group.add_argument("--bounds", type=float, nargs=2, metavar=("LOW", "HIGH"), help=about)


def semantics(
    options: argparse.Namespace, configured: Configured | None
) -> tuple[Rewards, int | None]:
    """Return the meaning of a missing reward, and the retention in microseconds.

    If none of these options is given, the settings in the journal apply.

    Args:
        options: the options of the command.
        configured: the settings in the journal; None if there are none.
    """
    values = options.window, options.default, options.retention, options.reduce, options.bounds
    if configured is not None and all(option is None for option in values):
        return semantics_of(configured.settings)
    reduce: Reduce = options.reduce or "latest"
    bounds = None if options.bounds is None else tuple(options.bounds)
    rewards: Rewards
    if options.default is None:
        rewards = Explicit(options.window, reduce=reduce, bounds=bounds)
    elif options.window is None:
        raise InvalidInput("--default requires --window, the time to wait for a reward", None)
    else:
        rewards = DefaultAfter(options.window, value=options.default, reduce=reduce, bounds=bounds)
    return rewards, retention_us(options.retention, rewards)


# --- operator actions ----------------------------------------------------------------------------


def add_reason(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the option for the reason for an operator action."""
    parser.add_argument(
        "--reason", required=required, default="", help="the reason, recorded in the journal"
    )


def actor() -> str:
    """Return the user and host name to record in the journal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
