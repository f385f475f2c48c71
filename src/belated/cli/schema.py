"""``belated schema``: print the SQL that creates or migrates the PostgreSQL tables, or apply it.

Printing requires neither psycopg nor a server.
"""

from __future__ import annotations

import argparse

from belated.cli.address import read
from belated.cli.options import add_option
from belated.exceptions import InvalidInput
from belated.journals.postgres.queries import VERSION, migrations, schema

EXAMPLE = 'belated schema | psql "$DATABASE_URL"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    group = parser.add_mutually_exclusive_group()
    about = "version of the existing tables; print only the migrations from this version"
    add_option(group, "--from", about, int, dest="version", metavar="VERSION")
    about = "create or migrate the tables of the store in this config file, and print nothing"
    add_option(group, "--apply", about, metavar="CONFIG")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.apply is not None:
        read(options.apply).store.create_tables()
        return
    version = options.version
    if version is not None and not 0 <= version <= VERSION:
        raise InvalidInput(f"--from must be between 0 and {VERSION}, not {version}", version)
    steps = [schema()] if version is None else migrations(version)
    if not steps:
        steps = [f"-- The tables already have version {VERSION}: nothing to do."]
    print("\n".join(["BEGIN;", *steps, "COMMIT;"]))
