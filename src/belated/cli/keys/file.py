"""What the commands about keys share: where the keys are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from belated.cli.service.configuration import read
from belated.journals import KeyStore

if TYPE_CHECKING:
    from belated.service.operating.config import Config


def add_file(parser: argparse.ArgumentParser) -> None:
    """Where the service is described."""
    parser.add_argument(
        "--config",
        default="belated.toml",
        metavar="FILE",
        help="of the service, which says where the store is; default: belated.toml",
    )


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[tuple[KeyStore, Config]]:
    """The keys of the service that a file describes."""
    config = read(options.config)
    keys = config.store.keys()
    try:
        yield keys, config
    finally:
        keys.close()
