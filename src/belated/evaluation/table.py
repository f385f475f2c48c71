"""The table of decisions, one row each, from which every estimate is computed.

Times are whole microseconds since 1970, by the journal's clock. A delay is the time from when a
decision took effect to the first report of its reward.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.core.results import Shortened
from belated.core.rewards import Explicit, Rewards
from belated.core.times import Moment, as_microseconds
from belated.evaluation.columns import NEVER, numbers, times
from belated.exceptions import InvalidInput
from belated.fold.rules import State

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.int32]

#: Possible sources of a decision, in the order of their codes.
SOURCES = ("policy", "holdout", "baseline", "fallback")


@dataclass(frozen=True, eq=False, repr=False)
class DecisionTable(Shortened):
    """Decisions with their outcomes, as columns.

    Attributes:
        made: when each decision took effect: when the journal recorded its activation or, without
            an activation, the decision itself.
        rewarded: when the journal recorded the first reward; :data:`NEVER` if there is none.
        value: the current reward, or the default for a missing reward; NaN if there is neither.
        state: code of the decision's :class:`~belated.fold.rules.State`.
        action: index of the chosen action in ``actions``.
        actions: names of the actions.
        group: index of the decision's holdout group in ``groups``.
        groups: names of the groups.
        source: index of the decision's source in :data:`SOURCES`.
        propensity: probability with which the decision's group chose the action.
        overall: probability of the action over all groups.
        mean: mean reward that was predicted when choosing.
        as_of: the time up to which outcomes are known.
        rewards: what a missing reward means.
        retention: how long a decision accepts rewards, in microseconds; None means forever.
        baseline: the baseline of the holdout: the name of an action, ``"first"`` or ``"uniform"``;
            None if unknown.
    """

    made: Times
    rewarded: Times
    value: Vector
    state: NDArray[np.uint8]
    action: Codes
    actions: tuple[int | str, ...]
    group: Codes
    groups: tuple[str, ...]
    source: NDArray[np.uint8]
    propensity: Vector
    overall: Vector
    mean: Vector
    as_of: int
    rewards: Rewards
    retention: int | None = None
    baseline: str | None = None

    @classmethod
    def of(
        cls,
        *,
        made: Any,
        rewarded: Any,
        value: Any,
        as_of: Moment | None = None,
        rewards: Rewards | None = None,
        action: Any = None,
        group: Any = None,
        propensity: Any = None,
        mean: Any = None,
    ) -> Self:
        """Create a table from columns: lists, arrays, or columns of a data frame.

        Args:
            made: when each decision took effect: timezone-aware datetimes, or microseconds since
                1970.
            rewarded: when each reward arrived; NaT, None or :data:`NEVER` if there is none.
            value: the reward of each decision; NaN if there is none.
            as_of: the time up to which outcomes are known; by default, the latest time in ``made``
                and ``rewarded``.
            rewards: what a missing reward means; by default, :class:`~belated.Explicit`.
            action: names of the chosen actions.
            group: names of the groups that :func:`~belated.evaluation.lifts.lift` compares.
            propensity: probability with which each action was chosen; None means 1.
            mean: predicted mean rewards; None means 0.

        >>> table = DecisionTable.of(
        ...     made=["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
        ...     rewarded=["2026-01-03T00:00:00Z", None],
        ...     value=[1.0, None],
        ... )
        >>> len(table), int(table.arrived.sum())
        (2, 1)
        """
        starts, ends = times(made, "made"), times(rewarded, "rewarded")
        values = numbers(value, "value")
        count = len(starts)
        for name, column in (("rewarded", ends), ("value", values)):
            _check_length(name, len(column), count)
        arrived = ends != NEVER
        semantics: Rewards = Explicit() if rewards is None else rewards
        last = int(max(starts.max(initial=0), ends.max(initial=0)))
        now = last if as_of is None else as_microseconds(as_of, "as_of")
        codes, names = _labels(action, count)
        group_codes, group_names = _labels(group, count)
        table = cls(
            made=starts,
            rewarded=ends,
            value=np.where(arrived, values, np.nan),
            state=np.where(arrived, State.REWARDED, State.PENDING).astype(np.uint8),
            action=codes,
            actions=names,
            group=group_codes,
            groups=tuple(map(str, group_names)),
            source=np.zeros(count, dtype=np.uint8),
            propensity=_filled(propensity, 1.0, count),
            overall=_filled(propensity, 1.0, count),
            mean=_filled(mean, 0.0, count),
            as_of=now,
            rewards=semantics,
        )
        table.check()
        return table

    def check(self) -> None:
        """Raise InvalidInput if the columns contradict each other."""
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                _check_length(field.name, len(column), len(self))
        arrived = self.arrived
        if (self.made == NEVER).any() or (self.rewarded[arrived] < self.made[arrived]).any():
            message = "a decision has no time, or its reward has an earlier time: set `made` to the"
            raise InvalidInput(
                f"{message} times of decisions, and `rewarded` to the times of rewards",
                self.rewarded,
            )
        if np.isnan(self.value[arrived]).any():
            message = "a reward has a time in `rewarded`, but no value: set it in `value`"
            raise InvalidInput(message, self.value)
        if len(self) and max(self.made.max(), self.rewarded.max()) > self.as_of:
            message = "some decisions or rewards are later than `as_of`"
            raise InvalidInput(f"{message}: remove them, or pass a later `as_of`", self.as_of)

    def __len__(self) -> int:
        return len(self.made)

    def __repr__(self) -> str:
        arrived = int(self.arrived.sum())
        return f"<{type(self).__name__}: {len(self):,} decisions, {arrived:,} rewarded>"

    def select(self, which: Mask | Times | slice) -> Self:
        """Return the rows for which a mask is true, or those at the given indices."""
        columns = {
            field.name: getattr(self, field.name)[which]
            for field in fields(self)
            if isinstance(getattr(self, field.name), np.ndarray)
        }
        return replace(self, **columns)

    def live(self) -> Self:
        """Return the decisions that took effect and were not voided."""
        return self.select(self.took_effect)

    @property
    def took_effect(self) -> Mask:
        """Mask of the decisions that took effect and were not voided."""
        mask: Mask = (self.state != State.VOIDED) & (self.state != State.DORMANT)
        return mask

    def in_group(self, name: str) -> Mask:
        """Return a mask of the decisions in a group; all false if there is no such group."""
        mask: Mask = self.group == (self.groups.index(name) if name in self.groups else -1)
        return mask

    @property
    def arrived(self) -> Mask:
        """Mask of the decisions whose reward has been reported."""
        mask: Mask = self.rewarded != NEVER
        return mask

    @property
    def age(self) -> Vector:
        """Time since each decision took effect, in microseconds."""
        return (self.as_of - self.made).astype(np.float64)

    @property
    def delay(self) -> Vector:
        """Time to the first reward, in microseconds; infinite if there is none."""
        delay = (self.rewarded - self.made).astype(np.float64)
        return np.where(self.arrived, delay, np.inf)

    @property
    def conversions(self) -> bool:
        """Whether a missing reward counts as a value."""
        return not isinstance(self.rewards, Explicit)

    @property
    def reach(self) -> float:
        """The longest delay that could have been observed, in microseconds."""
        oldest = float(self.age.max(initial=0.0))
        return oldest if self.retention is None else min(oldest, float(self.retention))


def _check_length(name: str, length: int, count: int) -> None:
    if length != count:
        message = f"`{name}` has {length:,} entries, but `made` has {count:,}"
        raise InvalidInput(f"{message}: pass one entry per decision", length)


def _labels(given: Any, count: int) -> tuple[Codes, tuple[Any, ...]]:
    if given is None:
        return np.zeros(count, dtype=np.int32), ("",)
    by_name: dict[Any, int] = {}
    codes = [by_name.setdefault(name, len(by_name)) for name in np.asarray(given).tolist()]
    return np.array(codes, dtype=np.int32), tuple(by_name)


def _filled(given: Any, default: float, count: int) -> Vector:
    return np.full(count, default) if given is None else np.asarray(given, dtype=np.float64)
