"""``belated keys revoke``: revoke a key; services reject it within two seconds."""

from __future__ import annotations

import argparse

from belated.cli.address import add_service
from belated.cli.keys import opened, record
from belated.cli.options import add_reason
from belated.exceptions import InvalidInput

EXAMPLE = "belated keys revoke k3J9xQ2a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("id", metavar="ID", help="id of the key, from `belated keys list`")
    add_service(parser)
    add_reason(parser, required=False)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from belated.wire.keys import id_in

    id = id_in(options.id)
    with opened(options) as (keys, config):
        matching = [key for key in keys.all() if key.id == id]
        if not keys.revoke(id):
            raise InvalidInput(f"there is no key {id!r}: see `belated keys list`", id)
        for key in matching:
            if key.revoked is None:
                record(config, key, "revoked", options.reason)
    print(f"the key {id} is revoked: services reject it within two seconds")
