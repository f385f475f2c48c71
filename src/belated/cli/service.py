"""What ``belated serve``, ``belated learn`` and ``belated keys`` share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from belated.exceptions import BelatedError, InvalidConfig, MissingExtra
from belated.journals import PostgresJournal

if TYPE_CHECKING:
    from belated.service.operating.config import Config


def add_config(parser: argparse.ArgumentParser) -> None:
    """The file, and what is to be done before."""
    parser.add_argument("file", metavar="CONFIG", help="a file of TOML, such as belated.toml")
    parser.add_argument(
        "--create-tables",
        action="store_true",
        help="first make the tables in the database, or bring older ones up to date",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much is said on stderr, in lines of JSON; default: info",
    )


def prepared(options: argparse.Namespace, command: str) -> Config:
    """The configuration, once the database has all that it asks for."""
    check_extra(command)
    config = read(options.file)

    from belated.service.operating.logs import start_logging

    start_logging(options.log_level)
    dsn = config.database.dsn
    if options.create_tables:
        PostgresJournal.create_tables(dsn)
    for one in config.bandits:  # what cannot be opened is told now, in one line
        PostgresJournal(dsn, bandit=one.name, partitions=one.partitions).close()
    return config


def read(file: str) -> Config:
    """The configuration in a file; of several mistakes the first is told."""
    from belated.service.operating.config import read_config

    try:
        return read_config(file)
    except InvalidConfig as error:
        first, *more = error.mistakes
        if not more:
            raise
        rest = f"and {len(more)} more: see `belated serve --check {file}`"
        raise InvalidConfig([first, rest]) from None


def check_extra(command: str) -> None:
    """Say what to install, if psycopg is missing or of no use."""
    try:
        import psycopg  # noqa: F401 - only whether it is there
    except ModuleNotFoundError:
        raise MissingExtra(command, "service") from None
    except ImportError:  # psycopg alone, on a machine without the library of PostgreSQL
        message = "psycopg finds no library of PostgreSQL: pip install 'psycopg[binary]'"
        raise BelatedError(message) from None
