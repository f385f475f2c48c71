"""The rules: what a decision has come to, as a function of its records and the watermark.

Order does not enter: the same set of records gives the same verdict however they arrived. The
ledger applies these rules to one record at a time, and keeps what they need and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from belated.events import Decision, Record, Reward, decode, encode
from belated.exceptions import UnknownEvent
from belated.rewards import Rewards, reduced

#: Beyond any time that fits into a column.
LONG = 1 << 63


class State(IntEnum):
    """What a decision has come to. Every decision is in exactly one of these."""

    DORMANT = 0
    PENDING = 1
    REWARDED = 2
    DEFAULTED = 3
    CENSORED = 4
    VOIDED = 5


class ReportedReward(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A reward as it was told, and when the journal took it first."""

    recorded: int
    at: int
    value: float
    part: str = ""
    revision: int = 0


class Facts(msgspec.Struct, gc=False, array_like=True):
    """All that is known of one decision.

    Attributes:
        recorded: when the journal first took the decision.
        activated: whether it was created active.
        activation: when the journal first took an activation.
        void: whether it was voided.
        rival: whether another decision was made under its id.
        reported: the rewards.
    """

    recorded: int
    activated: bool = True
    activation: int | None = None
    void: bool = False
    rival: bool = False
    reported: Sequence[ReportedReward] = ()

    @property
    def plain(self) -> bool:
        """Whether there is nothing but the decision, and one reward at most, in one part."""
        if self.activation is not None or self.void or self.rival or len(self.reported) > 1:
            return False
        return not any(one.part or one.revision for one in self.reported)


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What the facts come to."""

    state: State
    value: float | None = None
    late: bool = False
    conflict: bool = False


class DecisionStatus(msgspec.Struct, frozen=True):
    """All that is known of one decision.

    Attributes:
        id: its id.
        state: dormant, pending, rewarded, defaulted, censored or voided; or unknown.
        decision: as it was made; None where nothing but the ledger was asked.
        value: what it is learned with, None if it is not.
        late: whether its reward came after the window.
        conflict: whether two rewards or two decisions contradict each other.
        recorded: when the journal took it, in microseconds since 1970.
        position: where it is in its partition of the journal, from 1 on; 0 if it is not known.
        due: when its window ends, None if it has none.
        reported: its rewards, those that were replaced too as long as they are known.
    """

    id: str
    state: str
    decision: Decision | None = None
    value: float | None = None
    late: bool = False
    conflict: bool = False
    recorded: int | None = None
    position: int = 0
    due: int | None = None
    reported: list[ReportedReward] = []


def judge(facts: Facts, watermark: int, rewards: Rewards, retention: int | None) -> Verdict:
    """Apply the rules.

    >>> from datetime import timedelta
    >>> from belated.rewards import Explicit
    >>> week = Explicit(timedelta(days=7))
    >>> judge(Facts(recorded=0), watermark=5, rewards=week, retention=None).state.name
    'PENDING'
    >>> told = [ReportedReward(recorded=3, at=2, value=1.0)]
    >>> judge(Facts(recorded=0, reported=told), 5, week, None).value
    1.0
    """
    rival = facts.rival
    if facts.void:
        return Verdict(State.VOIDED, conflict=rival)
    told = facts.reported
    if retention is not None:
        told = [one for one in told if one.recorded <= facts.recorded + retention]
    due = due_of(facts, rewards)
    if told:
        value, conflict = value_of(told, rewards)
        first = min(one.recorded for one in told)
        return Verdict(State.REWARDED, value, due is not None and first > due, rival or conflict)
    live = facts.activated or facts.activation is not None
    if due is None or watermark < due:
        return Verdict(State.PENDING if live else State.DORMANT, conflict=rival)
    if not live:
        return Verdict(State.VOIDED, conflict=rival)
    if rewards.on_timeout == "defaulted":
        return Verdict(State.DEFAULTED, rewards.default, conflict=rival)
    return Verdict(State.CENSORED, conflict=rival)


def due_of(facts: Facts, rewards: Rewards) -> int | None:
    """When silence is an answer; None: never."""
    window = rewards.window_us
    start = facts.recorded if facts.activation is None else facts.activation
    return None if window is None else start + window


def value_of(told: Sequence[ReportedReward], rewards: Rewards) -> tuple[float, bool]:
    """The value of all parts, and whether two rewards contradict each other.

    Of one part the highest revision counts. Two of the same revision are a conflict if their values
    differ; the one with the least bytes counts, so that everyone chooses the same.
    """
    parts: dict[str, ReportedReward] = {}
    conflict: dict[str, bool] = {}
    for one in told:
        other = parts.get(one.part)
        if other is None or one.revision > other.revision:
            parts[one.part] = one
            conflict[one.part] = False
        elif one.revision == other.revision:
            if not same_value(one.value, other.value):
                conflict[one.part] = True
            if _bytes(one) < _bytes(other):
                parts[one.part] = one
    values = {part: (one.at, one.value) for part, one in parts.items()}
    return reduced(values, rewards.reduce), any(conflict.values())


def same_value(one: float, other: float) -> bool:
    """Whether a retry says the same: -0.0 is 0.0."""
    return one == other


def _bytes(one: ReportedReward) -> bytes:
    # Id, part and revision are the same for all that are compared; -0.0 is the same value as 0.0.
    return encode(Reward("", one.at, one.value + 0.0))


def meaning_of(facts: Facts, reward: Reward) -> str:
    """What a reward is to a decision that knows these facts."""
    if facts.void:
        return "voided"
    place = reward.part, reward.revision
    values = [one.value for one in facts.reported if (one.part, one.revision) == place]
    if values:
        known = any(same_value(value, reward.value) for value in values)
        return "duplicate" if known else "conflict"
    return "revised" if facts.reported else "rewarded"


def with_one_more(told: Sequence[ReportedReward], new: ReportedReward) -> list[ReportedReward]:
    """All that was told, without what says nothing more: a retry came later in every way."""
    kept = []
    for one in told:
        if _covers(one, new):
            return list(told)
        if not _covers(new, one):
            kept.append(one)
    return [*kept, new]


def _covers(one: ReportedReward, other: ReportedReward) -> bool:
    same = one.part == other.part and one.revision == other.revision
    earlier = one.recorded <= other.recorded and one.at <= other.at
    return same and earlier and same_value(one.value, other.value)


def held_time(at: int) -> int:
    """A time that fits into a column: no client's clock may stop the fold."""
    return max(0, min(at, LONG - 1))


def unknown_event(record: Record) -> UnknownEvent:
    """Return the error for an event that only a newer release can read, with its place."""
    try:
        decode(encode(record.event))
    except UnknownEvent as error:
        return UnknownEvent(error.version, error.kind, (record.partition, record.position))
    raise AssertionError("an event that can be read is not opaque")
