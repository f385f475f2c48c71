"""The data behind a report, from one pass over a journal."""

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

#: Maximum number of values in the rows sampled for the auditor.
NUMBERS = 4_000_000
#: Minimum number of rewards for the auditor.
FEW = 30
#: Number of recent decisions whose contexts are encoded again to find unknown or clipped values.
LATEST = 1_000
#: Maximum number of actions shown separately.
ACTIONS = 12
#: Normal quantile of a 95% interval.
Z = 1.959964
#: States of decisions that are not counted.
_DEAD = (State.VOIDED, State.DORMANT)
#: Issues with reward messages, by their status in the ledger.
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
    """Collects what a report needs from each record, beyond the table of decisions.

    Attributes:
        encoder: encodes contexts as rows.
        rewards: when each reward message was recorded, in microseconds since 1970.
        lags: time between each reward and its record, in microseconds; -1 if unknown.
        care: indices into ``rewards`` of the reward messages with each kind of issue.
        voids: when decisions were voided.
        modes: changes of the mode.
        actions: last change of each action that was paused, resumed or retired.
        chosen: the pinned model, if any.
        records: number of records.
        latest: the most recent decisions.
        backdated: index, decision id and time of each reward message that may be dated before its
            decision.
    """

    encoder: RowEncoder
    rewards: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    care: dict[str, list[int]] = field(default_factory=dict)
    voids: list[int] = field(default_factory=list)
    modes: list[dict[str, Any]] = field(default_factory=list)
    actions: dict[str, ActionChanged] = field(default_factory=dict)
    chosen: ModelChosen | None = None
    records: int = 0
    latest: deque[Decision] = field(default_factory=lambda: deque(maxlen=LATEST))
    backdated: list[tuple[int, str, int]] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0
    _places: list[tuple[int, int]] = field(default_factory=list)
    _rows: list[NDArray[np.float32]] = field(default_factory=list)

    def take(self, record: Record, status: str) -> None:
        """Collect data from one record, given its status in the ledger."""
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
            has_reward = status in ("rewarded", "late", "credited")
            self.lags.append(record.recorded - event.at_us if has_reward else -1)
            if (kind := CARE.get(status)) is not None:
                self._note(kind)
            self._check_time(record, event)
        elif isinstance(event, Void):
            self.voids.append(record.recorded)
        elif isinstance(event, ModeChanged):
            author, why = event.actor, event.reason
            change = {
                "t": record.recorded // 1000,
                "mode": event.mode,
                "reason": why,
                "actor": author,
            }
            self.modes.append(change)
        elif isinstance(event, ActionChanged):
            self.actions[event.action] = event
        elif isinstance(event, ModelChosen):
            self.chosen = event if event.model else None

    def _note(self, kind: str) -> None:
        """Note an issue with the last reward message."""
        self.care.setdefault(kind, []).append(len(self.rewards) - 1)

    def _check_time(self, record: Record, event: Reward | SubjectReward) -> None:
        if event.at_us > record.recorded + CLOCK_SKEW:
            self._note("future")
        elif isinstance(event, Reward) and event.at_us < record.recorded - CLOCK_SKEW:
            self.backdated.append((len(self.rewards) - 1, event.id, event.at_us))

    def finish(self, table: JournalTable) -> dict[str, Noticed]:
        """Find rewards dated before their decision; return the unknown and clipped field values.

        Only the most recent decisions are checked for such values.
        """
        if self.backdated:
            decided = dict(zip(table.ids.tolist(), table.at.tolist(), strict=True))
            early = [n for n, id, at in self.backdated if at + CLOCK_SKEW < decided.get(id, at)]
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
        if len(self._rows) * len(row) > NUMBERS:  # halve the sampling rate
            self._places, self._rows = self._places[1::2], self._rows[1::2]
            self._every *= 2

    def rows_of(self, table: JournalTable, blocks: int | None) -> tuple[NDArray[np.int64], Matrix]:
        """Return the indices of decisions whose row was sampled, and the full rows."""
        if not self._rows:
            return np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        order = np.lexsort((table.position, table.partition))
        existing = _keys(table.partition[order], table.position[order])
        places = np.array(self._places, dtype=np.int64)
        keys = _keys(places[:, 0], places[:, 1])
        indices = np.searchsorted(existing, keys)
        return order[indices], unblocked(np.array(self._rows), blocks)

    def take_frame(
        self, log: Log, table: JournalTable, blocks: int | None
    ) -> tuple[NDArray[np.int64], Matrix]:
        """Read the rewards of a log from a data frame; return the same as :meth:`rows_of`."""
        self.rewards = table.rewarded[table.arrived].tolist()
        self.lags = [-1] * len(self.rewards)  # a data frame has no event times
        self.records = len(table) + len(self.rewards)
        width = log.features.dim // (blocks or 1)
        lines = np.arange(len(table))[:: max(1, -(-len(table) * width // NUMBERS))]
        return lines, unblocked(log.chosen_rows(table.select(lines)), blocks)


def _keys(partition: NDArray[Any], position: NDArray[Any]) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (partition.astype(np.int64) << 48) + position
    return keys


@dataclass(frozen=True, eq=False)
class Facts:
    """The data that all parts of a report share.

    Attributes:
        log: the log of decisions.
        everything: all decisions, including those that were voided.
        table: decisions that took effect.
        watched: rewards, mode changes and rows collected while the journal was read.
        calendar: periods of the report.
        estimate: the model's estimate, if known.
        evidence: evidence for the checks, if known.
        curve: delay curve; None before the first reward.
        lines: indices of the decisions in ``table`` whose chosen row is known.
        rows: the chosen rows of these decisions.
        fields: unknown and clipped field values in the most recent decisions.
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
        """Read a log in one pass."""
        watched = Watched(RowEncoder(log.features))
        full = log.table(watched.take)
        blocks = getattr(log.features, "blocks", None)
        if isinstance(log, Log):
            lines, rows = watched.take_frame(log, full, blocks)
        else:
            lines, rows = watched.rows_of(full, blocks)
        live = np.isin(full.state, _DEAD, invert=True)
        place = np.cumsum(live) - 1
        usable = live[lines]
        table = full.select(live)
        curve = delay_curve(table) if table.arrived.any() else None
        fields = watched.finish(full)
        return cls(
            log, full, table, watched, Calendar.of(full), estimate, evidence,
            curve, place[lines[usable]], rows[usable], fields,
        )  # fmt: skip

    @property
    def period(self) -> NDArray[np.int64]:
        """Period of each decision."""
        return self.calendar.place(self.table.made)

    @property
    def held(self) -> Mask:
        """Mask of the decisions in the holdout."""
        return self.table.in_group("holdout")

    @property
    def own(self) -> Mask:
        """Mask of the bandit's decisions: those in its group, or those made by its policy."""
        if "bandit" in self.table.groups:
            return self.table.in_group("bandit")
        mask: Mask = self.table.source == SOURCES.index("policy")
        return mask

    @property
    def base(self) -> float:
        """Value of a missing reward."""
        return self.table.rewards.default if self.table.conversions else 0.0

    @cached_property
    def outcome(self) -> Vector:
        """Reward of each decision so far, relative to :attr:`base`."""
        table = self.table
        return np.where(table.arrived, table.value - self.base, 0.0)

    @cached_property
    def exposure(self) -> Vector:
        """Expected share of each decision's reward that has arrived by its age."""
        table = self.table
        if not table.conversions or self.curve is None:
            return table.arrived.astype(np.float64)
        return self.curve.arrived_by(table.age)

    @property
    def arms(self) -> list[tuple[str, Mask]]:
        """Groups that have decisions, with a mask of each group's decisions."""
        arms = (("Bandit", self.own), ("Holdout", self.held))
        return [(name, mask) for name, mask in arms if mask.any()]

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest possible reward per decision."""
        rewards = self.table.rewards
        low, high = rewards.range(self.log.family.support)
        if rewards.reduce == "sum":  # the limits apply to each part of a reward
            low, high = (0.0 if low >= 0.0 else -math.inf), math.inf
        return min(low, self.base), max(high, self.base)

    def ratio(self, which: Mask) -> tuple[float, float]:
        """Return the reward per decision and its standard error; NaN if no decision is old enough.

        Each decision is weighted by the share of rewards that arrive by its age, so that young
        decisions are neither omitted nor counted as failures. The share is taken from the delay
        curve, which assumes the same delays for all decisions. The headline uses
        :func:`belated.evaluation.lifts.earned`, which does not need this assumption.
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
        """Mean square of a reward, used so that a group without rewards has a nonzero error."""
        arrived = self.table.arrived
        return float(np.square(self.outcome[arrived]).mean()) if arrived.any() else 0.0

    def row(self, which: Mask) -> dict[str, Any]:
        """Return the reward per decision with its interval, as a data row."""
        return {**around(*self.ratio(which), self.bounds), "n": int(which.sum())}

    @cached_property
    def auditor(self) -> Auditor | None:
        """Model fitted to all decisions; None if there are too few rewards or too many features."""
        is_small = self.table.arrived.sum() < FEW or not len(self.rows)
        if is_small or self.rows.shape[1] > WIDEST:
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
        """Names of the actions, by decreasing number of the bandit's decisions."""
        counts = np.bincount(self.table.action[self.own], minlength=len(self.table.actions))
        order = np.argsort(-counts, kind="stable")
        return [str(self.table.actions[place]) for place in order]


def if_known(estimate: Callable[..., T], *given: Any) -> T | None:
    """Call ``estimate``; return None if there is too little data."""
    try:
        return estimate(*given)
    except BelatedError:
        return None


def code_of(facts: Facts, name: str) -> int:
    """Return the code of an action in the table."""
    return [str(action) for action in facts.table.actions].index(name)


def short(number: float, digits: int = 6) -> float | None:
    """Round a number to significant digits; None if it is not finite.

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
    """Return a value with its interval, widened if necessary to contain the value.

    >>> interval(0.02, 0.0, 0.0)
    {'p': 0.02, 'lo': 0.0, 'hi': 0.02}
    """
    low, high = min(low, value), max(high, value)
    return {key: short(value, digits), "lo": short(low, digits), "hi": short(high, digits)}


def around(
    value: float, error: float, bounds: tuple[float, float] = (-math.inf, math.inf), **options: Any
) -> dict[str, Any]:
    """Return a value with its normal interval, both clipped to ``bounds``.

    >>> around(1.02, 0.03, bounds=(0.0, 1.0))
    {'p': 1.0, 'lo': 0.961201, 'hi': 1.0}
    """
    ends = (value, value - Z * error, value + Z * error)
    return interval(*np.clip(ends, *bounds).tolist(), **options)


SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
#: Names and lengths of the possible periods.
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
#: Maximum number of periods in a report, and the number of periods that count as recent.
PERIODS, RECENT = 62, 7
#: Fraction of a period after which it counts as complete.
COMPLETE = 0.95


@dataclass(frozen=True)
class Calendar:
    """The periods of a report.

    Attributes:
        start: start of the first period, in microseconds since 1970.
        step: length of a period, in microseconds.
        count: number of periods.
        name: name of a period, such as "day".
        end: time of the report, in microseconds since 1970; None means the end of the last period.
    """

    start: int
    step: int
    count: int
    name: str
    end: int | None = None

    @classmethod
    def of(cls, table: DecisionTable) -> Calendar:
        """Return a calendar with the shortest periods that cover all decisions.

        >>> none, made = [None] * 2, ["2026-01-01T00:00Z", "2026-01-30T12:00Z"]
        >>> table = DecisionTable.of(made=made, rewarded=none, value=none)
        >>> calendar = Calendar.of(table)
        >>> calendar.count, calendar.name, calendar.partial == calendar.ms(29)
        (30, 'day', True)
        """
        first = int(table.made.min(initial=table.as_of))
        for step, name in LENGTHS:
            start = first // step * step
            count = (table.as_of - start) // step + 1
            if count <= PERIODS or step == LENGTHS[-1][0]:
                return cls(start, step, count, name, table.as_of)
        raise AssertionError

    def place(self, times: Times) -> NDArray[np.int64]:
        """Return the index of the period that contains each time."""
        periods: NDArray[np.int64] = np.clip((times - self.start) // self.step, 0, self.count - 1)
        return periods

    def counts(self, times: Times) -> Vector:
        """Return the number of times in each period."""
        return np.bincount(self.place(times), minlength=self.count).astype(np.float64)

    def ms(self, period: int) -> int:
        """Return when a period starts, in milliseconds since 1970."""
        return (self.start + period * self.step) // 1000

    @property
    def partial(self) -> int | None:
        """Start of the last period, in milliseconds since 1970; None if that period is complete."""
        last = self.start + (self.count - 1) * self.step
        if self.end is None or self.end - last >= COMPLETE * self.step:
            return None
        return self.ms(self.count - 1)

    @property
    def recent(self) -> int:
        """Index of the first recent period."""
        return max(self.count - RECENT, 0)


#: Prior precision of the auditor's coefficients.
RIDGE = 0.3
#: Maximum number of features that the auditor fits.
WIDEST = 400


@dataclass(frozen=True, eq=False)
class Auditor:
    """A model fitted to all decisions, independent of the model that made them.

    Attributes:
        theta: coefficients.
        covariance: covariance of the coefficients.
        family: family of the rewards.
    """

    theta: Vector
    covariance: Matrix
    family: Family

    def means(self, rows: Matrix, theta: Vector | None = None) -> Vector:
        """Return the mean reward of each row."""
        return self.family.mean(rows @ (self.theta if theta is None else theta))

    def draws(self, count: int) -> Matrix:
        """Return coefficients drawn from their distribution."""
        rng = np.random.default_rng(0)
        return rng.multivariate_normal(self.theta, self.covariance, count, method="eigh")
