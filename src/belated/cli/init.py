"""``belated init``: write a configuration that serves a first bandit from a file of SQLite."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from belated.exceptions import InvalidInput

EXAMPLE = "belated init belated.toml"

_TEMPLATE = """\
# What `belated serve` serves. Check it after each change: belated serve --check {file}

[store]
# Decisions, rewards and models: a file beside you, durable, for all processes of this machine.
# For several machines: address = "postgresql://user@host/name", or address_env = "DATABASE_URL"
# to read it from the environment, if it holds a password.
address = "sqlite:///belated.db"

[server]
host = "127.0.0.1" # before others can reach it, set auth = "keys" and see `belated keys create`
port = 8080
learn = true # in this process too; or false, and run `belated learn {file}`

# A bandit, at /v1/offers. Add as many as you like.
[bandits.offers]
# One set of coefficients for each action, of an intercept and the context.
features = "PerArm(['blue', 'red'], context=['returning'])"
# Rewards are from 0 to 1. 2 % of the decisions explore, so that `belated evaluate` can tell what
# another policy would earn; floor=0 turns it off.
policy = "DelayedUCB(family=Bernoulli(), floor=0.02)"
# Only good outcomes are reported, a day later at most. Use Explicit(window='1d') if you report all.
rewards = "ConversionsOnly('1d')"
retention = "30d" # a decision accepts rewards for so long
"""

_NEXT = """\
{file} is written. Start the service, and ask it for a decision:

  belated serve {file}
  curl localhost:8080/v1/offers/decisions -H 'Content-Type: application/json' \\
    -d '{{"context": {{"returning": 1}}, "actions": ["blue", "red"]}}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="belated.toml", help="default: belated.toml"
    )


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    name = shlex.quote(options.file)
    try:
        with Path(options.file).open("x", encoding="utf-8") as file:
            file.write(_TEMPLATE.format(file=name))
    except FileExistsError:
        message = f"{options.file} is there already: choose another name, or remove it"
        raise InvalidInput(message, options.file) from None
    print(_NEXT.format(file=name), end="")
