"""What a report is made of, from one pass over a journal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from belated.advice import Evidence
from belated.advice.issues import Noticed, of_fields
from belated.core.events import (
    ActionChanged,
    Decision,
    ModeChanged,
    ModelChosen,
    Record,
    Reward,
    SubjectReward,
    Void,
)
from belated.core.inputs import Matrix, Vector
from belated.core.times import CLOCK_SKEW
from belated.evaluation import DelayCurve, Log
from belated.evaluation.delays import delay_curve
from belated.evaluation.log import DecisionLog
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES, DecisionTable, Mask, Times
from belated.exceptions import BelatedError
from belated.fold.contexts import RowEncoder, read_context
from belated.fold.rules import State
from belated.model.blocks import unblocked
from belated.model.estimators import Estimate
from belated.model.estimators.laplace import fit_rows
from belated.model.families import Family

T = TypeVar("T")

#: Numbers of rows that are held for the audit, at most.
NUMBERS = 4_000_000
#: Rewards without which nothing is audited.
FEW = 30
#: Decisions whose contexts are encoded again, to see which values are unknown or clipped.
LATEST = 1_000
#: Actions that are shown one by one.
ACTIONS = 12
#: Of a normal interval of 95 %.
Z = 1.959964
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

    encoder: RowEncoder
    rewards: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    care: dict[str, list[int]] = field(default_factory=dict)
    modes: list[dict[str, Any]] = field(default_factory=list)
    actions: dict[str, ActionChanged] = field(default_factory=dict)
    chosen: ModelChosen | None = None
    records: int = 0
    latest: deque[Decision] = field(default_factory=lambda: deque(maxlen=LATEST))
    backdated: list[tuple[str, int, int]] = field(default_factory=list)
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
                self.latest.append(event)
                self._seen += 1
                if not self._seen % self._every:
                    self._keep(record, event)
        elif isinstance(event, Reward | SubjectReward):
            self.rewards.append(record.recorded)
            known = status in ("rewarded", "late", "credited")
            self.lags.append(record.recorded - event.at_us if known else -1)
            if (kind := CARE.get(status)) is not None:
                self.care.setdefault(kind, []).append(record.recorded)
            self._check_time(record, event)
        elif isinstance(event, Void):
            self.care.setdefault("voided", []).append(record.recorded)
        elif isinstance(event, ModeChanged):
            who, why = event.actor, event.reason
            said = {"t": record.recorded // 1000, "mode": event.mode, "reason": why, "actor": who}
            self.modes.append(said)
        elif isinstance(event, ActionChanged):
            self.actions[event.action] = event
        elif isinstance(event, ModelChosen):
            self.chosen = event if event.model else None

    def _check_time(self, record: Record, event: Reward | SubjectReward) -> None:
        if event.at_us > record.recorded + CLOCK_SKEW:
            self.care.setdefault("future", []).append(record.recorded)
        elif isinstance(event, Reward) and event.at_us < record.recorded - CLOCK_SKEW:
            self.backdated.append((event.id, event.at_us, record.recorded))

    def finish(self, table: JournalTable) -> dict[str, Noticed]:
        """Count rewards that are dated before their decision; return what fields hold.

        The values of fields are those of the last decisions.
        """
        if self.backdated:
            made = dict(zip(table.ids.tolist(), table.at.tolist(), strict=True))
            early = [seen for id, at, seen in self.backdated if at + CLOCK_SKEW < made.get(id, at)]
            self.care |= {"early": early} if early else {}
        for decision in self.latest:
            stored = None if self.encoder.features is None else read_context(decision)
            if stored is not None:
                self.encoder.rows(stored.context, {decision.action: stored.record})
        return of_fields(self.encoder.features)

    def _keep(self, record: Record, decision: Decision) -> None:
        row = self.encoder.row(decision)
        if row is None:
            return
        self._places.append((record.partition, record.position))
        self._rows.append(row)
        if len(self._rows) * len(row) > NUMBERS:  # from now on half as many
            self._places, self._rows = self._places[1::2], self._rows[1::2]
            self._every *= 2

    def rows_of(self, table: JournalTable, blocks: int | None) -> tuple[NDArray[np.int64], Matrix]:
        """The lines whose chosen row was held, and these rows over all coefficients."""
        if not self._rows:
            return np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        order = np.lexsort((table.position, table.partition))
        known = _keys(table.partition[order], table.position[order])
        places = np.array(self._places, dtype=np.int64)
        wanted = _keys(places[:, 0], places[:, 1])
        found = np.searchsorted(known, wanted)
        return order[found], unblocked(np.array(self._rows), blocks)

    def take_frame(
        self, log: Log, table: JournalTable, blocks: int | None
    ) -> tuple[NDArray[np.int64], Matrix]:
        """Know the rewards of a frame; returns lines, and their chosen rows, as :meth:`rows_of`."""
        self.rewards = table.rewarded[table.arrived].tolist()
        self.lags = [-1] * len(self.rewards)  # it does not say when rewards happened
        self.records = len(table) + len(self.rewards)
        width = log.features.dim // (blocks or 1)
        lines = np.arange(len(table))[:: max(1, -(-len(table) * width // NUMBERS))]
        return lines, unblocked(log.chosen_rows(table.select(lines)), blocks)


def _keys(partition: NDArray[Any], position: NDArray[Any]) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (partition.astype(np.int64) << 48) + position
    return keys


@dataclass(frozen=True, eq=False)
class Facts:
    """All that the parts of a report read.

    Attributes:
        log: the decisions, where they are.
        everything: all decisions, those that were voided too.
        table: the decisions that took effect.
        watched: the records beside them.
        calendar: the periods.
        estimate: what the bandit has learned, if that is known.
        evidence: what its checks look at, if that is known.
        curve: of the delays; None before the first reward.
        lines: of ``table`` whose chosen row is known.
        rows: the chosen rows of these.
        fields: values of the last decisions that are unknown or clipped.
    """

    log: DecisionLog
    everything: JournalTable
    table: JournalTable
    watched: Watched
    calendar: Calendar
    estimate: Estimate | None
    evidence: Evidence | None
    curve: DelayCurve | None
    lines: NDArray[np.int64]
    rows: Matrix
    fields: dict[str, Noticed] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        log: DecisionLog,
        estimate: Estimate | None = None,
        evidence: Evidence | None = None,
    ) -> Facts:
        """Read a log once."""
        watched = Watched(RowEncoder(log.features))
        everything = log.table(watched.take)
        blocks = getattr(log.features, "blocks", None)
        if isinstance(log, Log):
            lines, rows = watched.take_frame(log, everything, blocks)
        else:
            lines, rows = watched.rows_of(everything, blocks)
        live = np.isin(everything.state, _DEAD, invert=True)
        place = np.cumsum(live) - 1
        kept = live[lines]
        table = everything.select(live)
        curve = delay_curve(table) if table.arrived.any() else None
        fields = watched.finish(everything)
        return cls(
            log, everything, table, watched, Calendar.of(everything), estimate, evidence,
            curve, place[lines[kept]], rows[kept], fields,
        )  # fmt: skip

    @property
    def period(self) -> NDArray[np.int64]:
        """The period of each decision."""
        return self.calendar.place(self.table.made)

    @property
    def held(self) -> Mask:
        """Which decisions are of the holdout."""
        return self.table.in_group("holdout")

    @property
    def own(self) -> Mask:
        """Which decisions are the bandit's: of its group, or made by its policy."""
        if "bandit" in self.table.groups:
            return self.table.in_group("bandit")
        found: Mask = self.table.source == SOURCES.index("policy")
        return found

    @property
    def base(self) -> float:
        """What a missing reward comes to."""
        return self.table.rewards.default if self.table.conversions else 0.0

    @cached_property
    def outcome(self) -> Vector:
        """What each decision has brought so far, beyond :attr:`base`."""
        table = self.table
        return np.where(table.arrived, table.value - self.base, 0.0)

    @cached_property
    def exposure(self) -> Vector:
        """How much of its reward each decision can have brought by its age."""
        table = self.table
        if not table.conversions or self.curve is None:
            return table.arrived.astype(np.float64)
        return self.curve.come_by(table.age)

    @property
    def arms(self) -> list[tuple[str, Mask]]:
        """The groups that have decisions, each with its decisions."""
        both = (("Bandit", self.own), ("Holdout", self.held))
        return [(name, mask) for name, mask in both if mask.any()]

    @property
    def least(self) -> float:
        """The least reward per decision."""
        return 0.0 if self.log.family.support.lower >= 0.0 else -math.inf

    def ratio(self, which: Mask) -> tuple[float, float]:
        """The reward per decision, and its standard error; not numbers if none is old enough.

        A decision counts with the share of its reward that has come by its age, so that young ones
        are neither left out nor taken for failures. That share is of the delay curve, so delays are
        taken to be alike; for the whole time, :func:`belated.evaluation.lifts.earned` needs no such
        assumption.
        """
        outcome, exposure = self.outcome[which], self.exposure[which]
        total = float(exposure.sum())
        if total <= 0.0:
            return math.nan, math.nan
        mean = float(outcome.sum()) / total
        spread = float(np.square(outcome - mean * exposure).sum())
        return self.base + mean, math.sqrt(max(spread, self._one)) / total

    @cached_property
    def _one(self) -> float:
        """The square of one reward: where none has come the error is that of one, not zero."""
        came = self.table.arrived
        return float(np.square(self.outcome[came]).mean()) if came.any() else 0.0

    def row(self, which: Mask) -> dict[str, Any]:
        """The reward per decision with its interval, as a row of data."""
        return {**around(*self.ratio(which), self.least), "n": int(which.sum())}

    @cached_property
    def auditor(self) -> Auditor | None:
        """A fit of all decisions; None if there is too little to fit, or too much to learn."""
        few = self.table.arrived.sum() < FEW or not len(self.rows)
        if few or self.rows.shape[1] > WIDEST:
            return None
        exposure, outcome = self.exposure[self.lines], self.outcome[self.lines]
        used = exposure > 0.0
        rows, exposure, outcome = self.rows[used], exposure[used], outcome[used]
        base, family = self.base, self.log.family
        theta = fit_rows(rows, base + outcome / exposure, exposure, family, RIDGE)
        _, mean, slope = family.cumulant_mean_slope(rows @ theta)
        residual = np.square(outcome - exposure * (mean - base))
        ridge = RIDGE * np.eye(len(theta))
        inverse = np.linalg.inv((rows.T * (exposure * slope)) @ rows + ridge)
        covariance = inverse @ ((rows.T * residual) @ rows + ridge) @ inverse
        return Auditor(theta, (covariance + covariance.T) / 2, family)

    @property
    def actions(self) -> list[str]:
        """Names of the actions, those with the most decisions of the bandit first."""
        counts = np.bincount(self.table.action[self.own], minlength=len(self.table.actions))
        order = np.argsort(-counts, kind="stable")
        return [str(self.table.actions[place]) for place in order]


def if_known(estimate: Callable[..., T], *given: Any) -> T | None:
    """An estimate; None if too little is known for it."""
    try:
        return estimate(*given)
    except BelatedError:
        return None


def code_of(facts: Facts, name: str) -> int:
    """The number of an action in the table."""
    return [str(one) for one in facts.table.actions].index(name)


def short(number: float, digits: int = 6) -> float | None:
    """A number with few digits; None if it is not finite.

    >>> short(0.12345678), short(float("nan")), short(123456.789, 3)
    (0.123457, None, 123457.0)
    """
    if not math.isfinite(number):
        return None
    if not number:
        return 0.0
    return round(float(number), max(0, digits - 1 - math.floor(math.log10(abs(number)))))


def interval(
    value: float, low: float, high: float, *, digits: int = 6, key: str = "p"
) -> dict[str, Any]:
    """A value with the ends of its interval."""
    return {key: short(value, digits), "lo": short(low, digits), "hi": short(high, digits)}


def around(value: float, error: float, least: float = -math.inf, **written: Any) -> dict[str, Any]:
    """A value with a normal interval, which does not go below ``least``."""
    return interval(value, max(value - Z * error, least), value + Z * error, **written)


SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
#: How long a period may be, and what it is called.
LENGTHS = (
    (SECOND, "second"),
    (10 * SECOND, "10 seconds"),
    (MINUTE, "minute"),
    (10 * MINUTE, "10 minutes"),
    (HOUR, "hour"),
    (6 * HOUR, "6 hours"),
    (DAY, "day"),
    (7 * DAY, "week"),
    (28 * DAY, "4 weeks"),
)
#: Periods of a report, at most; and how many of them are recent.
PERIODS, RECENT = 62, 7


@dataclass(frozen=True)
class Calendar:
    """The periods of a report.

    Attributes:
        start: of the first, in microseconds since 1970.
        step: how long each is.
        count: how many there are.
        name: what one is called.
    """

    start: int
    step: int
    count: int
    name: str

    @classmethod
    def of(cls, table: DecisionTable) -> Calendar:
        """The periods of all decisions: as short as can be shown.

        >>> none, made = [None] * 2, ["2026-01-01T00:00Z", "2026-01-30T00:00Z"]
        >>> table = DecisionTable.of(made=made, rewarded=none, value=none)
        >>> Calendar.of(table).count, Calendar.of(table).name
        (30, 'day')
        """
        first = int(table.made.min(initial=table.as_of))
        for step, name in LENGTHS:
            start = first // step * step
            count = (table.as_of - start) // step + 1
            if count <= PERIODS or step == LENGTHS[-1][0]:
                return cls(start, step, count, name)
        raise AssertionError

    def place(self, times: Times) -> NDArray[np.int64]:
        """The number of the period of each time."""
        found: NDArray[np.int64] = np.clip((times - self.start) // self.step, 0, self.count - 1)
        return found

    def counts(self, times: Times) -> Vector:
        """How many times are in each period."""
        return np.bincount(self.place(times), minlength=self.count).astype(np.float64)

    def ms(self, period: int) -> int:
        """When a period starts, in milliseconds since 1970."""
        return (self.start + period * self.step) // 1000

    @property
    def recent(self) -> int:
        """The first of the recent periods."""
        return max(self.count - RECENT, 0)


#: Precision of the prior.
RIDGE = 0.3
#: Features that are fitted, at most.
WIDEST = 400


@dataclass(frozen=True, eq=False)
class Auditor:
    """What was fitted.

    Attributes:
        theta: the coefficients.
        covariance: of them.
        family: of the rewards.
    """

    theta: Vector
    covariance: Matrix
    family: Family

    def means(self, rows: Matrix, theta: Vector | None = None) -> Vector:
        """What rows are worth."""
        return self.family.mean(rows @ (self.theta if theta is None else theta))

    def draws(self, count: int) -> Matrix:
        """Coefficients as they might be."""
        rng = np.random.default_rng(0)
        return rng.multivariate_normal(self.theta, self.covariance, count, method="eigh")
