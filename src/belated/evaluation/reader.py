"""The decisions of one partition as columns, while its records are folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Decision, Record
from belated.core.inputs import Interval
from belated.core.rewards import Rewards
from belated.core.tuning import Tuning
from belated.evaluation.table import NEVER, SOURCES
from belated.fold.ledger import Ledger, NullListener
from belated.fold.rules import State
from belated.fold.undone import Undone
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
        codes = np.array(
            [
                [actions.setdefault(one.action, len(actions)) for one in decided],
                [groups.setdefault(one.group, len(groups)) for one in decided],
                [_SOURCE_CODES[one.source] for one in decided],
                [one.index for one in decided],
            ],
            dtype=np.int32,
        )
        numbers = np.array(
            [
                [one.propensity for one in decided],
                [one.propensity if one.overall is None else one.overall for one in decided],
                [one.mean for one in decided],
            ],
            dtype=np.float64,
        )
        models = np.array([one.model for one in decided], dtype=np.int64)
        self._pages.append((codes, numbers, models))

    def columns(self, partition: int, start: int = 0, stop: int | None = None) -> dict[str, Any]:
        """Lines by the names of :class:`~belated.evaluation.JournalTable`; all by default."""
        lines = slice(start, len(self.ids) if stop is None else stop)
        table = self._table
        codes, numbers, models = (
            np.concatenate(parts, axis=-1)[..., lines] for parts in zip(*self._pages, strict=True)
        )
        recorded = table.column("recorded")[lines].copy()
        state, flags = table.column("state")[lines].copy(), table.column("flags")[lines]
        made = _changed(recorded.copy(), self._activated, lines)
        rewarded = _changed(np.full(len(made), NEVER, dtype=np.int64), self._rewarded, lines)
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


def _changed(column: NDArray[np.int64], by: dict[int, int], lines: slice) -> NDArray[np.int64]:
    """A column with the values of some lines replaced."""
    if by:
        numbers = np.fromiter(by.keys(), np.int64, len(by))
        values = np.fromiter(by.values(), np.int64, len(by))
        inside = (numbers >= lines.start) & (numbers < lines.stop)
        column[numbers[inside] - lines.start] = values[inside]
    return column
