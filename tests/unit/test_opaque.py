import msgspec
import pytest

from belated.core.events import VERSION, Opaque, Record, Reward, decode, encode, read_event
from belated.exceptions import CorruptEvent, UnknownEvent

FROM_A_NEWER_RELEASE = [
    bytes([VERSION + 1]) + b"whatever",
    bytes([VERSION]) + msgspec.msgpack.encode([99, "a", 5]),
]


@pytest.mark.parametrize("data", FROM_A_NEWER_RELEASE)
def test_event_of_newer_release_is_preserved(data: bytes) -> None:
    """Its bytes go in and come out; only who wants to read it is refused."""
    event = read_event(memoryview(data))
    assert event == Opaque(data)
    assert encode(event) == data
    with pytest.raises(UnknownEvent):
        decode(data)


def test_an_event_of_this_release_is_read() -> None:
    """What can be read is not opaque."""
    event = Reward("a", 5, 1.0)
    assert read_event(encode(event)) == event


@pytest.mark.parametrize("data", [b"", bytes([VERSION]), bytes([VERSION, 0x92, 4])])
def test_damage_is_not_carried_as_unknown(data: bytes) -> None:
    """Bytes that no release wrote are refused, not passed on."""
    with pytest.raises(CorruptEvent):
        read_event(data)


def test_opaque_events_are_values() -> None:
    """Equal bytes are equal events, in records too."""
    assert Record(0, 1, 2, Opaque(b"\x09")) == Record(0, 1, 2, Opaque(b"\x09"))
    assert len({Opaque(b"\x09"), Opaque(b"\x09"), Opaque(b"\x0a")}) == 2
