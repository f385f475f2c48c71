"""The decisions of a journal as a table, from one fold of its records."""

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

#: Is told of a record, and what it meant.
Watch = Callable[[Record, str], None]
#: Nothing leaves the ledger: what was forgotten is evaluated too.
_ALL = Tuning(dropped=1 << 62)
_SOURCE_CODES = {name: code for code, name in enumerate(SOURCES)}


def ledger_of(
    rewards: Rewards, retention: int | None, support: Interval, undone: Undone | None
) -> Ledger:
    """Return an empty ledger that learns nothing, and whose numbers are those of the lines."""
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
    """What a partition's records say of each decision; its number in the ledger is its line.

    Args:
        ledger: from :func:`ledger_of`.
        actions: codes of actions, shared by all partitions.
        groups: codes of groups, likewise.
    """

    def __init__(
        self, ledger: Ledger, actions: dict[int | str, int], groups: dict[str, int]
    ) -> None:
        self.ledger = ledger
        self.ids: list[str] = []
        self._table = ledger.changes.table
        self.actions, self.groups = actions, groups
        # A page at a time: codes, numbers and models of its decisions.
        self._pages: list[tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]] = []
        self._activated: dict[int, int] = {}
        self._rewarded: dict[int, int] = {}
        self.enter([])  # so that there are columns of an empty partition

    def take(self, page: list[Record], watch: Watch | None = None) -> None:
        """Fold some records; ``watch`` is told what each of them meant."""
        decided: list[Decision] = []
        for record in page:
            status = self.take_one(record, decided)
            if watch is not None:
                watch(record, status)
        self.enter(decided)

    def take_one(self, record: Record, decided: list[Decision]) -> str:
        """Fold one record; a new decision is added to a list, for :meth:`enter`."""
        ledger = self.ledger
        status = ledger.fold(record)
        if status == "decided":
            decided.append(record.event)  # type: ignore[arg-type]
            number = self._table.next - 1
            if self._table.state[number] == State.REWARDED:  # its reward came before it
                self._rewarded[number] = record.recorded
        elif status == "rewarded" or status == "late":
            self._rewarded[ledger.find(record.event.id)] = record.recorded  # type: ignore[union-attr]
        elif status == "activated":
            self._activated[ledger.find(record.event.id)] = record.recorded  # type: ignore[union-attr]
        return status

    def enter(self, decided: list[Decision]) -> None:
        """Note what new decisions were, all of a page at once."""
        actions, groups = self.actions, self.groups
        self.ids += [one.id for one in decided]
        codes = [
            [actions.setdefault(one.action, len(actions)) for one in decided],
            [groups.setdefault(one.group, len(groups)) for one in decided],
            [_SOURCE_CODES[one.source] for one in decided],
            [one.index for one in decided],
        ]
        numbers = [
            [one.propensity for one in decided],
            [_overall(one) for one in decided],
            [one.mean for one in decided],
        ]
        models = np.array([one.model for one in decided], np.int64)
        self._pages.append((np.array(codes, np.int32), np.array(numbers, np.float64), models))

    def table(self, columns: dict[str, Any], as_of: int, retention: int | None) -> JournalTable:
        """Return columns as a table, with the names of actions and groups so far."""
        return JournalTable(
            **columns,
            actions=tuple(self.actions) or ("",),
            groups=tuple(self.groups) or ("",),
            as_of=as_of,
            rewards=self.ledger.rewards,
            retention=retention,
        )

    def columns(self, partition: int, start: int = 0, stop: int | None = None) -> dict[str, Any]:
        """Lines by the names of :class:`JournalTable`; all by default."""
        lines = slice(start, len(self.ids) if stop is None else stop)
        table = self._table
        codes, numbers, models = (
            np.concatenate(parts, axis=-1)[..., lines] for parts in zip(*self._pages, strict=True)
        )
        recorded = table.column("recorded")[lines].copy()
        state, flags = table.column("state")[lines].copy(), table.column("flags")[lines]
        made = _changed(recorded.copy(), self._activated, lines)
        rewarded = _changed(np.full(len(made), NEVER, dtype=np.int64), self._rewarded, lines)
        told = table.column("reward_recorded")[lines]  # also if it is of a subject
        earlier = (told != NONE) & ((rewarded == NEVER) | (told < rewarded))
        rewarded[earlier] = told[earlier]
        rewarded[state != State.REWARDED] = NEVER
        came = rewarded != NEVER
        rewarded[came] = np.maximum(rewarded[came], made[came])
        known = (state == State.REWARDED) | (state == State.DEFAULTED)
        ids = np.empty(len(made), dtype=object)
        ids[:] = self.ids[lines]
        return {
            "made": made,
            "rewarded": rewarded,
            "value": np.where(known, table.column("value")[lines], np.nan),
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
            "partition": np.full(len(made), partition, dtype=np.int32),
            "position": table.column("position")[lines].copy(),
        }


def _overall(decision: Decision) -> float:
    """Return the probability of an action over all groups; NaN if it is not known."""
    if decision.overall is not None:
        return decision.overall
    return math.nan if decision.source == "holdout" else decision.propensity


def _changed(column: NDArray[np.int64], by: dict[int, int], lines: slice) -> NDArray[np.int64]:
    """A column with the values of some lines replaced."""
    if by:
        numbers = np.fromiter(by.keys(), np.int64, len(by))
        values = np.fromiter(by.values(), np.int64, len(by))
        inside = (numbers >= lines.start) & (numbers < lines.stop)
        column[numbers[inside] - lines.start] = values[inside]
    return column


#: Every reward there can be.
EVERY = Interval(-MAX_REWARD, MAX_REWARD)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
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
    configured = journal.configured()
    if rewards is None:
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
    found = journal.undone(partition)
    if until is None:
        return found
    return [one for one in found if one.recorded <= until or isinstance(one.event, Erased)]
