"""One line a decision: what all evaluations are made of.

Times are whole microseconds since 1970, by the journal's clock; a delay is the time from the moment
a decision took effect to the first report of its reward.
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

#: Who made a decision, in the order of their codes.
SOURCES = ("policy", "holdout", "baseline", "fallback")


@dataclass(frozen=True, eq=False, repr=False)
class DecisionTable(Shortened):
    """Decisions with what has become of them, as columns.

    Attributes:
        made: when each took effect: when the journal took its activation, or the decision itself
            if it has none.
        rewarded: when the journal took its first reward; :data:`NEVER` if it has none.
        value: its reward as it counts now, or the default of its semantics; NaN if it has neither.
        state: code of its :class:`~belated.fold.rules.State`.
        action: code of its action, into ``actions``.
        actions: names of the actions.
        group: code of its group in a holdout, into ``groups``.
        groups: names of the groups.
        source: code of who made it, into :data:`SOURCES`.
        propensity: probability with which it was chosen by its group.
        overall: the same over all groups.
        mean: predicted mean reward at the choice.
        as_of: the time at which all this is known.
        rewards: what a missing reward means.
        retention: how long a reward counts, in microseconds; None: for ever.
        baseline: what its holdout shows: the name of an action, ``"first"`` or ``"uniform"``; None
            if that is not known.
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
        """A table of columns you have: lists, arrays, or those of a frame.

        Args:
            made: when each decision took effect: datetimes with their time zone, or microseconds
                since 1970.
            rewarded: when its reward came; NaT, None or :data:`NEVER` if none has.
            value: the reward; NaN if none has come.
            as_of: when this was known; the last of these times if None.
            rewards: what a missing reward means; :class:`~belated.Explicit` if None.
            action: names of the chosen actions.
            group: names of groups, to be compared by :func:`~belated.evaluation.lifts.lift`.
            propensity: probability with which each was chosen; 1 if None.
            mean: predicted mean rewards; 0 if None.

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
        came = ends != NEVER
        semantics: Rewards = Explicit() if rewards is None else rewards
        last = int(max(starts.max(initial=0), ends.max(initial=0)))
        now = last if as_of is None else as_microseconds(as_of, "as_of")
        codes, names = _labels(action, count)
        group_codes, group_names = _labels(group, count)
        table = cls(
            made=starts,
            rewarded=ends,
            value=np.where(came, values, np.nan),
            state=np.where(came, State.REWARDED, State.PENDING).astype(np.uint8),
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
        """Refuse columns that do not fit each other."""
        for one in fields(self):
            column = getattr(self, one.name)
            if isinstance(column, np.ndarray):
                _check_length(one.name, len(column), len(self))
        came = self.arrived
        if (self.made == NEVER).any() or (self.rewarded[came] < self.made[came]).any():
            message = "a decision has no time, or its reward came before it: set `made` and"
            raise InvalidInput(f"{message} `rewarded` to when each happened", self.rewarded)
        if np.isnan(self.value[came]).any():
            raise InvalidInput("a reward has come, but its value is missing: give it", self.value)
        if len(self) and max(self.made.max(), self.rewarded.max()) > self.as_of:
            message = "some decisions or rewards are later than as_of"
            raise InvalidInput(f"{message}: leave them out, or give a later one", self.as_of)

    def __len__(self) -> int:
        return len(self.made)

    def __repr__(self) -> str:
        came = int(self.arrived.sum())
        return f"<{type(self).__name__}: {len(self):,} decisions, {came:,} rewarded>"

    def select(self, which: Mask | Times | slice) -> Self:
        """The lines for which a mask is true, or those at some places."""
        columns = {
            one.name: getattr(self, one.name)[which]
            for one in fields(self)
            if isinstance(getattr(self, one.name), np.ndarray)
        }
        return replace(self, **columns)

    def live(self) -> Self:
        """Without the decisions that were voided, or have not taken effect."""
        return self.select(self.took_effect)

    @property
    def took_effect(self) -> Mask:
        """Which decisions took effect, and were not voided."""
        found: Mask = (self.state != State.VOIDED) & (self.state != State.DORMANT)
        return found

    def in_group(self, name: str) -> Mask:
        """Which decisions are of a group; none, if there is no such group."""
        found: Mask = self.group == (self.groups.index(name) if name in self.groups else -1)
        return found

    @property
    def arrived(self) -> Mask:
        """Whether a reward was reported."""
        found: Mask = self.rewarded != NEVER
        return found

    @property
    def age(self) -> Vector:
        """How long ago each decision took effect, in microseconds."""
        return (self.as_of - self.made).astype(np.float64)

    @property
    def delay(self) -> Vector:
        """Time to the first reward in microseconds; infinite if none has come."""
        waited = (self.rewarded - self.made).astype(np.float64)
        return np.where(self.arrived, waited, np.inf)

    @property
    def conversions(self) -> bool:
        """Whether a missing reward counts for something, so that only others are reported."""
        return not isinstance(self.rewards, Explicit)

    @property
    def reach(self) -> float:
        """The longest delay that could have been seen, in microseconds."""
        oldest = float(self.age.max(initial=0.0))
        return oldest if self.retention is None else min(oldest, float(self.retention))


def _check_length(name: str, length: int, count: int) -> None:
    if length != count:
        message = f"{name} has {length:,} lines, and made has {count:,}"
        raise InvalidInput(f"{message}: one line a decision was expected", length)


def _labels(given: Any, count: int) -> tuple[Codes, tuple[Any, ...]]:
    if given is None:
        return np.zeros(count, dtype=np.int32), ("",)
    known: dict[Any, int] = {}
    codes = [known.setdefault(one, len(known)) for one in np.asarray(given).tolist()]
    return np.array(codes, dtype=np.int32), tuple(known)


def _filled(given: Any, default: float, count: int) -> Vector:
    return np.full(count, default) if given is None else np.asarray(given, dtype=np.float64)
