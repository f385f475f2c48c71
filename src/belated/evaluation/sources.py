"""Where the columns come from: a journal, read by pages and folded by the ledger's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Erased, Record
from belated.core.inputs import MAX_REWARD, Interval
from belated.core.rewards import Rewards
from belated.evaluation.reader import PartitionReader, Watch, ledger_of
from belated.evaluation.table import DecisionTable, Times
from belated.exceptions import InvalidInput
from belated.fold.undone import Undone
from belated.journals import Journal
from belated.journals.configuration import semantics_of

#: Records read at a time.
PAGE = 10_000
EVERY = Interval(-MAX_REWARD, MAX_REWARD)


@dataclass(frozen=True, eq=False, kw_only=True)
class JournalTable(DecisionTable):
    """Decisions of a journal, in the order in which it took them.

    Attributes:
        ids: decision ids.
        recorded: when the journal took each decision.
        at: when it was made, by the clock of whoever decided.
        late: whether its reward came after the window.
        conflict: whether something contradicts it.
        index: place of the action among those on offer.
        model: version of the model that chose.
        partition: of the journal.
        position: within the partition.
    """

    ids: NDArray[Any]
    recorded: Times
    at: Times
    late: NDArray[np.bool_]
    conflict: NDArray[np.bool_]
    index: NDArray[np.int32]
    model: Times
    partition: NDArray[np.int32]
    position: Times

    def sorted(self) -> Self:
        """The same lines by the time at which the journal took them."""
        if (np.diff(self.recorded) >= 0).all():  # as in a journal of one partition
            return self
        return self.select(np.lexsort((self.position, self.partition, self.recorded)))


def read_journal(
    journal: Journal,
    *,
    rewards: Rewards | None = None,
    retention: int | None = None,
    support: Interval = EVERY,
    until: int | None = None,
    step: Callable[[int], None] = lambda count: None,
    watch: Watch | None = None,
) -> JournalTable:
    """Return the decisions of a journal with what has become of them; trimmed ones are not there.

    All is known as of the last record. Memory is bounded by the number of decisions, some 400 bytes
    each; rows and contexts stay in the journal.

    Args:
        journal: to read.
        rewards: what a missing reward means; None: as the journal says.
        retention: how long a reward counts, in microseconds; goes with ``rewards``.
        support: rewards outside do not count.
        until: records stamped later are not there.
        step: is told how many records were read.
        watch: is told every record, and what it meant.

    Raises:
        InvalidInput: the journal does not say what a missing reward means.
    """
    if rewards is None:
        configured = journal.configured()
        if configured is None:
            message = f"the journal of {journal.bandit!r} does not say what a missing reward means"
            raise InvalidInput(f"{message}: pass rewards=", None)
        rewards, retention = semantics_of(configured.settings)
    actions: dict[int | str, int] = {}
    groups: dict[str, int] = {}
    parts, as_of = [], 0
    for partition in range(journal.partitions):
        undone = Undone.of(_undoing(journal, partition, until))
        ledger = ledger_of(rewards, retention, support, undone)
        reader = PartitionReader(ledger, actions, groups)
        for page in pages_of(journal, partition, until):
            reader.take(page, watch)
            as_of = max(as_of, page[-1].recorded)
            step(len(page))
        parts.append(reader.columns(partition))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return JournalTable(
        **columns,
        actions=tuple(actions) or ("",),
        groups=tuple(groups) or ("",),
        as_of=as_of,
        rewards=rewards,
        retention=retention,
    ).sorted()


def _undoing(journal: Journal, partition: int, until: int | None) -> list[Record]:
    found = journal.undone(partition)
    if until is None:
        return found
    return [one for one in found if one.recorded <= until or isinstance(one.event, Erased)]


def pages_of(journal: Journal, partition: int, until: int | None) -> Iterator[list[Record]]:
    """The records there were when this began, but those that were trimmed."""
    position, end = journal.start(partition).position, journal.end(partition)
    while position < end:
        page = journal.read(partition, position, PAGE)
        last = page[-1].position if page else end
        page = [
            one for one in page if one.position <= end and (until is None or one.recorded <= until)
        ]
        if not page:
            return
        yield page
        position = last
