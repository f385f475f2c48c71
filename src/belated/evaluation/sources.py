"""Where the columns come from: a journal, read by pages and folded by the ledger's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from belated.evaluation.table import NEVER, SOURCES, DecisionTable, Times
from belated.events import Decision, Record
from belated.events.operations import Erased
from belated.exceptions import InvalidInput
from belated.families import Interval
from belated.inputs import MAX_REWARD
from belated.journals import Journal
from belated.journals.configuration import semantics_of
from belated.kernels.pages import CONFLICT, LATE
from belated.ledger import Ledger, State
from belated.ledger.listener import NullListener
from belated.ledger.undone import Undone
from belated.rewards import Rewards
from belated.tuning import Tuning

#: Records read at a time.
PAGE = 10_000
#: Nothing leaves the ledger: what was forgotten is evaluated too.
_ALL = Tuning(dropped=1 << 62)
_EVERY = Interval(-MAX_REWARD, MAX_REWARD)


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
        order = np.lexsort((self.position, self.partition, self.recorded))
        return self.select(order)


def read_journal(
    journal: Journal,
    *,
    rewards: Rewards | None = None,
    retention: int | None = None,
    support: Interval = _EVERY,
    until: int | None = None,
    step: Callable[[int], None] = lambda count: None,
    watch: Callable[[Record, str], None] | None = None,
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
    low, high = rewards.range(support)
    actions: dict[int | str, int] = {}
    groups: dict[str, int] = {}
    parts, as_of = [], 0
    for partition in range(journal.partitions):
        ledger = Ledger(
            rewards,
            NullListener(),
            min_reward=low,
            max_reward=high,
            retention=retention,
            tuning=_ALL,
        )
        ledger.undone = Undone.of(_undoing(journal, partition, until))
        reader = _Reader(ledger, actions, groups)
        for page in _pages(journal, partition, until):
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


def _pages(journal: Journal, partition: int, until: int | None) -> Iterator[list[Record]]:
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


class _Reader:
    """What a partition's records say of each decision; its number in the ledger is its line."""

    def __init__(self, ledger: Ledger, actions: dict[int | str, int], groups: dict[str, int]):
        self._ledger = ledger
        self._table = ledger.changes.table
        self._actions, self._groups = actions, groups
        self._ids: list[str] = []
        self._codes: list[tuple[int, int, int, int]] = []
        self._numbers: list[tuple[float, float, float]] = []
        self._models: list[int] = []
        self._activated: dict[int, int] = {}
        self._rewarded: dict[int, int] = {}

    def take(self, page: list[Record], watch: Callable[[Record, str], None] | None = None) -> None:
        fold, find, enter = self._ledger.fold, self._ledger.find, self._enter
        rewarded = self._rewarded
        for record in page:
            status = fold(record)
            if watch is not None:
                watch(record, status)
            if status == "decided":
                enter(record.event)  # type: ignore[arg-type]
                number = len(self._ids) - 1
                if self._table.state[number] == State.REWARDED:  # its reward came before it
                    rewarded[number] = record.recorded
            elif status == "rewarded" or status == "late":
                rewarded[find(record.event.id)] = record.recorded  # type: ignore[union-attr]
            elif status == "activated":
                self._activated[find(record.event.id)] = record.recorded  # type: ignore[union-attr]

    def _enter(self, decision: Decision) -> None:
        self._ids.append(decision.id)
        actions, groups = self._actions, self._groups
        self._codes.append(
            (
                actions.setdefault(decision.action, len(actions)),
                groups.setdefault(decision.group, len(groups)),
                SOURCES.index(decision.source),
                decision.index,
            )
        )
        overall = decision.propensity if decision.overall is None else decision.overall
        self._numbers.append((decision.propensity, overall, decision.mean))
        self._models.append(decision.model)

    def columns(self, partition: int) -> dict[str, Any]:
        """All lines, by the names of :class:`JournalTable`."""
        count, table = len(self._ids), self._table
        recorded = table.column("recorded").copy()
        made, rewarded = recorded.copy(), np.full(count, NEVER, dtype=np.int64)
        state, flags = table.column("state").copy(), table.column("flags")
        if self._activated:
            made[list(self._activated)] = list(self._activated.values())
        if self._rewarded:
            rewarded[list(self._rewarded)] = list(self._rewarded.values())
        rewarded[state != State.REWARDED] = NEVER
        came = rewarded != NEVER
        rewarded[came] = np.maximum(rewarded[came], made[came])
        known = (state == State.REWARDED) | (state == State.DEFAULTED)
        codes = np.array(self._codes, dtype=np.int32).reshape(-1, 4)
        numbers = np.array(self._numbers, dtype=np.float64).reshape(-1, 3)
        ids = np.empty(count, dtype=object)
        ids[:] = self._ids
        return {
            "made": made,
            "rewarded": rewarded,
            "value": np.where(known, table.column("value"), np.nan),
            "state": state,
            "action": codes[:, 0],
            "group": codes[:, 1],
            "source": codes[:, 2].astype(np.uint8),
            "propensity": numbers[:, 0],
            "overall": numbers[:, 1],
            "mean": numbers[:, 2],
            "ids": ids,
            "recorded": recorded,
            "at": table.column("at").copy(),
            "late": (flags & LATE) != 0,
            "conflict": (flags & CONFLICT) != 0,
            "index": codes[:, 3],
            "model": np.array(self._models, dtype=np.int64),
            "partition": np.full(count, partition, dtype=np.int32),
            "position": table.column("position").copy(),
        }
