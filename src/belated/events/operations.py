"""What happens to a bandit as a whole, and what its operators do."""

from __future__ import annotations

from belated.events.base import EventBase, TimedEvent


class Settled(EventBase, tag=5, frozen=True):
    """Journal time in a partition has reached ``until``: whatever was due by then is settled.

    Attributes:
        partition: of the journal.
        until: in microseconds since 1970.
        delivered: up to when rewards have been delivered, where they come in batches; 0: not told.
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
        key: of its id, :func:`belated.ids.erased_key_of`, which does not reveal the id.
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
        key: of the id of the decision, :func:`belated.ids.erased_key_of`.
    """

    key: bytes
