"""The facts a journal keeps, and the one codec that writes them.

An event is an immutable value. What it holds survives the codec exactly: rows are float32, means
and rewards float64, times whole microseconds. Two events are equal if and only if their bytes are.

The bytes are one byte for the version of the codec, then a MessagePack array that starts with the
number of the kind. Bytes of an unknown version or kind raise :class:`UnknownEvent`, and a journal
carries them on unread as :class:`Opaque`; bytes that are no event raise :class:`CorruptEvent`.
"""

from belated.events.codec import (
    VERSION,
    Event,
    Opaque,
    Record,
    decode,
    digest_of,
    encode,
    kind_of,
    read_event,
)
from belated.events.decisions import Activation, Decision, Reward, Source, Void
from belated.events.operations import (
    Configured,
    Erased,
    KeyChanged,
    ModeChanged,
    Overwritten,
    Retracted,
    Settled,
    Trimmed,
)

__all__ = [
    "VERSION",
    "Activation",
    "Configured",
    "Decision",
    "Erased",
    "Event",
    "KeyChanged",
    "ModeChanged",
    "Opaque",
    "Overwritten",
    "Record",
    "Retracted",
    "Reward",
    "Settled",
    "Source",
    "Trimmed",
    "Void",
    "decode",
    "digest_of",
    "encode",
    "kind_of",
    "read_event",
]
