"""Options that several commands share, and how their values are written."""

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
    """Let argparse say what ``parse`` finds wrong."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except InvalidInput as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


#: A time span: whole numbers with their units, such as 1h30m.
duration = as_argument(parse_duration)
#: A time in ISO 8601 with a zone, in microseconds since 1970.
time = as_argument(partial(as_microseconds, name="the time"))


def count(text: str) -> int:
    """A whole number of at least 1.

    >>> count("10_000")
    10000
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 was expected")
    return number


#: Placeholders in the help, by type.
PLACEHOLDERS: dict[Any, str] = {count: "N", duration: "TIME", time: "TIME"}


def add_option(
    parser: Any, name: str, about: str, type: Any = None, default: Any = None, **more: Any
) -> None:
    """Add an option; its placeholder follows from its type, and its help ends with its default."""
    if default is not None:
        about, more["default"] = f"{about}; default: {default}", default
    if type is not None:
        more = {"type": type, "metavar": PLACEHOLDERS.get(type), **more}
    parser.add_argument(name, help=about, **more)


def add_json(parser: argparse.ArgumentParser) -> None:
    """For programs."""
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
    """What is written as in Python; the help lists the known names.

    It gives the group of the help, for the option that can be written ``instead``.
    """
    known = wrapped(f"  {about}, as in {kind.example}; known: {kind.known}", indent="  ")
    group = parser.add_argument_group(kind.noun, known.lstrip().replace("\n  ", "\n"))
    group.add_argument(
        f"--{kind.noun}",
        required=not (default or instead),
        metavar=kind.noun.upper(),
        help=f"default: {default}" if default else f"this or {instead}" if instead else "needed",
        **({"nargs": "+", "action": "extend"} if several else {"default": default}),
    )
    return group


def add_module(parser: Any) -> None:
    """Where policies of the user's own are."""
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="import a Python module that registers policies of your own; its code runs",
    )


def add_simulation(
    parser: argparse.ArgumentParser, delay: str, policy: str, default: str, *, several: bool
) -> None:
    """What is simulated, and how much; ``delay`` and ``policy`` say what these are for."""
    add_expression(parser, DELAYS, delay, several=several)
    add_module(add_expression(parser, POLICIES, policy, default=default, several=several))
    problems = "the problems, drawn anew for each seed"
    add_expression(parser, ENVIRONMENTS, problems, default="fixed", several=several)
    about = "what a missing reward means, where a round is a second: \"ConversionsOnly('500s')\""
    add_option(parser, "--rewards", about)
    add_option(parser, "--rounds", "of a run", count, 2_000)
    add_option(parser, "--seeds", "how many problems, each with luck of its own", count, 10)


def add_semantics(parser: argparse.ArgumentParser) -> None:
    """What silence means, if it is not what the journal says."""
    group = parser.add_argument_group(
        "what the bandit was told",
        "if none is given, as the journal says it; durations like 7d, 12h, 30m, 45s",
    )
    add_option(group, "--window", "of its rewards", duration)
    about = "value of a missing reward when the window ends (DefaultAfter); without it: Explicit"
    add_option(group, "--default", about, float, metavar="VALUE")
    add_option(group, "--retention", "of its decisions", duration)
    about = "what the parts of a reward add up to; without it: latest"
    add_option(group, "--reduce", about, choices=("latest", "sum", "max"))
    group.add_argument("--bounds", type=float, nargs=2, metavar=("LOW", "HIGH"), help="of a reward")


def semantics(
    options: argparse.Namespace, configured: Configured | None
) -> tuple[Rewards, int | None]:
    """What silence means, and the retention in microseconds.

    By these options; by the journal, if none of them is given.

    Args:
        options: of the command.
        configured: what the journal says, if it says anything.
    """
    given = options.window, options.default, options.retention, options.reduce, options.bounds
    if configured is not None and all(one is None for one in given):
        return semantics_of(configured.settings)
    reduce: Reduce = options.reduce or "latest"
    bounds = None if options.bounds is None else tuple(options.bounds)
    rewards: Rewards
    if options.default is None:
        rewards = Explicit(options.window, reduce=reduce, bounds=bounds)
    elif options.window is None:
        raise InvalidInput("--default needs --window: how long to wait for a reward", None)
    else:
        rewards = DefaultAfter(options.window, value=options.default, reduce=reduce, bounds=bounds)
    return rewards, retention_us(options.retention, rewards)


# --- an operator's act ---------------------------------------------------------------------------


def add_reason(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Why it is done."""
    parser.add_argument(
        "--reason", required=required, default="", help="why, for whoever asks later"
    )


def actor() -> str:
    """Who it is, as far as the system knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a process of a user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
