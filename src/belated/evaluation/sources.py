"""Read the decisions of a journal into a table, in one pass over its records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Decision, Erased, Record
from belated.core.inputs import MAX_REWARD, Interval
from belated.core.rewards import Rewards
from belated.core.tuning import Tuning
from belated.evaluation.columns import NEVER
from belated.evaluation.table import SOURCES, DecisionTable, Times
from belated.exceptions import InvalidInput
from belated.fold.ledger import Ledger, NullListener
from belated.fold.rules import State
from belated.fold.table import NONE
from belated.fold.undone import Undone
from belated.journals import Journal
from belated.journals.identity import semantics_of
from belated.journals.pages import pages
from belated.model.kernels.pages import CONFLICT, LATE

#: Called with each record and the status that the ledger gave it.
Watch = Callable[[Record, str], None]
#: Keep forgotten decisions in the ledger, because they are evaluated too.
_ALL = Tuning(dropped=1 << 62)
_SOURCE_CODES = {name: code for code, name in enumerate(SOURCES)}


def ledger_of(
    rewards: Rewards, retention: int | None, support: Interval, undone: Undone | None
) -> Ledger:
    """Return an empty ledger without a learner, whose decision numbers are row numbers."""
    low, high = rewards.range(support)
    ledger = Ledger(
        rewards,
        NullListener(),
        min_reward=low,
        max_reward=high,
        retention=retention,
        tuning=_ALL,
    )
    ledger.undone = undone
    return ledger


class PartitionReader:
    """Collects the decisions of a partition; a decision's number in the ledger is its row number.

    Args:
        ledger: an empty ledger from :func:`ledger_of`.
        actions: codes of the actions, shared by all partitions.
        groups: codes of the groups, shared by all partitions.
    """

    def __init__(
        self, ledger: Ledger, actions: dict[int | str, int], groups: dict[str, int]
    ) -> None:
        self.ledger = ledger
        self.ids: list[str] = []
        self._table = ledger.changes.table
        self.actions, self.groups = actions, groups
        # The codes, numbers and models of the decisions, one tuple per page.
        self._pages: list[tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]] = []
        self._activated: dict[int, int] = {}
        self._rewarded: dict[int, int] = {}
        self.enter([])  # an empty partition has columns too

    def take(self, page: list[Record], watch: Watch | None = None) -> None:
        """Fold a page of records; ``watch`` is called with each record and its status."""
        decided: list[Decision] = []
        for record in page:
            status = self.take_one(record, decided)
            if watch is not None:
                watch(record, status)
        self.enter(decided)

    def take_one(self, record: Record, decided: list[Decision]) -> str:
        """Fold one record; a new decision is appended to ``decided``, for :meth:`enter`."""
        ledger = self.ledger
        status = ledger.fold(record)
        if status == "decided":
            decided.append(record.event)  # type: ignore[arg-type]
            number = self._table.next - 1
            if self._table.state[number] == State.REWARDED:  # the reward arrived first
                self._rewarded[number] = record.recorded
        elif status == "rewarded" or status == "late":
            self._rewarded[ledger.find(record.event.id)] = record.recorded  # type: ignore[union-attr]
        elif status == "activated":
            self._activated[ledger.find(record.event.id)] = record.recorded  # type: ignore[union-attr]
        return status

    def enter(self, decided: list[Decision]) -> None:
        """Add the columns of new decisions, a page at a time."""
        actions, groups = self.actions, self.groups
        self.ids += [decision.id for decision in decided]
        codes = [
            [actions.setdefault(decision.action, len(actions)) for decision in decided],
            [groups.setdefault(decision.group, len(groups)) for decision in decided],
            [_SOURCE_CODES[decision.source] for decision in decided],
            [decision.index for decision in decided],
        ]
        numbers = [
            [decision.propensity for decision in decided],
            [_overall(decision) for decision in decided],
            [decision.mean for decision in decided],
        ]
        models = np.array([decision.model for decision in decided], np.int64)
        self._pages.append((np.array(codes, np.int32), np.array(numbers, np.float64), models))

    def table(self, columns: dict[str, Any], as_of: int, retention: int | None) -> JournalTable:
        """Return columns as a table, with the actions and groups known so far."""
        return JournalTable(
            **columns,
            actions=tuple(self.actions) or ("",),
            groups=tuple(self.groups) or ("",),
            as_of=as_of,
            rewards=self.ledger.rewards,
            retention=retention,
        )

    def columns(self, partition: int, start: int = 0, stop: int | None = None) -> dict[str, Any]:
        """Return the columns of :class:`JournalTable` for a range of rows; default: all rows."""
        lines = slice(start, len(self.ids) if stop is None else stop)
        table = self._table
        codes, numbers, models = (
            np.concatenate(parts, axis=-1)[..., lines] for parts in zip(*self._pages, strict=True)
        )
        recorded = table.column("recorded")[lines].copy()
        state, flags = table.column("state")[lines].copy(), table.column("flags")[lines]
        effective = _changed(recorded.copy(), self._activated, lines)
        rewarded = _changed(np.full(len(effective), NEVER, dtype=np.int64), self._rewarded, lines)
        reported = table.column("reward_recorded")[lines]  # includes subject rewards
        earlier = (reported != NONE) & ((rewarded == NEVER) | (reported < rewarded))
        rewarded[earlier] = reported[earlier]
        rewarded[state != State.REWARDED] = NEVER
        arrived = rewarded != NEVER
        rewarded[arrived] = np.maximum(rewarded[arrived], effective[arrived])
        has_value = (state == State.REWARDED) | (state == State.DEFAULTED)
        ids = np.empty(len(effective), dtype=object)
        ids[:] = self.ids[lines]
        return {
            "made": effective,
            "rewarded": rewarded,
            "value": np.where(has_value, table.column("value")[lines], np.nan),
            "state": state,
            "action": codes[0],
            "group": codes[1],
            "source": codes[2].astype(np.uint8),
            "propensity": numbers[0],
            "overall": numbers[1],
            "mean": numbers[2],
            "ids": ids,
            "recorded": recorded,
            "at": table.column("at")[lines].copy(),
            "late": (flags & LATE) != 0,
            "conflict": (flags & CONFLICT) != 0,
            "index": codes[3],
            "model": models,
            "partition": np.full(len(effective), partition, dtype=np.int32),
            "position": table.column("position")[lines].copy(),
        }


def _overall(decision: Decision) -> float:
    """Return the probability of an action over all groups; NaN if unknown."""
    if decision.overall is not None:
        return decision.overall
    return math.nan if decision.source == "holdout" else decision.propensity


def _changed(column: NDArray[np.int64], by: dict[int, int], lines: slice) -> NDArray[np.int64]:
    """Replace the values of the rows in ``by``; return the column."""
    if by:
        numbers = np.fromiter(by.keys(), np.int64, len(by))
        values = np.fromiter(by.values(), np.int64, len(by))
        inside = (numbers >= lines.start) & (numbers < lines.stop)
        column[numbers[inside] - lines.start] = values[inside]
    return column


#: The range of all valid rewards.
EVERY = Interval(-MAX_REWARD, MAX_REWARD)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class JournalTable(DecisionTable):
    """Decisions of a journal, in the order in which they were recorded.

    Attributes:
        ids: decision ids.
        recorded: when the journal recorded each decision.
        at: when the decision was made, by the clock of the deciding process.
        late: whether the reward arrived after the window.
        conflict: whether another record contradicts the decision.
        index: index of the chosen action among the offered actions.
        model: version of the model that chose the action.
        partition: partition of the decision in the journal.
        position: position of the decision within the partition.
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
        """Return the rows ordered by the time at which they were recorded."""
        if (np.diff(self.recorded) >= 0).all():  # always true with one partition
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
    """Return the decisions of a journal with their outcomes, except trimmed decisions.

    The table is as of the last record. It takes about 400 bytes of memory per decision; rows and
    contexts stay in the journal.

    Args:
        journal: the journal to read.
        rewards: what a missing reward means; by default, the meaning recorded in the journal.
        retention: how long a decision accepts rewards, in microseconds; used with ``rewards``.
        support: the range of valid rewards; rewards outside it are ignored.
        until: ignore records with a later timestamp.
        step: called with the number of records read.
        watch: called with each record and its status.

    Raises:
        InvalidInput: ``rewards`` is None, and the journal does not record what a missing reward
            means.
    """
    configured = journal.configured()
    if rewards is None:
        if configured is None:
            message = f"the journal of {journal.bandit!r} does not record what a missing reward"
            raise InvalidInput(f"{message} means: pass `rewards`", None)
        rewards, retention = semantics_of(configured.settings)
    actions: dict[int | str, int] = {}
    groups: dict[str, int] = {}
    parts, as_of = [], 0
    for partition in range(journal.partitions):
        undone = Undone.of(_undoing(journal, partition, until))
        ledger = ledger_of(rewards, retention, support, undone)
        reader = PartitionReader(ledger, actions, groups)
        for records in pages(journal, partition):
            page = [record for record in records if until is None or record.recorded <= until]
            if not page:
                break
            reader.take(page, watch)
            as_of = max(as_of, page[-1].recorded)
            step(len(page))
        parts.append(reader.columns(partition))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    baseline = None if configured is None else configured.settings.get("holdout")
    return replace(reader.table(columns, as_of, retention).sorted(), baseline=baseline)


def _undoing(journal: Journal, partition: int, until: int | None) -> list[Record]:
    records = journal.undone(partition)
    if until is None:
        return records
    return [
        record for record in records if record.recorded <= until or isinstance(record.event, Erased)
    ]
