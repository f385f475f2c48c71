"""``belated keys revoke``: end a key for good; services refuse it within two seconds."""

from __future__ import annotations

import argparse

from belated.cli.address import add_service
from belated.cli.keys import opened, record
from belated.cli.options import add_reason
from belated.exceptions import InvalidInput

EXAMPLE = "belated keys revoke k3J9xQ2a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("id", metavar="ID", help="of the key, as `belated keys list` has it")
    add_service(parser)
    add_reason(parser, required=False)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from belated.wire.keys import id_in

    id = id_in(options.id)
    with opened(options) as (keys, config):
        found = [one for one in keys.all() if one.id == id]
        if not keys.revoke(id):
            raise InvalidInput(f"there is no key {id!r}: see `belated keys list`", id)
        for key in found:
            if key.revoked is None:
                record(config, key, "revoked", options.reason)
    print(f"the key {id} is revoked: services refuse it within two seconds")
