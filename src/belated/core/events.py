"""The events that a journal stores, and their codec.

An event is an immutable value. Encoding and decoding preserve it exactly: rows are float32, means
and rewards float64, times whole microseconds. Two events are equal if and only if their bytes are.

An encoded event is one byte for the codec version, followed by a MessagePack array that starts
with the number of its kind. Decoding an unknown version or kind raises :class:`UnknownEvent`;
journals return such events unchanged as :class:`Opaque`. Bytes that are not an event raise
:class:`CorruptEvent`.
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
    if row.dtype is not _LITTLE or row.ndim != 1:  # a big-endian machine, or not a row
        if row.dtype != np.float32 or row.ndim != 1:
            raise TypeError(f"the row of a decision must be a float32 vector, not {row!r}")
        row = row.astype(_LITTLE)
    data: bytes = row.tobytes()
    return data


encoder = msgspec.msgpack.Encoder(enc_hook=_row_to_bytes)


class EventBase(
    msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True, eq=False
):
    """Base class of events. Events are compared by their bytes, so 0.0 and -0.0 are different."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and encoder.encode(self) == encoder.encode(other)

    def __ne__(self, other: object) -> bool:  # overrides the method that msgspec defines
        return not self == other

    def __hash__(self) -> int:
        return hash(encoder.encode(self))


class TimedEvent(EventBase, frozen=True):
    """An event with its reported time."""

    @property
    def at(self) -> datetime:
        """When the event happened, in UTC."""
        return as_datetime(self.at_us)  # type: ignore[attr-defined]


#: What chose the action of a decision.
Source = Literal["policy", "holdout", "baseline", "fallback"]


class Decision(TimedEvent, Result, tag=1, frozen=True):
    """The choice of an action, with everything needed to learn from its reward.

    Attributes:
        id: the id under which the reward is reported.
        at_us: when the decision was made, in microseconds since 1970 by the decider's clock;
            ``at`` is the same as a datetime.
        action: the chosen action, as the caller named it.
        index: the position of the action's row in the request.
        x: the action's row, as float32.
        mean: the action's predicted mean reward at the time of the decision.
        propensity: the probability of choosing this action. Off-policy estimates need
            propensities below 1 that are not tiny: give the policy a ``floor``, or
            ``randomized=True``. A policy that always chooses the highest upper bound has propensity
            1, so its decisions carry no information about other actions. Thompson sampling without
            a floor never chooses its least likely actions, which biases estimates that divide by
            the propensity.
        model: the version of the model that chose the action.
        activated: False if the window does not start until an :class:`Activation` arrives.
        source: what chose the action: the ``policy``; a ``holdout``; the ``baseline``, because of
            the mode; or a ``fallback``, which is the baseline if the policy failed, or the caller's
            choice if the service was unavailable.
        group: the holdout group of the decision; empty without a holdout.
        overall: the probability of the action over all holdout groups; None if it is the
            ``propensity``.
        means: the means predicted by models with other half-lives, if any.
        context: the context from which ``x`` was computed, and the features that computed it; see
            :mod:`belated.fold.contexts`. It may contain personal data. Empty if the caller passed
            rows.

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
        """Return the decision as plain data, with the time in ISO 8601 format."""
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
    """A decision took effect (for example, the email was sent), so its window starts."""

    id: str
    at_us: int


class Reward(TimedEvent, tag=3, frozen=True):
    """The reward of a decision, or one part of it; a higher revision replaces a lower one.

    Attributes:
        id: the id of the decision.
        at_us: when the outcome happened, in microseconds since 1970.
        value: the reward.
        part: the name of the part, if the reward has several parts.
        revision: the revision of this part.
        reporter: the name of the API key that reported it; empty without one.
    """

    id: str
    at_us: int
    value: float
    part: str = ""
    revision: int = 0
    reporter: str = ""


class Void(TimedEvent, tag=4, frozen=True):
    """A decision was never carried out: nothing is learned from it."""

    id: str
    at_us: int


class Settled(EventBase, tag=5, frozen=True):
    """Journal time in a partition has reached ``until``, so windows that end by then have ended.

    Attributes:
        partition: the partition.
        until: the journal time reached, in microseconds since 1970.
        delivered: the time up to which rewards have been delivered, if they arrive in batches; 0 if
            unknown. The fold ignores this field and detects deliveries from reward timestamps.
    """

    partition: int
    until: int
    delivered: int = 0


class ModeChanged(TimedEvent, tag=6, frozen=True):
    """An operator changed the mode of the service; nothing is learned from it.

    Attributes:
        at_us: when this happened, in microseconds since 1970.
        mode: learn, freeze, baseline or off.
        reason: the reason given by the operator.
        actor: who made the change.
    """

    at_us: int
    mode: str
    reason: str = ""
    actor: str = ""


class Configured(TimedEvent, tag=7, frozen=True):
    """The bandit's configuration from this event on, as text; nothing is learned from it.

    Attributes:
        at_us: when this happened, in microseconds since 1970.
        settings: what a missing reward means, the policy and the features, by name.
    """

    at_us: int
    settings: dict[str, str]


class Erased(TimedEvent, tag=8, frozen=True):
    """A decision's data must be erased; the decision counts as if it had never been made.

    Attributes:
        key: the erased key of the decision id, which does not reveal the id; see
            :func:`belated.core.ids.erased_key_of`.
        at_us: when this happened, in microseconds since 1970.
        reason: the reason given by the operator.
        actor: who requested it.
    """

    key: bytes
    at_us: int
    reason: str = ""
    actor: str = ""


class Retracted(TimedEvent, tag=9, frozen=True):
    """The rewards that one reporter sent during a period count as if they had never arrived.

    Attributes:
        partition: the partition; each receives its own event.
        at_us: when this happened, in microseconds since 1970.
        start: start of the period in journal time, in microseconds since 1970.
        end: end of the period (exclusive).
        reporter: the name of the API key, as in the rewards.
        restored: True if the rewards count again.
        reason: the reason given by the operator.
        actor: who requested it.
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
    """Old records of a partition were dropped; the state they produced is stored as its base.

    Attributes:
        partition: the partition; each receives its own event.
        at_us: when this happened, in microseconds since 1970.
        through: the position of the last record that was dropped.
        recorded: when the journal recorded that record, in microseconds since 1970.
        reason: the reason given by the operator.
        actor: who requested it.
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
        at_us: when this happened, in microseconds since 1970.
        key: the id of the key, which is its public part.
        name: the name of the program that uses the key.
        change: ``created`` or ``revoked``.
        scopes: what the key allows.
        reason: the reason given by the operator.
        actor: who made the change.
    """

    at_us: int
    key: str
    name: str
    change: str
    scopes: tuple[str, ...] = ()
    reason: str = ""
    actor: str = ""


class Overwritten(EventBase, tag=12, frozen=True):
    """Replaces a deleted event of an erased decision.

    The record keeps the digest of the original event. An :class:`Erased` event with the same key
    proves that the replacement is legitimate; without one, the journal was tampered with.

    Attributes:
        key: the erased key of the decision id; see :func:`belated.core.ids.erased_key_of`.
    """

    key: bytes


class ActionChanged(TimedEvent, tag=13, frozen=True):
    """An operator paused, resumed or retired an action; nothing is learned from it.

    Only the last event of an action counts. :func:`belated.decider.actions.state_at` computes the
    resulting state.

    Attributes:
        at_us: when this happened, in microseconds since 1970.
        action: the action's name as text; ``"1"`` also names the action ``1``.
        change: pause, resume or retire.
        start: when the change takes effect, in microseconds since 1970; 0 means immediately.
        until: when a pause ends; None if it lasts until the action is resumed.
        reason: the reason given by the operator.
        actor: who made the change.
    """

    at_us: int
    action: str
    change: str
    start: int = 0
    until: int | None = None
    reason: str = ""
    actor: str = ""


class ModelChosen(TimedEvent, tag=16, frozen=True):
    """An operator chose the model used for decisions; learning is not affected.

    Only the last event counts.

    Attributes:
        at_us: when this happened, in microseconds since 1970.
        version: the version of the model; 0 returns to the newest model.
        model: the model as published (:mod:`belated.fold.published`); empty for the newest.
        reason: the reason given by the operator.
        actor: who made the change.
    """

    at_us: int
    version: int
    model: bytes = b""
    reason: str = ""
    actor: str = ""


class SubjectDecision(TimedEvent, tag=14, frozen=True):
    """A decision was made for a subject; appended after the decision, in the same batch.

    Attributes:
        subject: the caller's name for a user, a device or a session; treat it as personal data.
        at_us: when the decision was made, in microseconds since 1970.
        decision: the id of the decision.
    """

    subject: str
    at_us: int
    decision: str

    @property
    def id(self) -> str:
        """The id under which journals index this event."""
        return subject_id(self.subject)


class SubjectReward(TimedEvent, tag=15, frozen=True):
    """An outcome of a subject, to be credited to one of the decisions made for that subject.

    Attributes:
        subject: the subject, under the same name as in the decisions.
        at_us: when the outcome happened, in microseconds since 1970.
        value: the reward.
        event_id: identifies the outcome, which counts once however often it is reported.
        reporter: the name of the API key that reported it; empty without one.
    """

    subject: str
    at_us: int
    value: float
    event_id: str
    reporter: str = ""

    @property
    def id(self) -> str:
        """The id under which journals index this event."""
        return subject_id(self.subject)


#: Codec version, stored in the first byte of every event. Increment it when an event kind gets a
#: new field; a new kind only needs a new tag.
VERSION = 2

#: Events with no data other than a decision id and a time.
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
    """An event whose version or kind this release does not know; its bytes are kept unchanged.

    Attributes:
        data: the bytes, as the newer release wrote them.
    """

    data: bytes


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event with its position in a journal and the time at which the journal recorded it.

    Attributes:
        partition: the partition.
        position: the position within the partition, starting at 1.
        recorded: when the journal recorded it, in microseconds since 1970.
        event: the event that was appended.
        digest: the digest of the event's bytes (:func:`digest_of`), as stored by the journal; empty
            if the journal stores no digests.
    """

    partition: int
    position: int
    recorded: int
    event: Event | Opaque
    digest: bytes = b""


def kind_of(event: Event | Opaque | type[Any]) -> str:
    """Return the kind of an event, or of an event class, as lowercase text.

    >>> kind_of(ModeChanged(5, "off"))
    'mode_changed'
    """
    kind = event if isinstance(event, type) else type(event)
    return "unknown" if kind is Opaque else re.sub(r"\B([A-Z])", r"_\1", kind.__name__).lower()


def encode(event: Event | Opaque) -> bytes:
    """Encode an event.

    >>> encode(Void("a1", 5)).hex(" ")
    '02 93 04 a2 61 31 05'
    """
    if type(event) is Decision and type(event.x) is not np.ndarray:
        raise TypeError(f"the row of a decision must be a float32 vector, not {event.x!r}")
    if type(event) is Opaque:
        return event.data
    return _VERSION_BYTE + encoder.encode(event)


def digest_of(data: bytes | memoryview) -> bytes:
    """Return the cryptographic digest that identifies the bytes of an event.

    >>> digest_of(encode(Void("a1", 5))).hex()[:16]
    'd3ec9f17e1c0985a'
    """
    return blake2b(data, digest_size=32).digest()


def decode(data: bytes | memoryview) -> Event:
    """Decode an event that :func:`encode` wrote.

    Raises:
        UnknownEvent: this release does not know the version or kind.
        CorruptEvent: the bytes are not an event.
    """
    view = memoryview(data)
    if not view:
        raise CorruptEvent("not an event: the data is empty")
    if view[0] != VERSION:
        raise UnknownEvent(view[0])
    try:
        return _decoder.decode(view[1:])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        _raise_if_unknown_kind(view[1:])
        raise CorruptEvent(f"not an event: {error}") from None


def read_event(data: bytes | memoryview) -> Event | Opaque:
    """Decode an event; return it as :class:`Opaque` if its version or kind is unknown.

    >>> read_event(encode(Void("a1", 5)))
    Void(id='a1', at_us=5)
    >>> read_event(bytes([99]) + b" from a newer release")
    Opaque(data=b'c from a newer release')

    Raises:
        CorruptEvent: the bytes are not an event.
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
