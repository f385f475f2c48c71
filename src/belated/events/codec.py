"""The one codec of events."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, get_args

import msgspec
import numpy as np

from belated.events.base import encoder
from belated.events.decisions import Activation, Decision, Reward, Void
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
from belated.exceptions import CorruptEvent, UnknownEvent
from belated.inputs import Row

#: The first byte of every event. A new field means a new number; a new kind has one of its own.
VERSION = 2

Event = (
    Decision
    | Activation
    | Reward
    | Void
    | Settled
    | ModeChanged
    | Configured
    | Erased
    | Retracted
    | Trimmed
    | KeyChanged
    | Overwritten
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
