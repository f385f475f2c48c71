"""``belated journal trim``: drop old records.

The effect of the records is first stored as the base of each partition, from which later folds
start. The base is computed by folding the records again, and is stored only if there is a snapshot
at a later position. Records are dropped in small batches, so that other processes are not blocked.
If the command is interrupted, run it again.

The records of a decision are needed for as long as the decision accepts rewards. Therefore, the
bandit must have a retention, and only older records can be dropped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from belated.cli.address import (
    OTHER_SETTINGS,
    add_address,
    configured,
    empty_fold,
    opened,
    starts_of,
    undoing_in,
)
from belated.cli.options import actor, add_option, add_reason, add_semantics, duration, semantics
from belated.cli.text import Progress, moment, several
from belated.core.times import as_duration, duration_us, lasting
from belated.evaluation.archiving import forgettable
from belated.exceptions import HistoryUndone, InvalidInput
from belated.fold.fold import Fold
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals import Journal
from belated.journals.archive import Archive
from belated.journals.log import EMPTY
from belated.journals.store import StoredBandit

EXAMPLE = 'belated journal trim sqlite:///offers.db --older-than 90d --reason "policy"'

#: Number of records to drop at a time, and pause between batches in seconds.
BATCH, PAUSE = 1_000, 0.01
#: Maximum number of attempts to compute the bases, which erasures and retractions invalidate.
ATTEMPTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    about = "minimum age of dropped records, in journal time, such as 90d"
    add_option(parser, "--older-than", about, duration, required=True)
    about = "drop only records that `belated journal archive` has written to this folder"
    add_option(parser, "--archived", about, metavar="FOLDER")
    add_reason(parser)
    add_semantics(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with opened(options.address) as (journal, bandit):
        rewards, retention = semantics(options, configured(journal))
        fold = empty_fold(bandit, journal, rewards, retention)
        if retention is None:
            message = f"{bandit.name} has no retention, so its decisions accept rewards forever"
            raise InvalidInput(f"{message} and all records are needed: set a retention first")
        age = duration_us(as_duration(options.older_than, "--older-than"))
        if age < retention:
            message = f"--older-than is {lasting(age / 1e6)}, but decisions accept rewards for "
            raise InvalidInput(
                f"{message}{lasting(retention / 1e6)} (the retention): pass at least the retention"
            )
        archive = None if options.archived is None else Archive(options.archived, bandit.name)

        def before(partition: int) -> int:
            old = journal.now() - age
            return old if archive is None else min(old, forgettable(archive, partition, retention))

        for attempt in range(1, ATTEMPTS + 1):
            try:
                _rebase(journal, bandit, fold, before, options.reason)
                break
            except HistoryUndone:  # another process has erased or retracted a record
                if attempt == ATTEMPTS:
                    raise
                fold.clear()
        count = _drop(journal)
        if count:
            upto = moment(max(start.stamp for start in starts_of(journal)))
            print(f"{several(count, 'record')} of {journal.bandit} dropped, up to {upto}")
        else:
            print(f"no records of {journal.bandit} can be dropped")


def _rebase(
    journal: Journal,
    bandit: StoredBandit,
    fold: Fold,
    before: Callable[[int], int],
    reason: str,
) -> None:
    """Store a base for each partition that has records to drop."""
    undone = undoing_in(journal)
    saved = {snapshot.partition: snapshot for snapshot in bandit.snapshots}
    last = []
    for partition in range(journal.partitions):
        snapshot = saved.get(partition)
        if snapshot is None:
            last.append(EMPTY)
            continue
        if not snapshot.fingerprint.startswith(fold.fingerprint):
            message = f"the snapshot of partition {partition} {OTHER_SETTINGS}"
            raise InvalidInput(f"{message}, or have the learner save a new snapshot")
        link = fold.tuning.link
        last.append(last_to_drop(journal, partition, before(partition), snapshot.position, link))
    starts = starts_of(journal)
    ranges = zip(last, starts, strict=True)
    new = [max(0, tail.position - start.position) for tail, start in ranges]
    with Progress("folded", sum(new)) as progress:
        bases = make_bases(journal, fold, last, progress.step)
    for base in bases:
        undoing = undone[base.partition]
        trim(journal, base, last[base.partition], undoing, reason=reason, actor=actor())


def _drop(journal: Journal) -> int:
    """Drop all records that the bases replace, and return the number of records dropped."""
    total = 0
    with Progress("dropped") as progress:
        for partition in range(journal.partitions):
            while count := journal.drop(partition, BATCH):
                total += count
                progress.step(count)
                time.sleep(PAUSE)
    return total
