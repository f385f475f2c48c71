import struct
from typing import Any

import msgspec
import numpy as np
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays

from belated.core.events import (
    VERSION,
    ActionChanged,
    Activation,
    Configured,
    Decision,
    Event,
    ModeChanged,
    ModelChosen,
    Reward,
    Settled,
    Void,
    decode,
    encode,
)
from belated.exceptions import CorruptEvent, UnknownEvent

integers = st.integers(-(2**63), 2**64 - 1)
numbers = st.floats(allow_nan=True, allow_infinity=True)
rows = arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32))
decisions = st.builds(
    Decision,
    id=st.text(),
    at_us=integers,
    action=st.text() | integers,
    index=integers,
    x=rows,
    mean=numbers,
    propensity=numbers,
    model=integers,
    activated=st.booleans(),
)
rewards = st.builds(
    Reward, id=st.text(), at_us=integers, value=numbers, part=st.text(), revision=integers
)
marks = st.builds(Activation, id=st.text(), at_us=integers) | st.builds(
    Void, id=st.text(), at_us=integers
)
events: st.SearchStrategy[Event] = (
    decisions
    | rewards
    | marks
    | st.builds(Settled, partition=integers, until=integers)
    | st.builds(ModeChanged, at_us=integers, mode=st.text(), reason=st.text())
    | st.builds(
        ActionChanged,
        at_us=integers,
        action=st.text(),
        change=st.text(),
        start=integers,
        until=st.none() | integers,
    )
    | st.builds(ModelChosen, at_us=integers, version=integers, model=st.binary())
    | st.builds(Configured, at_us=integers, settings=st.dictionaries(st.text(), st.text()))
)


def _bits(value: Any) -> Any:
    """A value as bytes where == is not enough: floats and rows."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else (type(value), value)


@given(events)
def test_every_event_survives_the_codec(event: Event) -> None:
    """All fields come back with the same bits, and are written as the same bytes."""
    data = encode(event)
    decoded = decode(data)
    assert type(decoded) is type(event)
    for name in event.__struct_fields__:
        assert _bits(getattr(decoded, name)) == _bits(getattr(event, name))
    assert encode(decoded) == data
    assert decoded == event
    assert hash(decoded) == hash(event)


few = st.sampled_from([0.0, -0.0, 1.0, float("nan")])
names = st.sampled_from(["", "a"])
small_rows = st.lists(few, max_size=2).map(lambda entries: np.array(entries, dtype=np.float32))
lookalikes: st.SearchStrategy[Event] = (
    st.builds(Reward, id=names, at_us=st.integers(0, 1), value=few, part=names)
    | st.builds(Activation, id=names, at_us=st.integers(0, 1))
    | st.builds(Void, id=names, at_us=st.integers(0, 1))
    | st.builds(
        Decision,
        id=names,
        at_us=st.just(0),
        action=st.sampled_from([0, 1, "0"]),
        index=st.just(0),
        x=small_rows,
        mean=few,
        propensity=st.just(1.0),
        model=st.just(0),
        activated=st.booleans(),
    )
)


@given(lookalikes, lookalikes)
@example(Reward("a", 0, float("nan")), Reward("a", 0, float("nan")))
@example(Reward("a", 0, 0.0), Reward("a", 0, -0.0))
def test_events_are_equal_if_and_only_if_their_bytes_are(a: Event, b: Event) -> None:
    """Events that nearly look the same included; equal ones have equal hashes."""
    assert (a == b) == (encode(a) == encode(b))
    if a == b:
        assert hash(a) == hash(b)


def _reads_or_refuses(data: bytes) -> None:
    try:
        event = decode(data)
    except (CorruptEvent, UnknownEvent):
        return
    assert isinstance(event, Event)
    assert decode(encode(event)) == event


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    """Nothing but CorruptEvent and UnknownEvent is raised, and what is read is an event."""
    _reads_or_refuses(noise)
    _reads_or_refuses(bytes([VERSION]) + noise)


plain = st.recursive(
    st.none() | st.booleans() | integers | numbers | st.text(max_size=3) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


@given(st.lists(plain, max_size=11), st.integers(1, 5) | plain)
def test_any_message_is_read_or_refused(fields: list[Any], kind: Any) -> None:
    """Well-formed MessagePack with the wrong fields is treated the same way."""
    _reads_or_refuses(bytes([VERSION]) + msgspec.msgpack.encode([kind, *fields]))


@given(events, st.data())
def test_damaged_events_are_read_or_refused(event: Event, data: st.DataObject) -> None:
    """Bytes that were changed, cut out or put in."""
    encoded = encode(event)
    start = data.draw(st.integers(0, len(encoded)))
    stop = data.draw(st.integers(start, min(len(encoded), start + 3)))
    _reads_or_refuses(encoded[:start] + data.draw(st.binary(max_size=3)) + encoded[stop:])
