"""``belated journal overwrite``: destroy the bytes of decisions that were erased.

An erasure changes what counts. Once the learner has folded the journal without the decision and
saved a snapshot, nothing needs its bytes any more: this command overwrites them, with those of all
that was recorded under its id. Positions, stamps and digests stay, so that the journal verifies as
before. It may be run at any time, and again.
"""

from __future__ import annotations

import argparse

from belated.cli.journal.address import add_address, opened
from belated.cli.text import several, wrapped
from belated.events import Erased

EXAMPLE = "belated journal overwrite sqlite:///offers.db"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    with opened(options.address) as (journal, bandit):
        saved = {one.partition: one.position for one in bandit.snapshots}
        ready: list[bytes] = []
        waiting = 0
        for partition in range(journal.partitions):
            for record in journal.undone(partition):
                if isinstance(record.event, Erased):
                    # A snapshot from before it still has the row.
                    if saved.get(partition, record.position) >= record.position:
                        ready.append(record.event.key)
                    else:
                        waiting += 1
        count = journal.overwrite(ready)
        print(f"{several(count, 'event')} of erased decisions overwritten in {journal.bandit}")
    if waiting:
        message = (
            f"{several(waiting, 'decision')} must wait: the last snapshot is from before the "
            "erasure. Run this again once the learner has saved one, or the bandit was closed"
        )
        print(wrapped(message, ""))
    return int(waiting > 0)
