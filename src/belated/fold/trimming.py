"""Trimming: replaces old records of a journal by a base.

Records are dropped by whole links of the chain, so that the chain can be continued. They are
dropped only once their effect is stored twice: in the base, and in a snapshot of a later position.
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
        journal: the journal to be trimmed.
        partition: the partition.
        before: drop only records with an earlier timestamp, in microseconds since 1970.
        saved: the position of the snapshot.
        link: positions per link of the chain.
    """
    low = journal.start(partition).position
    # Loading the snapshot requires the records of its last link.
    high = (saved - 1) // link * link
    while low < high:  # find the largest position up to which all records are old enough
        middle = (low + high + 1) // 2
        record = journal.read(partition, middle - 1, 1)[0]
        if record.recorded < before:
            low = middle
        else:
            high = middle - 1
    return _at(journal, partition, low // link * link)


def _at(journal: Journal, partition: int, position: int) -> Tail:
    """Return the last record up to a position; EMPTY if there is none, or it was dropped before."""
    start = journal.start(partition).position
    # Usually there is a record at the given position. Otherwise search for the last one before it,
    # because positions may have wide gaps.
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
        journal: the journal to be trimmed.
        fold: a new fold with the settings of the bandit.
        last: for each partition, the last record to drop.
        progress: called with the number of records of each page.
    """
    fold.begin(journal)
    fold.catch_up(journal, to=[tail.position for tail in last], progress=progress)
    return [fold.base(partition) for partition, tail in enumerate(last) if tail != EMPTY]


def trim(
    journal: Journal, base: Snapshot, last: Tail, undone: int, *, reason: str, actor: str
) -> None:
    """Replace the records of a partition by a base; :meth:`Log.drop` then drops them.

    Args:
        journal: the journal to be trimmed.
        base: the base of the partition.
        last: the last record that the base includes.
        undone: number of erasures and retractions in the partition when the base was made.
        reason: why the journal is trimmed, for its record.
        actor: who trims it.

    Raises:
        HistoryUndone: there is a new erasure or retraction; make the base again.
    """
    at = journal.now()
    event = Trimmed(base.partition, at, base.position, last.stamp, reason, actor)
    journal.rebase(base, event, undone)
