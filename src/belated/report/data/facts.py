"""What a report is made of, from one pass over a journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.advice import Evidence
from belated.estimators import Estimate
from belated.evaluation import DecisionTable, DelayCurve, JournalTable, delay_curve
from belated.evaluation.journal import JournalEvaluation
from belated.evaluation.table import SOURCES, Mask
from belated.events import Decision, ModeChanged, Record, Reward, Void
from belated.inputs import Matrix, Vector
from belated.ledger import State
from belated.report.data.calendar import Calendar

#: Numbers of rows that are held for the audit, at most.
NUMBERS = 4_000_000
#: States that count nowhere.
_DEAD = (State.VOIDED, State.DORMANT)
#: Events that need care, by their statuses in the ledger.
CARE = {
    "duplicate": "duplicate",
    "conflict": "conflict",
    "late": "late",
    "revised": "revised",
    "superseded": "revised",
    "unmatched": "unmatched",
    "expired": "expired",
    "invalid": "invalid",
    "over_limit": "invalid",
}


@dataclass
class Watched:
    """What is told of every record, beyond the table of decisions."""

    rewards: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    care: dict[str, list[int]] = field(default_factory=dict)
    modes: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    _every: int = 1
    _seen: int = 0
    _places: list[tuple[int, int]] = field(default_factory=list)
    _rows: list[NDArray[np.float32]] = field(default_factory=list)

    def take(self, record: Record, status: str) -> None:
        """A record, and what it meant."""
        self.records += 1
        event = record.event
        if isinstance(event, Decision):
            if status == "decided":
                self._seen += 1
                if not self._seen % self._every:
                    self._keep(record, event)
        elif isinstance(event, Reward):
            self.rewards.append(record.recorded)
            if status in ("rewarded", "late"):
                self.lags.append(record.recorded - event.at_us)
            else:
                self.lags.append(-1)
            if (kind := CARE.get(status)) is not None:
                self.care.setdefault(kind, []).append(record.recorded)
        elif isinstance(event, Void):
            self.care.setdefault("voided", []).append(record.recorded)
        elif isinstance(event, ModeChanged):
            who, why = event.actor, event.reason
            said = {"t": record.recorded // 1000, "mode": event.mode, "reason": why, "actor": who}
            self.modes.append(said)

    def _keep(self, record: Record, decision: Decision) -> None:
        self._places.append((record.partition, record.position))
        self._rows.append(decision.x)
        if len(self._rows) * len(decision.x) > NUMBERS:  # from now on half as many
            self._places, self._rows = self._places[1::2], self._rows[1::2]
            self._every *= 2

    def rows_of(self, table: JournalTable) -> tuple[NDArray[np.int64], Matrix]:
        """The lines whose chosen row was held, and these rows."""
        if not self._rows:
            return np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        width = max(map(len, self._rows))
        rows = np.zeros((len(self._rows), width), dtype=np.float32)
        for place, row in enumerate(self._rows):  # those of before the features grew are shorter
            rows[place, : len(row)] = row
        order = np.lexsort((table.position, table.partition))
        known = _keys(table.partition[order], table.position[order])
        places = np.array(self._places, dtype=np.int64)
        wanted = _keys(places[:, 0], places[:, 1])
        found = np.searchsorted(known, wanted)
        return order[found], rows.astype(np.float64)


def _keys(partition: NDArray[Any], position: NDArray[Any]) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (partition.astype(np.int64) << 48) + position
    return keys


@dataclass(frozen=True, eq=False)
class Facts:
    """All that the parts of a report read.

    Attributes:
        evaluation: of the journal.
        everything: all decisions, those that were voided too.
        table: the decisions that took effect.
        watched: the records beside them.
        calendar: the periods.
        estimate: what the bandit has learned, if that is known.
        evidence: what its checks look at, if that is known.
        curve: of the delays; None before the first reward.
        lines: of ``table`` whose chosen row is known.
        rows: the chosen rows of these.
    """

    evaluation: JournalEvaluation
    everything: JournalTable
    table: JournalTable
    watched: Watched
    calendar: Calendar
    estimate: Estimate | None
    evidence: Evidence | None
    curve: DelayCurve | None
    lines: NDArray[np.int64]
    rows: Matrix

    @classmethod
    def read(
        cls,
        evaluation: JournalEvaluation,
        estimate: Estimate | None = None,
        evidence: Evidence | None = None,
    ) -> Facts:
        """Read a journal once."""
        watched = Watched()
        everything = evaluation.table(watched.take)
        lines, rows = watched.rows_of(everything)
        live = np.isin(everything.state, _DEAD, invert=True)
        place = np.cumsum(live) - 1
        kept = live[lines]
        table = everything.select(live)
        curve = delay_curve(table) if table.arrived.any() else None
        return cls(
            evaluation, everything, table, watched, Calendar.of(everything), estimate, evidence,
            curve, place[lines[kept]], rows[kept],
        )  # fmt: skip

    @property
    def period(self) -> NDArray[np.int64]:
        """The period of each decision."""
        return self.calendar.place(self.table.made)

    @property
    def held(self) -> Mask:
        """Which decisions are of the holdout."""
        return _in_group(self.table, "holdout")

    @property
    def own(self) -> Mask:
        """Which decisions are the bandit's: of its group, or made by its policy."""
        if "bandit" in self.table.groups:
            return _in_group(self.table, "bandit")
        found: Mask = self.table.source == SOURCES.index("policy")
        return found

    @property
    def base(self) -> float:
        """What a missing reward comes to."""
        return self.table.rewards.default if self.table.conversions else 0.0

    @property
    def outcome(self) -> Vector:
        """What each decision has brought so far, beyond :attr:`base`."""
        table = self.table
        return np.where(table.arrived, table.value - self.base, 0.0)

    @property
    def exposure(self) -> Vector:
        """How much of its reward each decision can have brought by its age."""
        table = self.table
        if not table.conversions or self.curve is None:
            return table.arrived.astype(np.float64)
        return self.curve.come_by(table.age)

    @property
    def actions(self) -> list[str]:
        """Names of the actions, those with the most decisions of the bandit first."""
        counts = np.bincount(self.table.action[self.own], minlength=len(self.table.actions))
        order = np.argsort(-counts, kind="stable")
        return [str(self.table.actions[place]) for place in order]


def _in_group(table: DecisionTable, name: str) -> Mask:
    found: Mask = table.group == (table.groups.index(name) if name in table.groups else -1)
    return found
