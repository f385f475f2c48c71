"""``belated mode``: show or change how a bandit decides: learn, freeze, baseline or off.

The change is recorded in the journal and takes effect in all deciders within a second.
"""

from __future__ import annotations

import argparse
import time

from belated.cli.address import add_service, controlled
from belated.cli.options import actor, add_reason
from belated.cli.text import moment
from belated.core.events import ModeChanged, ModelChosen

EXAMPLE = 'belated mode offers freeze --reason "prices are wrong"'

_MEANING = {
    "learn": "decides with the newest model",
    "freeze": "decides with its current model, which no longer changes",
    "baseline": "decides without a model",
    "off": "makes no decisions, but accepts rewards",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("bandit", metavar="BANDIT", help="name of the bandit")
    meaning = "; ".join(f"{mode}: {effect}" for mode, effect in _MEANING.items())
    parser.add_argument(
        "mode",
        metavar="MODE",
        nargs="?",
        choices=tuple(_MEANING),
        help=f"{meaning}; if omitted, show the current mode",
    )
    add_reason(parser, required=False)
    add_service(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with controlled(options) as (_, journal, _):
        before = journal.mode()
        prior = "learn" if before is None else before.mode
        if options.mode is None:
            since = "" if before is None else f" (since {moment(before.at_us)}{by_whom(before)})"
            print(
                f"{options.bandit}: {prior}: {_MEANING.get(prior, 'set by a newer release')}{since}"
            )
            return
        change = ModeChanged(time.time_ns() // 1000, options.mode, options.reason, actor())
        journal.append([change])
    print(f"{options.bandit}: {options.mode}: {_MEANING[options.mode]} (before: {prior})")


def by_whom(event: ModeChanged | ModelChosen) -> str:
    """Describe who made a change and, if known, why."""
    author = f"; by {event.actor}" if event.actor else ""
    return f"{author}; reason: {event.reason}" if event.reason else author
