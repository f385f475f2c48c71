"""``belated schema``: print the tables of PostgresJournal, for psql, or apply them.

Printing needs neither psycopg nor a server.
"""

from __future__ import annotations

import argparse

from belated.cli.options import read
from belated.exceptions import InvalidInput
from belated.journals.postgres.queries import VERSION, migrations, schema

EXAMPLE = 'belated schema | psql "$DATABASE_URL"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--from",
        dest="version",
        type=int,
        metavar="VERSION",
        help="of the tables that are there: print only what leads from it to the present one",
    )
    what.add_argument(
        "--apply",
        metavar="CONFIG",
        help="print nothing: create or migrate the tables of the store in this config file",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.apply is not None:
        read(options.apply).store.create_tables()
        return 0
    version = options.version
    if version is not None and not 0 <= version <= VERSION:
        raise InvalidInput(f"--from is {version}: from 0 to {VERSION} was expected", version)
    steps = [schema()] if version is None else migrations(version)
    if not steps:
        steps = [f"-- The tables are of version {VERSION} already: there is nothing to do."]
    print("\n".join(["BEGIN;", *steps, "COMMIT;"]))
    return 0
