"""Trim a journal: replace its old records with a base.

Records are dropped in whole links of the chain, so that the chain can be continued. They are
dropped only after their effect has been stored twice: in the base and in a snapshot at a later
position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from belated.core.events import Trimmed
from belated.fold.fold import Fold
from belated.journals import Journal
from belated.journals.log import EMPTY, Tail
from belated.journals.snapshots import Snapshot


def last_to_drop(journal: Journal, partition: int, before: int, saved: int, link: int) -> Tail:
    """Return the last record of a partition that can be dropped; EMPTY if there is none.

    Args:
        journal: the journal to trim.
        partition: the partition.
        before: drop only records with an earlier timestamp, in microseconds since 1970.
        saved: the position of the snapshot.
        link: number of positions per link of the chain.
    """
    low = journal.start(partition).position
    # Loading the snapshot requires the records of its last link.
    high = (saved - 1) // link * link
    while low < high:  # find the last position up to which all records are old enough
        middle = (low + high + 1) // 2
        record = journal.read(partition, middle - 1, 1)[0]
        if record.recorded < before:
            low = middle
        else:
            high = middle - 1
    return _at(journal, partition, low // link * link)


def _at(journal: Journal, partition: int, position: int) -> Tail:
    """Return the last record at or before a position; EMPTY if none is left."""
    start = journal.start(partition).position
    # There is usually a record at the given position. Otherwise, search for the last earlier
    # record, because there may be large gaps between positions.
    low, high, after = start, position - 1, position - 1
    best = EMPTY
    while low <= high:
        records = journal.read(partition, after, 1)
        if records and records[0].position <= position:
            best = Tail(records[0].position, records[0].recorded)
            low = best.position
        else:
            high = after - 1
        after = (low + high) // 2
    return best


def make_bases(
    journal: Journal,
    fold: Fold,
    last: Sequence[Tail],
    progress: Callable[[int], None] = lambda count: None,
) -> list[Snapshot]:
    """Return a base for each partition from which records will be dropped.

    Args:
        journal: the journal to trim.
        fold: a new fold with the settings of the bandit.
        last: the last record to drop in each partition.
        progress: called with the number of records in each page.
    """
    fold.begin(journal)
    fold.catch_up(journal, to=[tail.position for tail in last], progress=progress)
    return [fold.base(partition) for partition, tail in enumerate(last) if tail != EMPTY]


def trim(
    journal: Journal, base: Snapshot, last: Tail, undone: int, *, reason: str, actor: str
) -> None:
    """Replace the records of a partition with a base; :meth:`Log.drop` then drops the records.

    Args:
        journal: the journal to trim.
        base: the base of the partition.
        last: the last record included in the base.
        undone: number of erasures and retractions in the partition when the base was made.
        reason: the reason for trimming, which is recorded in the journal.
        actor: the person or process that trims the journal.

    Raises:
        HistoryUndone: there is a new erasure or retraction, so the base must be made again.
    """
    at = journal.now()
    event = Trimmed(base.partition, at, base.position, last.stamp, reason, actor)
    journal.rebase(base, event, undone)
