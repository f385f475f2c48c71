"""``belated keys create``: make a key for a program, and show it once.

The key alone goes to stdout, so that it can be handed on; what is said about it goes to stderr.
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
    """What the command takes."""
    parser.add_argument("name", metavar="NAME", help="of the program that gets it; two at most")
    add_service(parser)
    repeated = {"action": "append", "required": True}
    bandits = "it is for; '*' for all, now and later; may be repeated"
    add_option(parser, "--bandit", bandits, dest="bandits", metavar="BANDIT", **repeated)
    scopes = "what may be done with it: decide, reward, read or admin; may be repeated"
    add_option(parser, "--scope", scopes, dest="scopes", metavar="SCOPE", **repeated)
    rate = "decisions and rewards a second, at each service process"
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
        known = [one.name for one in config.bandits]
        for bandit in bandits:
            if bandit not in (ALL, *known):
                message = f"{options.config} has no bandit {bandit!r}: {', '.join(known)} are there"
                raise InvalidInput(message, bandit)
        if not keys.create(id, name, bandits, scopes, rate, hash_of(key)):
            message = f"{name!r} has two keys already: move its programs to the newer one, then "
            raise InvalidInput(f"{message}revoke the other (see `belated keys list`)", name)
        (made,) = [one for one in keys.all() if one.id == id]
        record(config, made, "created", options.reason)
    print(key)
    note = f"this is the key {id} of {name}: keep it now, for it is not shown again"
    print(f"belated: {note}", file=sys.stderr)
