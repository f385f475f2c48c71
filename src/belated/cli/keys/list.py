"""``belated keys list``: tell which keys work, and what each may do.

The keys themselves are not known to anyone but those who have them.
"""

from __future__ import annotations

import argparse

from belated.cli.address import add_service
from belated.cli.keys import opened
from belated.cli.text import several, table

EXAMPLE = "belated keys list --all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_service(parser)
    parser.add_argument("--all", action="store_true", help="those that were revoked too")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with opened(options) as (keys, _):
        found = [one for one in keys.all() if options.all or one.revoked is None]
    rows = [
        [
            one.id,
            one.name,
            ",".join(one.bandits),
            ",".join(one.scopes),
            "any" if one.rate is None else f"{one.rate:g}/s",
            f"{one.created:%Y-%m-%d}",
            *([f"{one.revoked:%Y-%m-%d}" if one.revoked else "-"] if options.all else []),
        ]
        for one in found
    ]
    head = ["id", "name", "bandits", "scopes", ">rate", "created"]
    if rows:
        print(table([*head, "revoked"] if options.all else head, rows))
    print(f"{several(sum(one.revoked is None for one in found), 'key')} at work")
