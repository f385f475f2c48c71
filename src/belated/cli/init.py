"""``belated init``: write a configuration for a first bandit, with a SQLite file as the store."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from belated.exceptions import InvalidInput

EXAMPLE = "belated init belated.toml"

_TEMPLATE = """\
# The configuration of `belated serve`. Check it after each change: belated serve --check {file}

[store]
# Decisions, rewards and models are in a local SQLite file, for all processes on this machine.
# For several machines, use address = "postgresql://user@host/name". If the address contains a
# password, read it from the environment: address_env = "DATABASE_URL"
address = "sqlite:///belated.db"

[server]
host = "127.0.0.1" # before you expose it, set auth = "keys" and see `belated keys create`
port = 8080
learn = true # in this process; if false, run `belated learn {file}`

# A bandit, at /v1/offers. Add as many as you like.
[bandits.offers]
# One set of coefficients per action, for an intercept and the context.
features = "PerArm(['blue', 'red'], context=['returning'])"
# Rewards are between 0 and 1. 2 % of the decisions explore, so that `belated evaluate` can estimate
# what another policy would earn; floor=0 turns this off.
policy = "DelayedUCB(family=Bernoulli(), floor=0.02)"
# Only successes are reported, within a day. Use Explicit(window='1d') if you report failures, too.
rewards = "ConversionsOnly('1d')"
retention = "30d" # how long decisions accept rewards
"""

_NEXT = """\
Wrote {file}. Start the service, and request a decision:

  belated serve {file}
  curl localhost:8080/v1/offers/decisions -H 'Content-Type: application/json' \\
    -d '{{"context": {{"returning": 1}}, "actions": ["blue", "red"]}}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
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
        message = f"{options.file} already exists: choose another name, or remove it"
        raise InvalidInput(message, options.file) from None
    print(_NEXT.format(file=name), end="")
