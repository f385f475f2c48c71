"""``belated switch``: learn on, freeze the model, do without it, or decide nothing.

It is written into the journal, and heeded by all deciders within a second. It needs the extra
``service``.
"""

from __future__ import annotations

import argparse
import time

from belated.cli.service import check_extra, read
from belated.events import Switched
from belated.exceptions import InvalidInput
from belated.journals import PostgresJournal

EXAMPLE = 'belated switch offers freeze --reason "prices are wrong" belated.toml'

_MEANING = {
    "learn": "decides as it learns",
    "freeze": "decides with the model of now, which does not change any more",
    "baseline": "decides without a model",
    "off": "decides nothing; rewards are taken",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("bandit", metavar="BANDIT", help="its name")
    meaning = "; ".join(f"{mode}: {what}" for mode, what in _MEANING.items())
    parser.add_argument("mode", metavar="MODE", choices=tuple(_MEANING), help=meaning)
    parser.add_argument("file", metavar="CONFIG", help="a file of TOML, such as belated.toml")
    parser.add_argument("--reason", default="", help="why, for whoever asks later")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_extra("belated switch")
    config = read(options.file)
    names = [one.name for one in config.bandits]
    if options.bandit not in names:
        message = f"there is no bandit {options.bandit!r} in {options.file}, but {names}"
        raise InvalidInput(message, options.bandit)
    journal = PostgresJournal(config.database.dsn, bandit=options.bandit)
    try:
        before = journal.mode()
        journal.append([Switched(time.time_ns() // 1000, options.mode, options.reason)])
    finally:
        journal.close()
    was = "learn" if before is None else before.mode
    print(f"{options.bandit} {_MEANING[options.mode]} (before: {was})")
    return 0
