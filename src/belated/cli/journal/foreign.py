"""Logs of other systems, imported as journals to be evaluated."""

from __future__ import annotations

from typing import BinaryIO

from belated.cli.text import several
from belated.evaluation.logs import READERS, import_log
from belated.journals import open_store, split_address


def import_foreign(source: BinaryIO, name: str, format: str, address: str) -> int:
    """Make a journal of a log; returns the exit code."""
    place, bandit = split_address(address)
    read, features_of = READERS[format]
    log = list(read(source, name))
    with open_store(place).new_journal(bandit, partitions=1) as journal:
        count = import_log(journal, log, features_of(log) if log else None)
    print(f"{several(count, 'decision')} imported as bandit {bandit}")
    return 0
