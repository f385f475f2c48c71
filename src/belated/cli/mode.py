"""``belated mode``: show or change how a bandit decides: learn, freeze, baseline or off.

A change is written into the journal, and heeded by all deciders within a second.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from belated.cli.address import add_file, read
from belated.cli.options import actor, add_reason
from belated.cli.text import moment
from belated.core.events import ModeChanged
from belated.exceptions import InvalidInput

if TYPE_CHECKING:
    from belated.service.operating.config import Config
    from belated.service.serving.definition import Definition

EXAMPLE = 'belated mode offers freeze belated.toml --reason "prices are wrong"'

_MEANING = {
    "learn": "decides as it learns",
    "freeze": "decides with the model of now, which does not change any more",
    "baseline": "decides without the model",
    "off": "decides nothing; rewards are accepted",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("bandit", metavar="BANDIT", help="name of the bandit")
    meaning = "; ".join(f"{mode}: {what}" for mode, what in _MEANING.items())
    parser.add_argument(
        "mode",
        metavar="MODE",
        nargs="?",
        choices=tuple(_MEANING),
        help=f"{meaning}; without it, show the current one",
    )
    add_file(parser)
    add_reason(parser, required=False)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    config = read(options.file)
    partitions = bandit_in(config, options.bandit, options.file).partitions
    with config.store.journal(options.bandit, partitions=partitions) as journal:
        before = journal.mode()
        was = "learn" if before is None else before.mode
        if options.mode is None:
            since = "" if before is None else f" (since {moment(before.at_us)}{_by_whom(before)})"
            print(f"{options.bandit}: {was}: {_MEANING.get(was, 'as a newer release says')}{since}")
            return
        change = ModeChanged(time.time_ns() // 1000, options.mode, options.reason, actor())
        journal.append([change])
    print(f"{options.bandit}: {options.mode}: {_MEANING[options.mode]} (before: {was})")


def bandit_in(config: Config, name: str, file: str) -> Definition:
    """Return the bandit of this name in a configuration."""
    known = {one.name: one for one in config.bandits}
    if name not in known:
        message = f"there is no bandit {name!r} in {file}, but {', '.join(map(repr, known))}"
        raise InvalidInput(message, name)
    return known[name]


def _by_whom(event: ModeChanged) -> str:
    by = f"; by {event.actor}" if event.actor else ""
    return f"{by}; reason: {event.reason}" if event.reason else by
