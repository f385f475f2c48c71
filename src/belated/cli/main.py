"""``belated``: finds the command and runs it.

The exit code is 0 where all is well, 1 where a command looked and found something wrong, and 2
where it could not do what was asked; then one line on stderr says why.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from belated.cli import (
    bounds,
    compare,
    doctor,
    journal_entry,
    journal_export,
    journal_import,
    journal_inspect,
    journal_verify,
    keys_create,
    keys_list,
    keys_revoke,
    learn,
    schema,
    serve,
    simulate,
    switch,
)
from belated.exceptions import BelatedError

#: In the order of the help.
JOURNAL = (journal_inspect, journal_entry, journal_verify, journal_export, journal_import)
KEYS = (keys_create, keys_list, keys_revoke)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    Args:
        arguments: what stands behind ``belated``; None: as the process was started.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as in `| head`
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
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see `{self.prog} --help`)")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="belated", description="Contextual bandits for rewards that come late.")
    subjects = parser.add_subparsers(metavar="SUBJECT", required=True)
    for command in (simulate, compare, bounds):
        _add(subjects, command)
    journal = subjects.add_parser(
        "journal",
        help="look into a journal, verify it, move it",
        description="Look into a journal, verify it, move it.",
        epilog="example:\n  belated journal inspect offers.db",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = journal.add_subparsers(metavar="COMMAND", required=True)
    for command in JOURNAL:
        _add(commands, command)
    for command in (serve, learn, switch, doctor, schema):
        _add(subjects, command)
    keys = subjects.add_parser(
        "keys",
        help="make, list and revoke the keys of a service",
        description="Make, list and revoke the keys of a service.",
        epilog="example:\n  belated keys list",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = keys.add_subparsers(metavar="COMMAND", required=True)
    for command in KEYS:
        _add(commands, command)
    return parser


def _add(to: Any, command: Any) -> None:
    name = command.__name__.rpartition(".")[2].rpartition("_")[2]
    what = (command.__doc__ or "").partition("\n")[0].partition(": ")[2]
    one = to.add_parser(
        name,
        help=what[:1].lower() + what[1:].rstrip("."),
        description=what[:1].upper() + what[1:],
        epilog=f"example:\n  {command.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(one)
    one.set_defaults(run=command.run)


def _complain(message: str) -> None:
    print(f"belated: {' '.join(message.split())}", file=sys.stderr)
