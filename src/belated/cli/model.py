"""``belated model``: list a bandit's models, or decide with an earlier or the latest model.

The choice is recorded in the journal and takes effect in all deciders within a second. Learning
continues.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from belated.cli.address import add_service, controlled
from belated.cli.mode import by_whom
from belated.cli.options import actor, add_reason
from belated.cli.text import moment, table
from belated.decider.models import Version, model_choice, models_in
from belated.exceptions import InvalidInput
from belated.journals.shelf import chosen_models

EXAMPLE = """belated model list offers
  belated model use offers 12345 --reason "broken prices since noon"
  belated model use offers latest --reason "prices are correct again"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    about = "list: show the available models; use: choose a model"
    parser.add_argument("change", metavar="CHANGE", choices=("list", "use"), help=about)
    parser.add_argument("bandit", metavar="BANDIT", help="name of the bandit")
    about = "version of a model, as shown by `list`, or `latest`"
    parser.add_argument("version", metavar="VERSION", nargs="?", help=about)
    add_reason(parser, required=False)
    add_service(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if (options.version is None) != (options.change == "list"):
        message = "list takes no version" if options.version else "the version is missing"
        raise InvalidInput(f"{message}: see `belated model --help`", options.version)
    with (
        controlled(options) as (_, journal, store),
        closing(store.coordination(options.bandit)) as coordination,
    ):
        if options.change == "use":
            version, now = _version(options.version), time.time_ns() // 1000
            event = model_choice(coordination, version, now, options.reason, actor())
            journal.append([event])
        _, chosen = chosen_models(coordination.cells, {options.bandit: 0}).get(
            options.bandit, (0, None)
        )
        models = models_in(coordination, chosen)
    description = "the latest model"
    if chosen is not None and chosen.model:
        description = f"{chosen.version} since {moment(chosen.at_us)}{by_whom(chosen)}"
    print(f"{options.bandit} decides with {description}")
    if models:
        rows = [
            [
                str(model.version),
                f"{model.made_at:%Y-%m-%dT%H:%M:%SZ}",
                model.observations,
                model.state,
            ]
            for model in models
        ]
        print(table([">version", "made", ">rewards", "state"], rows))


def _version(text: str) -> Version:
    if text == "latest":
        return "latest"
    if not text.isdecimal():
        raise InvalidInput(f"the version must be a number or `latest`, not {text!r}", text)
    return int(text)
