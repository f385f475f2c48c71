"""What one record of Kafka holds; and stamps that are held wherever reading begins."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from belated.exceptions import CorruptJournal, InvalidInput
from belated.journals import open_store
from belated.journals.kafka import records as offsets
from belated.journals.kafka.client import Cluster, KafkaError, KafkaException
from belated.journals.kafka.commits import MAX_EVENTS, Place, pack, unpack
from belated.journals.kafka.records import Offsets, Reader

from confluent_kafka import TopicPartition  # isort: skip

EVENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=20)

NOWHERE = Cluster("nowhere:1", {}, 1.0)


@given(EVENTS, st.booleans(), st.data())
def test_a_commit_comes_back(events: list[bytes], stamped: bool, data: st.DataObject) -> None:
    """Events, stamps and requests, each at its place."""
    stamp = st.integers(-(2**62), 2**62)
    stamps = [data.draw(stamp) for _ in events] if stamped else None
    indices = st.integers(0, len(events) - 1)
    requests = data.draw(st.dictionaries(indices, st.binary(max_size=30), max_size=5))
    commit = unpack(pack(events, stamps, requests), 7, 5_000)
    assert [bytes(commit.event(n)) for n in range(len(commit))] == events
    assert commit.recorded.tolist() == (stamps or [5_000] * len(events))
    assert commit.requests() == requests
    assert commit.last == Place(7, len(events) - 1).position


@given(EVENTS, st.data())
def test_a_commit_that_was_cut_is_noticed(events: list[bytes], data: st.DataObject) -> None:
    """Wherever it was cut, and where something was added: never a shorter commit."""
    value = pack(events, None, {0: b"request"})
    size = data.draw(st.integers(1, len(value) - 1))
    with pytest.raises(CorruptJournal, match="offset 3"):
        unpack(value[:size], 3, 0)
    with pytest.raises(CorruptJournal, match="offset 3"):
        unpack(value + b"x", 3, 0)


def test_what_a_newer_release_wrote_is_carried() -> None:
    """All of it is one event, unread."""
    commit = unpack(b"\xfffrom a release to come", 2, 9_000)
    assert (len(commit), commit.is_read, commit.requests()) == (1, False, {})
    assert bytes(commit.event(0)) == b"\xfffrom a release to come"
    assert commit.recorded.tolist() == [9_000]


@given(st.integers(0, 2**40), st.integers(0, MAX_EVENTS - 1))
def test_a_position_is_a_place(offset: int, number: int) -> None:
    """In the order of places, from 1 on; behind it comes the next one."""
    position = Place(offset, number).position
    assert Place.behind(position - 1) == (offset, number)
    assert Place(offset, number + 1).position == position + 1
    assert position >= 1


class _Brokers(Offsets):
    """Those of a partition whose records have these stamps."""

    def __init__(self, stamps: list[int]) -> None:
        super().__init__(NOWHERE, "topic")
        self._stamps = stamps

    def first_from(self, partition: int, stamp: int) -> int:
        """Return its offset."""
        positions = [n for n, committed in enumerate(self._stamps) if committed >= stamp]
        return positions[0] if positions else 1 << 62


@given(st.lists(st.integers(0, 1 << 42), min_size=1, max_size=12), st.integers(0, 1 << 42))
def test_a_stamp_is_held_wherever_reading_begins(stamps: list[int], floor: int) -> None:
    """As reading from the first record holds it, also behind records that were deleted."""
    reader = Reader(NOWHERE, "topic", _Brokers(stamps), lambda partition: floor)
    for offset, stamp in enumerate(stamps):
        latest = max(floor, *stamps[: offset + 1])
        assert reader._greatest_before(0, offset, stamp) == latest


class _Deaf:
    """A client of Kafka: the first asks one who does not answer."""

    made = 0

    def __init__(self, settings: object) -> None:
        self._answers = _Deaf.made > 0
        _Deaf.made += 1

    def offsets_for_times(
        self, asked: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        """Return where partitions end."""
        if not self._answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition("topic", partition.partition, 7) for partition in asked]


def test_a_question_that_fails_is_asked_by_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reads nothing does not hear that another broker leads."""
    monkeypatch.setattr(offsets, "Consumer", _Deaf)
    asking = Offsets(NOWHERE, "topic")
    assert asking.ends([0, 3]) == {0: 7, 3: 7}
    assert _Deaf.made == 2


def test_an_address_of_kafka_names_brokers_and_a_shelf() -> None:
    """And any settings of the client, but for those that promises rest on."""
    shelf = "postgresql://me:secret@db/shop%3Fsslmode=require"
    store = open_store(f"kafka://k1:9092,k2:9092?shelf={shelf}&copies=1&security.protocol=SSL")
    assert store.name == "kafka"
    assert store.place == "Kafka at k1:9092,k2:9092 and database 'shop' on db"
    assert "secret" not in repr(store)
    for address in (
        "kafka:k1:9092?shelf=postgresql://db/shop",
        "kafka://?shelf=postgresql://db/shop",
        "kafka://k1:9092",
        "kafka://k1:9092?shelf=memory:",
        "kafka://k1:9092?shelf=postgresql://db/shop&copies=none",
    ):
        with pytest.raises(InvalidInput):
            open_store(address)
    with pytest.raises(InvalidInput, match=r"acks"):
        Cluster("k1:9092", {"acks": "1"}, 1.0)
