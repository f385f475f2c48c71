"""``belated keys list``: list the valid keys and their permissions.

The keys themselves cannot be listed, because only their hashes are stored.
"""

from __future__ import annotations

import argparse

from belated.cli.address import add_service
from belated.cli.keys import opened
from belated.cli.text import several, table

EXAMPLE = "belated keys list --all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_service(parser)
    parser.add_argument("--all", action="store_true", help="include revoked keys")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with opened(options) as (keys, _):
        listed = [key for key in keys.all() if options.all or key.revoked is None]
    rows = [
        [
            key.id,
            key.name,
            ",".join(key.bandits),
            ",".join(key.scopes),
            "any" if key.rate is None else f"{key.rate:g}/s",
            f"{key.created:%Y-%m-%d}",
            *([f"{key.revoked:%Y-%m-%d}" if key.revoked else "-"] if options.all else []),
        ]
        for key in listed
    ]
    head = ["id", "name", "bandits", "scopes", ">rate", "created"]
    if rows:
        print(table([*head, "revoked"] if options.all else head, rows))
    print(several(sum(key.revoked is None for key in listed), "valid key"))
