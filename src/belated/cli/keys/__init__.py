"""Helpers for the commands that manage keys: opening the key store and recording changes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from belated.cli.address import read
from belated.cli.options import actor
from belated.core.events import KeyChanged
from belated.journals.keys import KeyHistory, KeyStore

if TYPE_CHECKING:
    from belated.service.operating.config import Config


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[tuple[KeyStore, Config]]:
    """Open the key store of the service that the options name."""
    config = read(options.config)
    keys = config.store.keys()
    try:
        yield keys, config
    finally:
        keys.close()


def record(
    config: Config, key: KeyHistory, change: Literal["created", "revoked"], reason: str
) -> None:
    """Record a change to a key in the journal of each bandit that the key may access."""
    from belated.wire.keys import ALL

    for bandit in config.bandits:
        if bandit.name in key.bandits or ALL in key.bandits:
            with config.store.journal(bandit.name, partitions=bandit.partitions) as journal:
                now = journal.now()
                journal.append(
                    [KeyChanged(now, key.id, key.name, change, key.scopes, reason, actor())]
                )
