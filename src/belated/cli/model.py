"""``belated model``: list the models of a bandit; decide with an earlier one, or the latest again.

A choice is written into the journal, and obeyed by all deciders within a second. Learning goes on.
"""

from __future__ import annotations

import argparse
import time

from belated.cli.address import read
from belated.cli.keys import add_file
from belated.cli.mode import bandit_in
from belated.cli.options import actor, add_reason
from belated.cli.text import moment, table
from belated.decider.models import Version, model_choice, models_in
from belated.exceptions import InvalidInput
from belated.journals.shelf import chosen_models

EXAMPLE = """belated model list offers
  belated model use offers 12345 --reason "broken prices since noon"
  belated model use offers latest --reason "prices are repaired"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    about = "list: show the models that can be chosen; use: decide with one of them"
    parser.add_argument("change", metavar="CHANGE", choices=("list", "use"), help=about)
    parser.add_argument("bandit", metavar="BANDIT", help="name of the bandit")
    about = "version of a model, as `list` shows it, or `latest`"
    parser.add_argument("version", metavar="VERSION", nargs="?", help=about)
    add_reason(parser, required=False)
    add_file(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    config = read(options.config)
    bandit = bandit_in(config, options.bandit, options.config)
    if (options.version is None) != (options.change == "list"):
        message = "list shows all models" if options.version else "the version is missing"
        raise InvalidInput(f"{message}: see `belated model --help`", options.version)
    with config.store.journal(bandit.name, partitions=bandit.partitions) as journal:
        coordination = config.store.coordination(bandit.name)
        try:
            if options.change == "use":
                version, now = _version(options.version), time.time_ns() // 1000
                event = model_choice(coordination, version, now, options.reason, actor())
                journal.append([event])
            chosen = chosen_models(coordination.cells, {bandit.name: 0}).get(bandit.name)
            models = models_in(coordination, None if chosen is None else chosen[1])
        finally:
            coordination.close()
    if chosen is not None and chosen[1].model:
        event = chosen[1]
        by = f" by {event.actor}" if event.actor else ""
        why = f"; reason: {event.reason}" if event.reason else ""
        print(f"{bandit.name} decides with {event.version} since {moment(event.at_us)}{by}{why}")
    else:
        print(f"{bandit.name} decides with the latest model")
    if models:
        rows = [
            [str(one.version), f"{one.made_at:%Y-%m-%dT%H:%M:%SZ}", one.observations, one.state]
            for one in models
        ]
        print(table([">version", "made", ">rewards", "state"], rows))


def _version(text: str) -> Version:
    if text == "latest":
        return "latest"
    if not text.isdecimal():
        raise InvalidInput(f"the version is {text!r}: a number or `latest` was expected", text)
    return int(text)
