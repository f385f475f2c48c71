"""``belated``: parse the command line and run the command.

The exit code is 0 on success, 1 if a check found a problem, and 2 if the command failed. In the
latter case, one line on stderr gives the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from belated import __version__
from belated.cli import (
    action,
    bounds,
    compare,
    demo,
    doctor,
    evaluate,
    init,
    learn,
    mode,
    model,
    plan,
    report,
    schema,
    serve,
    simulate,
    warm,
)
from belated.cli.features import diff
from belated.cli.journal import (
    archive,
    erase,
    export,
    import_,
    inspect,
    retract,
    show,
    trim,
    verify,
)
from belated.cli.keys import create, list as list_keys, revoke
from belated.exceptions import BelatedError

#: Subcommands, in the order in which the help lists them.
JOURNAL = (inspect, show, verify, export, import_, retract, erase, archive, trim)
KEYS = (create, list_keys, revoke)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    Args:
        arguments: the arguments after ``belated``; None to use those of the process.
    """
    options = command_line().parse_args(arguments)
    try:
        code: int = options.run(options) or 0
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has exited, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (BelatedError, OSError) as error:
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        _complain("stopped")
        return 130
    return code


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in a single line."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see `{self.prog} --help`)")
        raise SystemExit(2)


def command_line() -> argparse.ArgumentParser:
    """Return the argument parser for all commands."""
    parser = _Parser(prog="belated", description="Contextual bandits with delayed rewards.")
    parser.add_argument("--version", action="version", version=f"belated {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (demo, simulate, compare, bounds, evaluate, report):
        _add(commands, command)
    _add_group(commands, "journal", JOURNAL, "inspect, verify, export and maintain journals")
    for command in (init, serve, learn, mode, action, model, doctor, plan, schema, warm):
        _add(commands, command)
    _add_group(commands, "features", (diff,), "preview feature changes")
    _add_group(commands, "keys", KEYS, "create, list and revoke the API keys of a service")
    return parser


def _add_group(to: Any, name: str, commands: Sequence[Any], what: str) -> None:
    group = _parser(to, name, f"{what}.", commands[0].EXAMPLE)
    to_group = group.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        _add(to_group, command)


def _add(to: Any, command: Any) -> None:
    name = command.__name__.rpartition(".")[2].rstrip("_")  # `import` is a keyword
    summary = (command.__doc__ or "").partition("\n")[0].partition(": ")[2]
    parser = _parser(to, name, summary, command.EXAMPLE)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _parser(to: Any, name: str, what: str, example: str) -> Any:
    return to.add_parser(
        name,
        help=what[:1].lower() + what[1:].rstrip("."),
        description=what[:1].upper() + what[1:],
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _complain(message: str) -> None:
    print(f"belated: {' '.join(message.split())}", file=sys.stderr)
