"""``belated keys create``: create a key for a program and show it once.

Only the key is written to stdout, so that it can be piped. Notes are written to stderr.
"""

from __future__ import annotations

import argparse
import sys

from belated.cli.address import add_service
from belated.cli.keys import opened, record
from belated.cli.options import add_option, add_reason
from belated.core.ids import check_id
from belated.exceptions import InvalidInput

EXAMPLE = "belated keys create shop --bandit offers --scope decide --scope reward"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    about = "name of the program that uses the key; at most two keys per name"
    parser.add_argument("name", metavar="NAME", help=about)
    add_service(parser)
    repeated = {"action": "append", "required": True}
    bandits = "bandit that the key may access; '*' for all current and future bandits; repeatable"
    add_option(parser, "--bandit", bandits, dest="bandits", metavar="BANDIT", **repeated)
    scopes = "scope that the key grants: decide, reward, read or admin; repeatable"
    add_option(parser, "--scope", scopes, dest="scopes", metavar="SCOPE", **repeated)
    rate = "limit on decisions and rewards per second, in each service process"
    add_option(parser, "--rate", rate, float, metavar="N")
    add_reason(parser, required=False)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from belated.wire.keys import ALL, SCOPES, check_rate, check_scope, hash_of, new_key

    name = check_id(options.name, "the name")
    bandits = sorted(set(options.bandits))
    scopes = sorted(set(map(check_scope, options.scopes)), key=SCOPES.index)
    rate = check_rate(options.rate)
    key, id = new_key()
    with opened(options) as (keys, config):
        known_bandits = [bandit.name for bandit in config.bandits]
        names = ", ".join(known_bandits)
        for bandit in bandits:
            if bandit not in (ALL, *known_bandits):
                message = f"{options.config} has no bandit {bandit!r}; known bandits: {names}"
                raise InvalidInput(message, bandit)
        if not keys.create(id, name, bandits, scopes, rate, hash_of(key)):
            message = f"{name!r} already has two keys: switch all programs to the newer key, then"
            raise InvalidInput(f"{message} revoke the other key (see `belated keys list`)", name)
        (created,) = [key for key in keys.all() if key.id == id]
        record(config, created, "created", options.reason)
    print(key)
    note = f"created key {id} for {name}: store it now; it will not be shown again"
    print(f"belated: {note}", file=sys.stderr)
