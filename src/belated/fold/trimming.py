"""Which old records a journal can do without, and what stands for them: their base.

Records are dropped by whole links of the chain, so that it can be gone on with. They are dropped
only where two things hold what they came to: the base, and a snapshot of a later position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from belated.core.events import Trimmed
from belated.fold.fold import Fold
from belated.journals import Journal
from belated.journals.log import EMPTY, Tail
from belated.journals.snapshots import Snapshot


def last_to_drop(journal: Journal, partition: int, before: int, saved: int, link: int) -> Tail:
    """Return the last record of a partition that can be dropped, EMPTY if there is none.

    Args:
        journal: to be trimmed.
        partition: of it.
        before: only records stamped earlier are dropped, in microseconds since 1970.
        saved: the position of the snapshot.
        link: positions of a link of the chain.
    """
    low = journal.start(partition).position
    # To load the snapshot, the records of its last link are read again.
    high = (saved - 1) // link * link
    while low < high:  # the greatest position before which all are old enough
        middle = (low + high + 1) // 2
        record = journal.read(partition, middle - 1, 1)[0]
        if record.recorded < before:
            low = middle
        else:
            high = middle - 1
    return _at(journal, partition, low // link * link)


def _at(journal: Journal, partition: int, position: int) -> Tail:
    """The last record up to a position, if it was not dropped before."""
    start = journal.start(partition).position
    # It follows the greatest position behind which there is a record up to the one given. That is
    # the one before it, unless positions have gaps, which may be wide.
    low, high, after = start, position - 1, position - 1
    best = EMPTY
    while low <= high:
        found = journal.read(partition, after, 1)
        if found and found[0].position <= position:
            best = Tail(found[0].position, found[0].recorded)
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
    """Return what the records up to these come to, for each partition that has any to drop.

    Args:
        journal: to be trimmed.
        fold: a new one, with the settings of the bandit.
        last: for each partition the last record that is to be dropped.
        progress: called with the number of records of each page.
    """
    fold.begin(journal)
    fold.catch_up(journal, to=[tail.position for tail in last], progress=progress)
    return [fold.base(partition) for partition, tail in enumerate(last) if tail != EMPTY]


def trim(
    journal: Journal, base: Snapshot, last: Tail, undone: int, *, reason: str, actor: str
) -> None:
    """Let a base stand for the records up to it; :meth:`Log.drop` then drops them.

    Args:
        journal: to be trimmed.
        base: of one partition.
        last: its last record.
        undone: how many records of the partition undid others when the base was made.
        reason: why, for the record of it.
        actor: who does it.

    Raises:
        HistoryUndone: something was undone since; make the base anew.
    """
    at = journal.now()
    event = Trimmed(base.partition, at, base.position, last.stamp, reason, actor)
    journal.rebase(base, event, undone)
