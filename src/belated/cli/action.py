"""``belated action``: list a bandit's actions, or pause, resume or retire an action.

The change is recorded in the journal and takes effect in all deciders within two seconds.
"""

from __future__ import annotations

import argparse
import time

from belated.cli.address import add_service, controlled
from belated.cli.options import actor, add_option, add_reason
from belated.cli.text import table
from belated.decider.actions import ActionState, action_change, states_at
from belated.decider.requests import declared
from belated.exceptions import InvalidInput

EXAMPLE = 'belated action pause offers gift --until 2027-01-07T00:00Z --reason "sold out"'

_MEANING = {
    "list": "show the state of each action",
    "pause": "stop choosing the action",
    "resume": "make it available again",
    "retire": "stop choosing it permanently",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    about = "; ".join(f"{change}: {meaning}" for change, meaning in _MEANING.items())
    parser.add_argument("change", metavar="CHANGE", choices=tuple(_MEANING), help=about)
    parser.add_argument("bandit", metavar="BANDIT", help="name of the bandit")
    parser.add_argument("action", metavar="ACTION", nargs="?", help="name of the action")
    add_option(parser, "--start", "when the change takes effect; default: now", metavar="TIME")
    about = "when a pause ends; default: when the action is resumed"
    add_option(parser, "--until", about, metavar="TIME")
    add_reason(parser, required=False)
    add_service(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if (options.action is None) != (options.change == "list"):
        message = "list takes no action" if options.action else "the name of the action is missing"
        raise InvalidInput(f"{message}: see `belated action --help`", options.action)
    with controlled(options) as (bandit, journal, _):
        declared_actions, now = declared(bandit.features), time.time_ns() // 1000
        changes = journal.actions()
        if options.change == "list":
            states = states_at(changes, now, declared_actions)
        else:
            event = action_change(
                changes,
                declared_actions,
                now,
                change=options.change,
                action=options.action,
                start=options.start,
                until=options.until,
                reason=options.reason,
                actor=actor(),
            )
            journal.append([event])
            states = [ActionState.of(event, now)]
    if not states:
        print(f"{bandit.name}: the features declare no actions, and no action was ever changed")
        return
    print(table(["action", "state", "since", "until", "by", "reason"], [*map(_row, states)]))


def _row(state: ActionState) -> list[str]:
    moments = (state.since, state.until)
    times = ["-" if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in moments]
    return [state.action, state.state, *times, state.actor or "-", state.reason or "-"]
