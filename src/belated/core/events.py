"""The facts a journal keeps, and the one codec that writes them.

An event is an immutable value. What it holds survives the codec exactly: rows are float32, means
and rewards float64, times whole microseconds. Two events are equal if and only if their bytes are.

The bytes are one byte for the version of the codec, then a MessagePack array that starts with the
number of the kind. Bytes of an unknown version or kind raise :class:`UnknownEvent`, and a journal
carries them on unread as :class:`Opaque`; bytes that are no event raise :class:`CorruptEvent`.
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from belated.core.ids import subject_id
from belated.core.inputs import Row
from belated.core.results import Result
from belated.core.times import as_datetime
from belated.exceptions import CorruptEvent, UnknownEvent

_LITTLE = np.dtype("<f4")


def _row_to_bytes(row: Any) -> bytes:
    if row.dtype is not _LITTLE or row.ndim != 1:  # a big-endian machine, or no row
        if row.dtype != np.float32 or row.ndim != 1:
            raise TypeError(f"the row of a decision is a float32 vector, not {row!r}")
        row = row.astype(_LITTLE)
    data: bytes = row.tobytes()
    return data


encoder = msgspec.msgpack.Encoder(enc_hook=_row_to_bytes)


class EventBase(
    msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True, eq=False
):
    """An event is its bytes: these decide equality, so that -0.0 and NaN are what they are."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and encoder.encode(self) == encoder.encode(other)

    def __ne__(self, other: object) -> bool:  # msgspec has one of its own
        return not self == other

    def __hash__(self) -> int:
        return hash(encoder.encode(self))


class TimedEvent(EventBase, frozen=True):
    """An event that somebody told, with the time at which it happened."""

    @property
    def at(self) -> datetime:
        """When it happened, in UTC."""
        return as_datetime(self.at_us)  # type: ignore[attr-defined]


#: Who made a decision.
Source = Literal["policy", "holdout", "baseline", "fallback"]


class Decision(TimedEvent, Result, tag=1, frozen=True):
    """An action was chosen; everything its reward will need is here.

    Attributes:
        id: the name under which the reward is reported.
        at_us: when, in microseconds since 1970 by the decider's clock; ``at`` is the same as a
            datetime.
        action: the chosen action, by the name the caller gave it.
        index: its place among the rows of the request.
        x: its row, float32.
        mean: its predicted mean reward at the choice.
        propensity: the probability with which it was chosen. Off-policy estimates need it to be
            below 1 and not tiny: give the policy a ``floor``, or ``randomized=True``. A policy that
            takes the greatest bound has 1, and says nothing of other actions; Thompson sampling
            without a floor never shows its least likely ones, and an estimate that divides by
            this is then biased.
        model: the version of the model that chose.
        activated: False if the outcome clock starts only with an :class:`Activation`.
        source: who chose: the ``policy``; a ``holdout``; the ``baseline``, as the mode said; or a
            ``fallback``: the baseline because the policy failed, or the caller because the service
            was unavailable.
        group: of a holdout to which the decision belongs; empty without one.
        overall: the probability of the action over all groups of a holdout; None: ``propensity``.
        means: its predicted mean by models of other half-lives, where there are any.
        context: what ``x`` was made of, and by which features: see
            :mod:`belated.fold.contexts`. It can be personal data. Empty if rows were passed.

    >>> import numpy as np
    >>> from belated.core.events import decode, encode
    >>> x = np.array([0.5, 1.0], dtype=np.float32)
    >>> decision = Decision("a1", 1_700_000_000_000_000, "blue", 0, x, 0.2, 1.0, 7)
    >>> decode(encode(decision)) == decision
    True
    """

    id: str
    at_us: int
    action: int | str
    index: int
    x: Row
    mean: float
    propensity: float
    model: int
    activated: bool = True
    source: Source = "policy"
    group: str = ""
    overall: float | None = None
    means: tuple[float, ...] = ()
    context: bytes = b""

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain data, its time as ISO 8601."""
        return {
            "id": self.id,
            "at": self.at.isoformat(),
            "action": self.action,
            "index": self.index,
            "propensity": self.propensity,
            "mean": self.mean,
            "model": self.model,
            "x": self.x.tolist(),
            "activated": self.activated,
            "source": self.source,
        }

    def __repr__(self) -> str:
        return (
            f"Decision(id={self.id!r}, action={self.action!r}, mean={self.mean:.4g},"
            f" propensity={self.propensity:.4g}, at={self.at.isoformat()!r})"
        )


class Activation(TimedEvent, tag=2, frozen=True):
    """The decision took effect (the mail was sent, the page was seen): its window starts."""

    id: str
    at_us: int


class Reward(TimedEvent, tag=3, frozen=True):
    """An outcome of a decision, or one part of it; a higher revision replaces a lower one.

    Attributes:
        id: of the decision.
        at_us: when it happened, in microseconds since 1970.
        value: the reward.
        part: of the reward, if it comes in several.
        revision: of this part.
        reporter: the name of the key that reported it; empty without one.
    """

    id: str
    at_us: int
    value: float
    part: str = ""
    revision: int = 0
    reporter: str = ""


class Void(TimedEvent, tag=4, frozen=True):
    """The decision was never carried out: nothing is to be learned from it."""

    id: str
    at_us: int


class Settled(EventBase, tag=5, frozen=True):
    """Journal time in a partition has reached ``until``: whatever was due by then is settled.

    Attributes:
        partition: of the journal.
        until: in microseconds since 1970.
        delivered: up to when rewards have been delivered, where they come in batches; 0: not told.
            No fold reads it: deliveries are found by the stamps of rewards.
    """

    partition: int
    until: int
    delivered: int = 0


class ModeChanged(TimedEvent, tag=6, frozen=True):
    """Someone switched how the service decides; nothing is learned from it.

    Attributes:
        at_us: when, in microseconds since 1970.
        mode: learn, freeze, baseline or off.
        reason: why, in the words of whoever did it.
        actor: who did it.
    """

    at_us: int
    mode: str
    reason: str = ""
    actor: str = ""


class Configured(TimedEvent, tag=7, frozen=True):
    """What the bandit is from now on, in words; nothing is learned from it.

    Attributes:
        at_us: when, in microseconds since 1970.
        settings: what a missing reward means, the policy and the features, by name.
    """

    at_us: int
    settings: dict[str, str]


class Erased(TimedEvent, tag=8, frozen=True):
    """The contents of a decision are to be forgotten: it counts as if it had never been made.

    Attributes:
        key: of its id, :func:`belated.core.ids.erased_key_of`, which does not reveal the id.
        at_us: when, in microseconds since 1970.
        reason: why, in the words of whoever did it.
        actor: who did it.
    """

    key: bytes
    at_us: int
    reason: str = ""
    actor: str = ""


class Retracted(TimedEvent, tag=9, frozen=True):
    """What one reporter reported in a span of time counts as if it had never come.

    Attributes:
        partition: of the journal; each has its own.
        at_us: when, in microseconds since 1970.
        start: of the span, by the time of the journal, in microseconds since 1970.
        end: the first moment after it.
        reporter: the name of the key, as the rewards have it.
        restored: True if it counts again.
        reason: why, in the words of whoever did it.
        actor: who did it.
    """

    partition: int
    at_us: int
    start: int
    end: int
    reporter: str
    restored: bool = False
    reason: str = ""
    actor: str = ""


class Trimmed(TimedEvent, tag=10, frozen=True):
    """Old records of a partition were dropped; what they came to is kept as its base.

    Attributes:
        partition: of the journal; each has its own.
        at_us: when, in microseconds since 1970.
        through: the position of the last record that was dropped.
        recorded: when the journal had taken that record, in microseconds since 1970.
        reason: why, in the words of whoever did it.
        actor: who did it.
    """

    partition: int
    at_us: int
    through: int
    recorded: int
    reason: str = ""
    actor: str = ""


class KeyChanged(TimedEvent, tag=11, frozen=True):
    """An API key for the bandit was created or revoked; nothing is learned from it.

    Attributes:
        at_us: when, in microseconds since 1970.
        key: its id, the public part.
        name: of the program that has it.
        change: ``created`` or ``revoked``.
        scopes: what may be done with it.
        reason: why, in the words of whoever did it.
        actor: who did it.
    """

    at_us: int
    key: str
    name: str
    change: str
    scopes: tuple[str, ...] = ()
    reason: str = ""
    actor: str = ""


class Overwritten(EventBase, tag=12, frozen=True):
    """Stands in place of an event of an erased decision, whose bytes are gone.

    The record keeps the digest of the event that was there. An :class:`Erased` of the same key says
    that this is as it should be; without one, somebody has tampered with the journal.

    Attributes:
        key: of the id of the decision, :func:`belated.core.ids.erased_key_of`.
    """

    key: bytes


class ActionChanged(TimedEvent, tag=13, frozen=True):
    """An operator paused, resumed or retired an action; nothing is learned from it.

    The last event of an action counts. :func:`belated.decider.actions.state_at` says what it means.

    Attributes:
        at_us: when, in microseconds since 1970.
        action: its name as text; ``"1"`` names the action ``1``, too.
        change: pause, resume or retire.
        start: from when on, in microseconds since 1970; 0: at once.
        until: when a pause ends; None: when the action is resumed.
        reason: why, as the operator put it.
        actor: who did it.
    """

    at_us: int
    action: str
    change: str
    start: int = 0
    until: int | None = None
    reason: str = ""
    actor: str = ""


class ModelChosen(TimedEvent, tag=16, frozen=True):
    """An operator chose the model that decides; learning goes on, and nothing is learned from it.

    The last event counts.

    Attributes:
        at_us: when, in microseconds since 1970.
        version: of the model; 0: the newest one decides again.
        model: as it was published (:mod:`belated.fold.published`); empty for the newest.
        reason: why, as the operator put it.
        actor: who did it.
    """

    at_us: int
    version: int
    model: bytes = b""
    reason: str = ""
    actor: str = ""


class SubjectDecision(TimedEvent, tag=14, frozen=True):
    """A decision was made for a subject; appended with the decision, behind it.

    Attributes:
        subject: a user, a device or a session, as the caller named it: treat it as personal data.
        at_us: when the decision was made, in microseconds since 1970.
        decision: its id.
    """

    subject: str
    at_us: int
    decision: str

    @property
    def id(self) -> str:
        """The id under which journals index it."""
        return subject_id(self.subject)


class SubjectReward(TimedEvent, tag=15, frozen=True):
    """An outcome of a subject, to be credited to one of the decisions made for it.

    Attributes:
        subject: as the decisions name it.
        at_us: when it happened, in microseconds since 1970.
        value: the reward.
        event_id: names the outcome: it counts once, however often it is reported.
        reporter: the name of the key that reported it; empty without one.
    """

    subject: str
    at_us: int
    value: float
    event_id: str
    reporter: str = ""

    @property
    def id(self) -> str:
        """The id under which journals index it."""
        return subject_id(self.subject)


#: The first byte of every event. A new field means a new number; a new kind has one of its own.
VERSION = 2

#: Events that say of a decision, which they name by its id, that something happened.
Mark = Activation | Void
#: Events that name a decision by its id.
DecisionEvent = Decision | Reward | Mark
#: Events that name a subject.
SubjectEvent = SubjectDecision | SubjectReward
Event = (
    DecisionEvent
    | SubjectEvent
    | Settled
    | ModeChanged
    | Configured
    | Erased
    | Retracted
    | Trimmed
    | KeyChanged
    | Overwritten
    | ActionChanged
    | ModelChosen
)


class Opaque(msgspec.Struct, frozen=True):
    """An event of a version or kind this release does not know, carried on unread.

    Attributes:
        data: its bytes, as the release that knows it wrote them.
    """

    data: bytes


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event with its place in a journal and the time at which the journal took it.

    Attributes:
        partition: of the journal.
        position: within the partition, from 1 on.
        recorded: when the journal took it, in microseconds since 1970.
        event: what was appended.
        digest: :func:`digest_of` its bytes as the journal has it stored; empty if it stores none.
    """

    partition: int
    position: int
    recorded: int
    event: Event | Opaque
    digest: bytes = b""


def kind_of(event: Event | Opaque | type[Any]) -> str:
    """The kind of an event, in words; of an instance or a class.

    >>> kind_of(ModeChanged(5, "off"))
    'mode_changed'
    """
    kind = event if isinstance(event, type) else type(event)
    return "unknown" if kind is Opaque else re.sub(r"\B([A-Z])", r"_\1", kind.__name__).lower()


def encode(event: Event | Opaque) -> bytes:
    """The bytes of an event.

    >>> encode(Void("a1", 5)).hex(" ")
    '02 93 04 a2 61 31 05'
    """
    if type(event) is Decision and type(event.x) is not np.ndarray:
        raise TypeError(f"the row of a decision is a float32 vector, not {event.x!r}")
    if type(event) is Opaque:
        return event.data
    return _VERSION_BYTE + encoder.encode(event)


def digest_of(data: bytes | memoryview) -> bytes:
    """What names the bytes of an event: nobody finds others that have the same digest.

    >>> digest_of(encode(Void("a1", 5))).hex()[:16]
    'd3ec9f17e1c0985a'
    """
    return blake2b(data, digest_size=32).digest()


def decode(data: bytes | memoryview) -> Event:
    """The event that :func:`encode` wrote.

    Raises:
        UnknownEvent: a version or kind this release does not know.
        CorruptEvent: the bytes are no event.
    """
    view = memoryview(data)
    if not view:
        raise CorruptEvent("an event has at least one byte")
    if view[0] != VERSION:
        raise UnknownEvent(view[0])
    try:
        return _decoder.decode(view[1:])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        _raise_if_unknown_kind(view[1:])
        raise CorruptEvent(f"not an event: {error}") from None


def read_event(data: bytes | memoryview) -> Event | Opaque:
    """The event that :func:`encode` wrote; unread where only a newer release could read it.

    >>> read_event(encode(Void("a1", 5)))
    Void(id='a1', at_us=5)
    >>> read_event(bytes([99]) + b" from a newer release")
    Opaque(data=b'c from a newer release')

    Raises:
        CorruptEvent: the bytes are no event.
    """
    try:
        return decode(data)
    except UnknownEvent:
        return Opaque(bytes(data))


def _raise_if_unknown_kind(body: memoryview) -> None:
    try:
        parts = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return
    if isinstance(parts, list) and parts and isinstance(parts[0], int) and parts[0] not in _KINDS:
        raise UnknownEvent(VERSION, parts[0])


def _row_from_bytes(_: type, data: bytes) -> Row:
    return np.frombuffer(data, dtype="<f4")


_VERSION_BYTE = bytes([VERSION])
_KINDS = {kind.__struct_config__.tag for kind in get_args(Event)}
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event, dec_hook=_row_from_bytes)
