"""What commands about a service share: its configuration, and that its store can be opened."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from belated.exceptions import InvalidConfig

if TYPE_CHECKING:
    from belated.service.operating.config import Config


def add_config(parser: argparse.ArgumentParser) -> None:
    """The file, and what is to be done before."""
    parser.add_argument("file", metavar="CONFIG", help="TOML config file, such as belated.toml")
    parser.add_argument(
        "--create-tables",
        action="store_true",
        help="create or migrate the tables first; SQLite needs no such step",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="minimum level of JSON logs on stderr (default: info)",
    )


def prepared(options: argparse.Namespace) -> Config:
    """Return the configuration, once every journal in it could be opened."""
    config = read(options.file)

    from belated.service.operating.logs import start_logging

    start_logging(options.log_level)
    if options.create_tables:
        config.store.create_tables()
    for one in config.bandits:  # what cannot be opened is reported now, in one line
        config.store.journal(one.name, partitions=one.partitions).close()
    return config


def read(file: str) -> Config:
    """Return the configuration in a file; of several mistakes the first is reported."""
    from belated.service.operating.config import read_config

    try:
        return read_config(file)
    except InvalidConfig as error:
        first, *more = error.mistakes
        if not more:
            raise
        rest = f"and {len(more)} more: see `belated serve --check {file}`"
        raise InvalidConfig([first, rest]) from None
