"""The rules that determine the state of a decision from its records and the watermark.

If two decisions have the same id, or a part and revision has two values, the one committed first
counts. Without such conflicts, the order of records does not matter. The ledger applies these rules
to one record at a time and stores only the data that the rules need, so the cost per record does
not depend on the number of earlier records.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from zlib import crc32

import msgspec

from belated.core.events import (
    VERSION,
    Decision,
    Mark,
    Record,
    Reward,
    Void,
    decode,
    encode,
    encoder,
)
from belated.core.ids import subject_id
from belated.core.results import Shortened
from belated.core.rewards import Rewards, reduced
from belated.core.times import as_datetime
from belated.exceptions import UnknownEvent
from belated.fold.requests import KeptRequest

#: Exclusive upper bound of the times that fit into a column.
LONG = 1 << 63
#: Maximum number of parts of a reward; further parts are rejected.
MAX_PARTS = 64


# CRC of the version byte, which precedes every event of this version.
_VERSION_CRC = crc32(bytes([VERSION]))


class State(IntEnum):
    """The state of a decision."""

    DORMANT = 0
    PENDING = 1
    REWARDED = 2
    DEFAULTED = 3
    CENSORED = 4
    VOIDED = 5


class ReportedReward(msgspec.Struct, gc=False, array_like=True):
    """The reward that counts for one part, as reported.

    Attributes:
        recorded_us: when the journal recorded the reward, in microseconds since 1970.
        at_us: when the reward happened, in microseconds since 1970.
        value: the reward.
        part: the name of the part.
        revision: the highest revision reported for this part.
        conflict: whether a different value was reported for this part and revision.
    """

    recorded_us: int
    at_us: int
    value: float
    part: str = ""
    revision: int = 0
    conflict: bool = False

    @property
    def recorded(self) -> datetime:
        """When the journal recorded the reward."""
        return as_datetime(self.recorded_us)

    @property
    def at(self) -> datetime:
        """When the reward happened."""
        return as_datetime(self.at_us)


class Facts(msgspec.Struct, gc=False, array_like=True):
    """Everything known about a decision, or about an id whose decision has not arrived yet.

    Times are in microseconds since 1970.

    Attributes:
        recorded: when the journal recorded the decision.
        activated: whether the decision was active from the start.
        activation: when the journal recorded the first activation.
        void: whether the decision was voided.
        rival: whether another decision was made with the same id.
        reported: when the journal recorded the first reward reported with the decision's id.
        parts: the reward that counts for each part.
        credits: the subject's rewards that are credited to the decision, by event id.
    """

    recorded: int = 0
    activated: bool = True
    activation: int | None = None
    void: bool = False
    rival: bool = False
    reported: int | None = None
    parts: dict[str, ReportedReward] = msgspec.field(default_factory=dict)
    credits: dict[str, ReportedReward] = msgspec.field(default_factory=dict)

    @property
    def rewarded(self) -> int | None:
        """When the journal recorded the first reward that counts."""
        if not self.credits:
            return self.reported
        first = min(credit.recorded_us for credit in self.credits.values())
        return first if self.reported is None else min(first, self.reported)

    @property
    def live(self) -> bool:
        """Whether the decision took effect and was not voided."""
        return (self.activated or self.activation is not None) and not self.void

    @property
    def plain(self) -> bool:
        """Whether the facts fit into a table entry, which holds at most one reward without a part.

        Credited subject rewards are stored in the subject's history.
        """
        if self.activation is not None or self.void or self.rival or len(self.parts) > 1:
            return False
        if self.credits:
            return not self.parts
        for reward in self.parts.values():
            return not (reward.part or reward.revision or reward.conflict)
        return True

    @property
    def events(self) -> int:
        """Number of events that count, excluding the decision."""
        return len(self.parts) + (self.activation is not None) + self.void


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The state and value that the rules derive from facts."""

    state: State
    value: float | None = None
    late: bool = False
    conflict: bool = False


class DecisionStatus(Shortened, msgspec.Struct, frozen=True):
    """Everything known about a decision.

    Attributes:
        id: the decision id.
        state: dormant, pending, rewarded, defaulted, censored, voided or unknown.
        decision: the decision itself; None if only the ledger was consulted.
        request: the request, if it was stored.
        value: the value that the model learns from; None if the model ignores the decision.
        late: whether the reward arrived after the window.
        conflict: whether two rewards or two decisions contradict each other.
        recorded_us: when the journal recorded the decision, in microseconds since 1970.
        position: the position in the journal partition, starting at 1; 0 if unknown.
        due_us: when the window ends, in microseconds since 1970; None if there is no window.
        reported: the reward that counts for each part.
    """

    id: str
    state: str
    decision: Decision | None = None
    value: float | None = None
    late: bool = False
    conflict: bool = False
    recorded_us: int | None = None
    position: int = 0
    due_us: int | None = None
    reported: list[ReportedReward] = []
    request: KeptRequest | None = None

    @property
    def recorded(self) -> datetime | None:
        """When the journal recorded the decision; None if unknown."""
        return None if self.recorded_us is None else as_datetime(self.recorded_us)

    @property
    def due(self) -> datetime | None:
        """When the window of the decision ends; None if there is no window."""
        return None if self.due_us is None else as_datetime(self.due_us)


def judge(facts: Facts, watermark: int, rewards: Rewards) -> Verdict:
    """Apply the rules; return the state and the value of a decision.

    >>> from datetime import timedelta
    >>> from belated.core.rewards import Explicit
    >>> week = Explicit(timedelta(days=7))
    >>> facts = Facts(recorded=0)
    >>> judge(facts, watermark=5, rewards=week).state.name
    'PENDING'
    >>> take_reward(facts, Reward("a1", 2, 1.0), recorded=3)
    'rewarded'
    >>> judge(facts, watermark=5, rewards=week).value
    1.0
    """
    rival = facts.rival
    if facts.void:
        return Verdict(State.VOIDED, conflict=rival)
    due = due_of(facts, rewards)
    rewarded = facts.rewarded
    if rewarded is not None:
        values = {part: (reward.at_us, reward.value) for part, reward in facts.parts.items()}
        conflict = rival or any([reward.conflict for reward in facts.parts.values()])
        for event_id, credit in facts.credits.items():
            values[subject_id(event_id)] = credit.at_us, credit.value  # cannot collide with a part
            conflict = conflict or credit.conflict
        late = due is not None and rewarded > due
        return Verdict(State.REWARDED, reduced(values, rewards.reduce), late, conflict)
    live = facts.activated or facts.activation is not None
    if due is None or watermark < due:
        return Verdict(State.PENDING if live else State.DORMANT, conflict=rival)
    if not live:
        return Verdict(State.VOIDED, conflict=rival)
    if rewards.on_timeout == "defaulted":
        return Verdict(State.DEFAULTED, rewards.default, conflict=rival)
    return Verdict(State.CENSORED, conflict=rival)


def due_of(facts: Facts, rewards: Rewards) -> int | None:
    """Return when the window of a decision ends; None if there is no window."""
    window = rewards.window_us
    start = facts.recorded if facts.activation is None else facts.activation
    return None if window is None else start + window


def same_value(one: float, other: float) -> bool:
    """Return whether a retry has the same value; -0.0 equals 0.0."""
    return one == other


def meaning_of(facts: Facts, reward: Reward) -> str:
    """Return the status of a reward, given what is known about its decision."""
    if facts.void:
        return "voided"
    reported = facts.parts.get(reward.part)
    if reported is None:
        if len(facts.parts) >= MAX_PARTS:
            return "over_limit"
        return "rewarded" if facts.reported is None else "revised"
    if reward.revision != reported.revision:
        return "revised" if reward.revision > reported.revision else "superseded"
    return "duplicate" if same_value(reported.value, reward.value) else "conflict"


def take_reward(facts: Facts, reward: Reward, recorded: int) -> str:
    """Add a reward to the facts; return its status."""
    meaning = meaning_of(facts, reward)
    if meaning == "conflict":
        facts.parts[reward.part].conflict = True
    elif meaning in ("rewarded", "revised"):
        at = clamped_time(reward.at_us)
        reported = ReportedReward(recorded, at, reward.value, reward.part, reward.revision)
        facts.parts[reward.part] = reported
        if facts.reported is None:
            facts.reported = recorded
    return meaning


def take_mark(facts: Facts, event: Mark, recorded: int) -> str:
    """Add an activation or a void to the facts; return its status."""
    if type(event) is Void:
        was_void, facts.void = facts.void, True
        return "duplicate" if was_void else "voided"
    if facts.activation is not None:
        return "duplicate"
    facts.activation = recorded
    return "activated"


def crc_of(decision: Decision) -> int:
    """Return a checksum that distinguishes decisions with the same id if there is no digest."""
    return crc32(encoder.encode(decision), _VERSION_CRC)


def clamped_time(at: int) -> int:
    """Return the nearest time that fits into a column; clients' clocks may be arbitrarily wrong."""
    return max(0, min(at, LONG - 1))


def unknown_event(record: Record) -> UnknownEvent:
    """Return the error for an event that only newer releases can read, with its position."""
    try:
        decode(encode(record.event))
    except UnknownEvent as error:
        return UnknownEvent(error.version, error.kind, (record.partition, record.position))
    raise AssertionError("an event that can be read is not opaque")
