import math
import struct
from typing import Any

import msgspec
import numpy as np
import pytest

from belated.core.events import (
    VERSION,
    Activation,
    Decision,
    Event,
    KeyChanged,
    Overwritten,
    Record,
    Reward,
    Settled,
    Trimmed,
    Void,
    decode,
    encode,
)
from belated.core.inputs import Row
from belated.exceptions import CorruptEvent, UnknownEvent

ODD_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_DEAD_BEEF))[0]
FLOATS = [0.0, -0.0, 5e-324, -2.5e-310, 1e308, math.inf, -math.inf, math.nan, ODD_NAN, 0.1]
INTEGERS = [0, -1, 127, 128, 2**32, 2**63 - 1, 2**64 - 1, -(2**63)]
IDS = ["", "a1", "é", "日本", "🎲\u200d", "\x00", "x" * 300]


def _row(*entries: float) -> Row:
    return np.array(entries, dtype=np.float32)


def _decision(**changes: Any) -> Decision:
    fields: dict[str, Any] = {
        "id": "a1",
        "at_us": 1_700_000_000_000_000,
        "action": "blue",
        "index": 3,
        "x": _row(0.5, -1.0),
        "mean": 0.25,
        "propensity": 0.5,
        "model": 7,
    }
    return Decision(**(fields | changes))


ROWS = [
    _row(),
    _row(0.0, -0.0, 1e-45, -1e-40, 3.4e38),
    _row(math.nan, math.inf, -math.inf),
    np.frombuffer(struct.pack("<I", 0xFFC0_BEEF), dtype=np.float32),
    np.arange(6, dtype=np.float32)[::2],
]
EVENTS: list[Event] = [
    *(Void(name, 5) for name in IDS),
    *(Void("a", at) for at in INTEGERS),
    *(Activation(name, 5) for name in IDS),
    *(Reward("a", 5, value) for value in FLOATS),
    Reward("a", -5, 1.0, "klick🎲", 2**40),
    Settled(0, 2**63),
    Settled(2**31, -1),
    *(_decision(id=name, action=name) for name in IDS),
    *(_decision(action=number, model=number) for number in INTEGERS),
    *(_decision(mean=value, propensity=value) for value in FLOATS),
    *(_decision(x=x) for x in ROWS),
    _decision(activated=False),
    Trimmed(3, 5, 2**40, 7, "too old", "me"),
    KeyChanged(5, "k1", "shop", "created", ("decide", "reward")),
    Overwritten(bytes(range(24))),
]


def _bits(event: Event) -> list[Any]:
    """The fields with floats and rows as their bytes: -0.0, NaN and 1 are told apart."""
    fields = [getattr(event, name) for name in event.__struct_fields__]
    return [
        (type(field).__name__, field.tobytes() if isinstance(field, np.ndarray) else field)
        if not isinstance(field, float)
        else ("float", struct.pack("<d", field))
        for field in fields
    ]


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_an_event_survives_the_codec_bit_for_bit(event: Event) -> None:
    """Every field comes back with the same type and the same bits, and so do the bytes."""
    data = encode(event)
    decoded = decode(data)
    assert type(decoded) is type(event)
    assert _bits(decoded) == _bits(event)
    assert encode(decoded) == data
    assert decode(memoryview(data)) == decoded


def test_events_are_equal_if_and_only_if_their_bytes_are() -> None:
    """Over all pairs, NaNs, signed zeros and different kinds of the same fields included."""
    events = [*EVENTS, Reward("a", 5, 1), *map(decode, map(encode, EVENTS))]
    mismatches = [
        (a, b)
        for i, a in enumerate(events)
        for b in events[i + 1 :]
        if (a == b) != (encode(a) == encode(b))
    ]
    assert mismatches == []


def test_equal_events_have_equal_hashes() -> None:
    """An event and its copy from the journal are one member of a set."""
    for event in EVENTS:
        assert hash(decode(encode(event))) == hash(event)
    assert _decision() in {_decision()}
    assert _decision(mean=0.5) not in {_decision()}


def test_an_event_equals_nothing_else() -> None:
    """A decision is not equal to its bytes, and a void not to an activation."""
    decision: object = _decision()
    assert decision != encode(_decision())
    assert encode(Void("a", 1)) != encode(Activation("a", 1))


@pytest.mark.parametrize("version", [0, 1, 128, 255])
def test_an_unknown_version_is_told_by_its_number(version: int) -> None:
    """Bytes of another version are not damaged: the error says which version wrote them."""
    with pytest.raises(UnknownEvent) as error:
        decode(bytes([version]) + encode(Void("a", 1))[1:])
    assert (error.value.version, error.value.kind) == (version, None)


@pytest.mark.parametrize("kind", [0, 17, 77, -1, 2**40])
def test_an_unknown_kind_is_told_by_its_number(kind: int) -> None:
    """A kind of a newer release is reported with this version and its number, not as damage."""
    with pytest.raises(UnknownEvent) as error:
        decode(bytes([VERSION]) + msgspec.msgpack.encode([kind, "a", {"new": [1, b"2"]}]))
    assert (error.value.version, error.value.kind) == (VERSION, kind)


@pytest.mark.parametrize("event", [_decision(), Reward("a", 5, 1.0, "p", 2), Settled(1, 2)])
def test_an_event_cut_off_anywhere_is_corrupt(event: Event) -> None:
    """Each proper beginning of the bytes is refused."""
    data = encode(event)
    for length in range(len(data)):
        with pytest.raises(CorruptEvent):
            decode(data[:length])


@pytest.mark.parametrize("event", [_decision(), Reward("a", 5, 1.0, "p", 2), Void("é", 2)])
def test_flipped_bytes_give_an_event_or_one_of_two_errors(event: Event) -> None:
    """Whatever one byte is changed to, nothing but CorruptEvent or UnknownEvent is raised."""
    data = encode(event)
    decodable = 0
    for offset in range(len(data)):
        for value in range(256):
            flipped = data[:offset] + bytes([value]) + data[offset + 1 :]
            try:
                decode(flipped)
            except (CorruptEvent, UnknownEvent):
                continue
            decodable += 1
    assert len(data) <= decodable < 256 * len(data)


def test_random_bytes_give_one_of_two_errors(full: bool) -> None:
    """Noise behind a valid first byte never raises anything else."""
    rng = np.random.default_rng(0)
    for _ in range(100_000 if full else 5_000):
        noise = rng.bytes(int(rng.integers(0, 40)))
        for data in (noise, bytes([VERSION]) + noise, bytes([VERSION, 0x92, 9]) + noise):
            try:
                event = decode(data)
            except (CorruptEvent, UnknownEvent):
                continue
            assert isinstance(event, Event)


@pytest.mark.parametrize("depth", [10, 1_000, 100_000])
def test_deep_nesting_is_corrupt(depth: int) -> None:
    """A thousand arrays inside each other are damage, not a RecursionError."""
    with pytest.raises(CorruptEvent):
        decode(bytes([VERSION]) + b"\x91" * depth)


@pytest.mark.parametrize("event", [_decision(), Activation("a", 1), Void("a", 1), Settled(1, 2)])
def test_an_extra_field_is_refused(event: Event) -> None:
    """A known kind with one field too many is no event of this version."""
    fields = msgspec.msgpack.decode(encode(event)[1:])
    with pytest.raises(CorruptEvent):
        decode(bytes([VERSION]) + msgspec.msgpack.encode([*fields, 0]))


def test_trailing_bytes_are_refused() -> None:
    """Two events in one are damage."""
    with pytest.raises(CorruptEvent):
        decode(encode(Void("a", 1)) * 2)


BAD_ROWS: list[Any] = [
    np.zeros(2),
    np.zeros((1, 2), dtype=np.float32),
    np.float32(1.0),
    np.zeros(2, dtype=">f4"),
    [0.5, 1.0],
    b"\x00\x00\x00\x00",
    None,
    1.5,
]


@pytest.mark.parametrize("x", BAD_ROWS, ids=repr)
def test_a_row_that_is_no_float32_vector_is_refused_at_encode(x: Any) -> None:
    """What could not be read back is not written."""
    with pytest.raises(TypeError, match="float32 vector"):
        encode(_decision(x=x))


def test_a_row_from_the_journal_cannot_be_changed() -> None:
    """The decoded row is read-only and stays as it was when the caller's buffer changes."""
    data = bytearray(encode(_decision()))
    event = decode(memoryview(data))
    assert isinstance(event, Decision)
    with pytest.raises(ValueError, match="read-only"):
        event.x[0] = 1.0
    data[:] = bytes(len(data))
    assert event.x.tolist() == [0.5, -1.0]


def test_a_decision_of_fifty_features_takes_286_bytes() -> None:
    """200 bytes of row, 32 of id and 54 of everything else, headers included."""
    decision = _decision(id="0123456789abcdef" * 2, x=np.ones(50, dtype=np.float32))
    assert len(encode(decision)) == 286


@pytest.mark.parametrize("event", [Void("a", 1), Reward("a", 1, 1.0), _decision()])
def test_an_event_is_frozen(event: Event) -> None:
    """A fact is not changed after it was stated."""
    with pytest.raises(AttributeError):
        event.at_us = 2  # type: ignore[misc, union-attr]


def test_records_hold_an_event_with_its_place() -> None:
    """Records of the same place and event are equal."""
    record = Record(partition=1, position=2, recorded=3, event=_decision())
    assert record == Record(1, 2, 3, _decision())
    assert record != Record(1, 2, 3, _decision(mean=0.5))


def test_equal_events_do_not_differ() -> None:
    """``!=`` is the opposite of ``==``."""
    assert not Void("a", 1) != Void("a", 1)  # noqa: SIM202
    assert Void("a", 1) != Void("a", 2)
