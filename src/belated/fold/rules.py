"""The rules: what a decision has come to, as a function of its records and the watermark.

What was committed first counts: of two decisions under one id, and of two values for one part and
revision. Where nothing contradicts, order does not enter. The ledger applies these rules to one
record at a time, keeps what they need and no more, and a record costs the same whatever came
before it.
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

#: Beyond any time that fits into a column.
LONG = 1 << 63
#: Parts of the reward of one decision; a reward of a further part is not taken.
MAX_PARTS = 64


# Of the byte before all events of this version.
_VERSION_CRC = crc32(bytes([VERSION]))


class State(IntEnum):
    """What a decision has come to. Every decision is in exactly one of these."""

    DORMANT = 0
    PENDING = 1
    REWARDED = 2
    DEFAULTED = 3
    CENSORED = 4
    VOIDED = 5


class ReportedReward(msgspec.Struct, gc=False, array_like=True):
    """The reward that counts of one part, as it was reported, and when the journal took it.

    Attributes:
        recorded_us: when the journal took it, in microseconds since 1970.
        at_us: when it happened.
        value: the reward.
        part: its name.
        revision: the highest of this part.
        conflict: whether another value was reported for this part and revision.
    """

    recorded_us: int
    at_us: int
    value: float
    part: str = ""
    revision: int = 0
    conflict: bool = False

    @property
    def recorded(self) -> datetime:
        """When the journal took it."""
        return as_datetime(self.recorded_us)

    @property
    def at(self) -> datetime:
        """When it happened."""
        return as_datetime(self.at_us)


class Facts(msgspec.Struct, gc=False, array_like=True):
    """All that is known of one decision, or of an id whose decision is not known yet.

    Attributes:
        recorded: when the journal took the decision.
        activated: whether it was created active.
        activation: when the journal first took an activation.
        void: whether it was voided.
        rival: whether another decision was made under its id.
        reported: when the journal first took a reward of the decision itself.
        parts: what counts of each part of the reward.
        credits: the rewards of its subject that are credited to it, by their event ids.
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
        """When the journal first took a reward that counts."""
        if not self.credits:
            return self.reported
        first = min(credit.recorded_us for credit in self.credits.values())
        return first if self.reported is None else min(first, self.reported)

    @property
    def live(self) -> bool:
        """Whether it took effect and was not voided."""
        return (self.activated or self.activation is not None) and not self.void

    @property
    def plain(self) -> bool:
        """Whether there is nothing but the decision, and one reward at most, in one part.

        Rewards of a subject are known by its history.
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
        """How many events count here, beside the decision."""
        return len(self.parts) + (self.activation is not None) + self.void


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What the facts come to."""

    state: State
    value: float | None = None
    late: bool = False
    conflict: bool = False


class DecisionStatus(Shortened, msgspec.Struct, frozen=True):
    """All that is known of one decision.

    Attributes:
        id: its id.
        state: dormant, pending, rewarded, defaulted, censored or voided; or unknown.
        decision: as it was made; None where nothing but the ledger was asked.
        request: what it was chosen from, if that was kept.
        value: what it is learned with, None if it is not.
        late: whether its reward came after the window.
        conflict: whether two rewards or two decisions contradict each other.
        recorded_us: when the journal took it, in microseconds since 1970.
        position: where it is in its partition of the journal, from 1 on; 0 if it is not known.
        due_us: when its window ends, in microseconds since 1970; None if it has none.
        reported: the reward that counts of each part.
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
        """When the journal took it; None if it is not known."""
        return None if self.recorded_us is None else as_datetime(self.recorded_us)

    @property
    def due(self) -> datetime | None:
        """When its window ends; None if it has none."""
        return None if self.due_us is None else as_datetime(self.due_us)


def judge(facts: Facts, watermark: int, rewards: Rewards) -> Verdict:
    """Apply the rules.

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
            values[subject_id(event_id)] = credit.at_us, credit.value  # no part can have that name
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
    """When a missing reward counts as an answer; None: never."""
    window = rewards.window_us
    start = facts.recorded if facts.activation is None else facts.activation
    return None if window is None else start + window


def same_value(one: float, other: float) -> bool:
    """Whether a retry says the same: -0.0 is 0.0."""
    return one == other


def meaning_of(facts: Facts, reward: Reward) -> str:
    """What a reward is to a decision of which this much is known."""
    if facts.void:
        return "voided"
    known = facts.parts.get(reward.part)
    if known is None:
        if len(facts.parts) >= MAX_PARTS:
            return "over_limit"
        return "rewarded" if facts.reported is None else "revised"
    if reward.revision != known.revision:
        return "revised" if reward.revision > known.revision else "superseded"
    return "duplicate" if same_value(known.value, reward.value) else "conflict"


def take_reward(facts: Facts, reward: Reward, recorded: int) -> str:
    """Know of one more reward; returns what it meant."""
    meaning = meaning_of(facts, reward)
    if meaning == "conflict":
        facts.parts[reward.part].conflict = True
    elif meaning in ("rewarded", "revised"):
        at = clamped_time(reward.at_us)
        one = ReportedReward(recorded, at, reward.value, reward.part, reward.revision)
        facts.parts[reward.part] = one
        if facts.reported is None:
            facts.reported = recorded
    return meaning


def take_mark(facts: Facts, event: Mark, recorded: int) -> str:
    """Know of an activation or a void; returns what it meant."""
    if type(event) is Void:
        again, facts.void = facts.void, True
        return "duplicate" if again else "voided"
    if facts.activation is not None:
        return "duplicate"
    facts.activation = recorded
    return "activated"


def crc_of(decision: Decision) -> int:
    """What tells two decisions under one id apart, where a journal stores no digests."""
    return crc32(encoder.encode(decision), _VERSION_CRC)


def clamped_time(at: int) -> int:
    """A time that fits into a column: no client's clock may stop the fold."""
    return max(0, min(at, LONG - 1))


def unknown_event(record: Record) -> UnknownEvent:
    """Return the error for an event that only a newer release can read, with its place."""
    try:
        decode(encode(record.event))
    except UnknownEvent as error:
        return UnknownEvent(error.version, error.kind, (record.partition, record.position))
    raise AssertionError("an event that can be read is not opaque")
