"""The Kafka journal: its contracts, and faults that only Kafka can have."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
)

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import (
    Configured,
    Decision,
    Erased,
    ModeChanged,
    Opaque,
    Record,
    Retracted,
    Reward,
    Settled,
    Trimmed,
    Void,
    encode,
)
from belated.core.ids import erased_key_of, new_id
from belated.exceptions import (
    CommitTooLarge,
    CorruptJournal,
    HistoryTrimmed,
    HistoryUndone,
    JournalClosed,
    JournalError,
    JournalUnavailable,
    NotIndexed,
)
from belated.journals import KafkaJournal
from belated.journals.kafka import records as module
from belated.journals.kafka.commits import pack
from belated.journals.snapshots import Snapshot
from belated.testing import LogContract, ManualClock
from tests.integration.kafka_journals import change, open_kafka, raw
from tests.integration.kafka_server import KafkaCluster
from tests.shelf_contract import ShelfContract


class TestKafkaJournal(LogContract, ShelfContract):
    """Both contracts, on a real broker and a real database."""

    @pytest.fixture(autouse=True)
    def _names(self, kafka: KafkaCluster, dsn: str, bandit: str) -> None:
        self.brokers, self.dsn = kafka.address, dsn
        self.names = (f"{bandit}.{n}" for n in count())

    def open_journal(self, partitions: int, clock: ManualClock) -> Any:
        """Open a journal with a new name."""
        return self._open(next(self.names), partitions, clock)

    def reopen(self, journal: KafkaJournal, clock: ManualClock) -> Any:
        """Open it again over new connections."""
        return self._open(journal.bandit, None, clock)

    def _open(self, bandit: str, partitions: int | None, clock: ManualClock) -> KafkaJournal:
        journal = KafkaJournal(
            self.brokers, shelf=self.dsn, bandit=bandit, partitions=partitions, copies=1
        )
        journal._clock = clock
        return journal


# --- stamps, sizes, errors ----------------------------------------------------------------------


def test_stamps_are_the_brokers(opened: KafkaJournal) -> None:
    """In whole milliseconds, one per commit, and close to now."""
    earliest = time.time() - 1
    opened.append([Settled(1, 1), Settled(1, 2)])
    first, second = (record.recorded for record in opened.read(1, 0, 9))
    assert first == second
    assert first % 1000 == 0
    assert earliest <= first / 1e6 <= time.time() + 1
    assert opened.last_stamp(1) == first


def test_what_is_too_large_is_not_sent(kafka: KafkaCluster, dsn: str, opened: KafkaJournal) -> None:
    """The error has the limit; an import of the same is sent in parts, atomically."""
    assert opened._topic is not None
    change(kafka, opened._topic, "max.message.bytes", "100000")
    rewards = [Reward(f"{n:05d}" + "x" * 100, n, 1.0, "p" * 120) for n in range(5_000)]
    with open_kafka(kafka, dsn, opened.bandit) as journal:
        with pytest.raises(CommitTooLarge, match=r"max\.message\.bytes") as error:
            journal.append([Void("a", 1), *rewards])
        assert error.value.limit < error.value.size
        assert [journal.end(partition) for partition in range(4)] == [0] * 4
        journal.import_records([Record(0, 1, 5, event) for event in rewards])
        assert sum(len(journal.read(partition, 0, 5_000)) for partition in range(4)) == 5_000


def test_an_error_of_delivery_reaches_the_caller(kafka: KafkaCluster, opened: KafkaJournal) -> None:
    """Nothing is acknowledged that the brokers have not stored."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    assert opened._topic is not None
    (deletion,) = admin.delete_topics([opened._topic]).values()
    deletion.result(30)
    with pytest.raises(JournalError):
        opened.append([Void("a", 1)])


def test_unreachable_broker_is_unavailable(dsn: str) -> None:
    """Within the timeout; nothing is acknowledged."""
    with pytest.raises(JournalUnavailable):
        KafkaJournal("127.0.0.1:1", shelf=dsn, bandit="nowhere", wait=0.5)


# --- what lies in the topic ---------------------------------------------------------------------


def test_bytes_that_cannot_be_read_are_carried(kafka: KafkaCluster, opened: KafkaJournal) -> None:
    """A commit of a later release is one opaque record; the error for a damaged one names it."""
    opened.append([Settled(0, 1)])
    raw(kafka, opened, b"\xffof a release to come")
    opened.append([Settled(0, 2)])
    events = [record.event for record in opened.read(0, 0, 9)]
    assert events == [Settled(0, 1), Opaque(b"\xffof a release to come"), Settled(0, 2)]
    assert opened.read_columns(0, 0, 9).records(0) == opened.read(0, 0, 9)
    raw(kafka, opened, pack([b"x"]) + b"y")
    opened.append([Settled(0, 3), Settled(1, 1)])
    for _ in range(3):  # it is not passed over afterwards
        with pytest.raises(CorruptJournal, match="offset 3"):
            opened.read(0, 0, 9)
    assert [record.event for record in opened.read(1, 0, 9)] == [Settled(1, 1)]


def test_an_import_is_seen_whole_and_leaves_gaps(opened: KafkaJournal) -> None:
    """The ends of its transaction have offsets: positions have gaps, and the end is a record."""
    records = [Record(0, n, 5_000 + n, Void(f"{n}", n)) for n in range(40)]
    opened.import_records(records)
    opened.import_records([Record(0, 1, 6_000, ModeChanged(5, "freeze")), *later(records)])
    for partition in range(4):
        page = opened.read(partition, 0, 100)
        assert opened.end(partition) == page[-1].position
        assert opened.last_stamp(partition) == page[-1].recorded
        assert opened.read(partition, page[-1].position, 9) == []
        offsets = {record.position >> 16 for record in page}
        assert len(offsets) == 2
        assert max(offsets) - min(offsets) == 2  # the end of the first transaction lies between
    assert opened.mode() == ModeChanged(5, "freeze")


def test_an_import_is_there_when_it_returns(opened: KafkaJournal) -> None:
    """In every partition, although some learn of the commit later."""
    for n in range(40):
        opened.import_records([Record(0, 1, 10 + n, Void(f"{n}.{m}", m)) for m in range(20)])
        total = sum(len(opened.read(partition, 0, 10_000)) for partition in range(4))
        assert total == 20 * (n + 1)


def later(records: list[Record]) -> list[Record]:
    """Run an action after a while."""
    return [msgspec.structs.replace(record, recorded=record.recorded + 2_000) for record in records]


def test_a_transaction_that_fails_leaves_nothing(opened: KafkaJournal) -> None:
    """Readers skip what it has sent, and the journal continues to work."""

    class Broken(Exception):
        pass

    deliver = opened._writer._deliver

    def fail(producer: Producer, values: Sequence[tuple[int, bytes]]) -> list[int]:
        deliver(producer, values)
        raise Broken

    opened._writer._deliver = fail  # type: ignore[method-assign]
    with pytest.raises(Broken):
        opened.import_records([Record(0, n, 5, Settled(n, 1)) for n in range(4)])
    del opened._writer._deliver
    for partition in range(4):
        assert opened.read(partition, 0, 9) == []
        assert opened.end(partition) == 0
    opened.append([Settled(0, 2)])
    assert [record.event for record in opened.read(0, 0, 9)] == [Settled(0, 2)]


def test_an_act_is_found_though_its_writer_died(kafka: KafkaCluster, opened: KafkaJournal) -> None:
    """The next reader copies it to its cell, also when reading columns."""
    raw(kafka, opened, pack([encode(ModeChanged(5, "off"))]))
    raw(kafka, opened, pack([encode(Void("a", 1)), encode(Erased(bytes(24), 1))]), 1)
    assert (opened.mode(), opened.undone(1)) == (None, [])
    opened.read(0, 0, 9)
    opened.read_columns(1, 0, 9)
    assert opened.mode() == ModeChanged(5, "off")
    assert opened.undone(1) == opened.read(1, 1, 9)


def test_acts_are_found_as_they_stand_in_the_log(
    kafka: KafkaCluster, dsn: str, opened: KafkaJournal
) -> None:
    """By another process too, with position and stamp."""
    opened.append([ModeChanged(5, "freeze"), Configured(5, {"window": "7d"}), Settled(0, 1)])
    opened.append([Retracted(2, 6, 1, 2, "feed")])
    with open_kafka(kafka, dsn, opened.bandit) as journal:
        assert journal.mode() == ModeChanged(5, "freeze")
        assert journal.configured() == Configured(5, {"window": "7d"})
        assert journal.undone(2) == journal.read(2, 0, 9)


# --- what is refused ----------------------------------------------------------------------------


def test_what_is_asked_by_id_is_refused_in_words(opened: KafkaJournal) -> None:
    """A decision under a caller's id is rejected: it could be a second one."""
    decision = Decision("order-17", 5, 0, 0, np.ones(2, np.float32), 0.5, 1.0, 0)
    calls: list[Callable[[], object]] = [
        lambda: opened.append_unique([decision], {"order-17"}),
        lambda: opened.decisions(["order-17"]),
        lambda: opened.records_of(["order-17"]),
    ]
    for call in calls:
        with pytest.raises(NotIndexed, match="'order-17': query the bandit or the learner"):
            call()
    with pytest.raises(NotIndexed):
        opened.settlements(0)
    with pytest.raises(JournalError, match="cannot be overwritten"):
        opened.overwrite([bytes(24)])
    assert [opened.end(partition) for partition in range(4)] == [0] * 4
    assert opened.append_unique([Settled(0, 1)], ()).positions == [1]


def test_a_closed_journal_looks_nothing_up(opened: KafkaJournal) -> None:
    """The error is the same for look-ups."""
    opened.close()
    for call in (opened.mode, opened.configured, lambda: opened.decisions(["a"])):
        with pytest.raises(JournalClosed):
            call()


# --- old records --------------------------------------------------------------------------------


def test_old_records_are_dropped_behind_a_base(kafka: KafkaCluster, opened: KafkaJournal) -> None:
    """In whole commits; later records and operator actions are unchanged."""
    positions = opened.append(
        [Void("a", 1), Erased(erased_key_of("a"), 1)], recorded=[1_001, 1_002]
    )
    partition = next(partition for partition in range(4) if opened.end(partition))
    opened.append([Settled(partition, n) for n in range(3)], recorded=[1_003] * 3)
    last_positions = opened.append([Settled(partition, 9)], recorded=[1_004])
    records = opened.read(partition, 0, 99)
    opened.save(Snapshot(partition, last_positions[0], "v1", {}))
    base = Snapshot(partition, positions[1], "v1", {"ledger": b"two"})
    with pytest.raises(HistoryUndone):
        opened.rebase(base, Trimmed(partition, 7, positions[1], 1_002, "old", "me"), 0)
    assert opened.drop(partition, 10) == 0
    opened.rebase(base, Trimmed(partition, 7, positions[1], 1_002, "old", "me"), 1)
    assert opened.base(partition) == base
    assert opened.drop(partition, 10) == 1
    assert opened.drop(partition, 10) == 0
    with pytest.raises(HistoryTrimmed):
        opened.read(partition, 0, 9)
    assert opened.read(partition, positions[1], 99)[:-1] == records[2:]
    assert [record.event for record in opened.undone(partition)] == [Erased(erased_key_of("a"), 1)]
    assert opened.requests(partition, positions) == {}
    delete_behind_its_back(kafka, opened, partition, 2)
    with pytest.raises(CorruptJournal, match="no base replaces it"):
        opened.read(partition, positions[1], 9)


def delete_behind_its_back(
    kafka: KafkaCluster, journal: KafkaJournal, partition: int, before: int
) -> None:
    """Delete records as a retention setting would."""
    assert journal._topic is not None
    admin = AdminClient({"bootstrap.servers": kafka.address})
    (deletion,) = admin.delete_records([TopicPartition(journal._topic, partition, before)]).values()
    deletion.result(30)


# --- a bandit on it -----------------------------------------------------------------------------


def test_a_bandit_goes_on_where_it_was(kafka: KafkaCluster, dsn: str, bandit: str) -> None:
    """It decides, learns and saves; opened by its address it has its state; own ids are refused."""
    address = f"kafka://{kafka.address}?copies=1&shelf={dsn}&bandit={quote(bandit)}"

    def reopened() -> Bandit:
        return Bandit(policy=DelayedUCB(2, Bernoulli()), rewards=Explicit(), journal=address)

    with reopened() as writer:
        decisions = [writer.decide(rows=np.eye(2)) for _ in range(20)]
        for decision in decisions[:10]:
            assert writer.observe(decision.id, 1.0).status == "rewarded"
        with pytest.raises(NotIndexed):
            writer.decide(rows=np.eye(2), id="order-17")
        theta = writer.estimate.theta
    with reopened() as reader:
        assert reader.pending.count == 10
        entry = reader.entry(decisions[0].id)
        assert entry is not None
        assert entry.value == 1.0
        np.testing.assert_allclose(reader.estimate.theta, theta, rtol=1e-9)


def test_what_was_looked_up_once_is_not_fetched_for_ever(
    kafka: KafkaCluster, dsn: str, bandit: str
) -> None:
    """A look-up of the end of a partition must not buffer what comes afterwards."""
    with open_kafka(kafka, dsn, bandit, partitions=2) as journal:
        journal.append([Settled(0, 1), Settled(1, 1)])
        ends = journal.end(0), journal.end(1)
        for n in range(20):
            journal.append([Settled(0, 2 + n)])
        assert journal.end(1) == ends[1]  # it had read the other partition, too
        assert not journal._finder._streams
        assert not journal._finder._connected().assignment()


def test_a_paused_partition_is_read_again(
    opened: KafkaJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an earlier record, after its buffer was full while others were read."""
    monkeypatch.setattr(module, "_AHEAD", 0)
    for n in range(3):
        opened.append([Settled(0, n), Settled(1, n)])
    position = opened.read(0, 0, 9)[1].position
    for _ in range(2):  # the first partition is buffered, and paused for the second one
        opened.read(0, position, 1)
        assert len(opened.read(1, 0, 9)) == 3
        assert [record.event for record in opened.read(0, 0, 1)] == [Settled(0, 0)]


def test_requests_are_found_across_commits(kafka: KafkaCluster, dsn: str, bandit: str) -> None:
    """Close to each other and far apart."""
    rows = np.ones(2, dtype=np.float32)
    with open_kafka(kafka, dsn, bandit) as journal:
        expected: dict[int, bytes] = {}
        for n in range(80):
            decision = Decision(new_id(5), 5, 0, 0, rows, 0.5, 1.0, 0)
            requests = {0: b"%d" % n} if n % 3 else None
            (position,) = journal.append([decision], requests=requests)
            if requests and n not in range(10, 20):
                expected[position] = requests[0]
        assert journal.requests(0, list(expected)) == expected
        assert journal.requests(0, [journal.end(0) + 5_000]) == {}


def test_partitions_that_have_grown_are_told_in_one_question(opened: KafkaJournal) -> None:
    """Those with other ends than the given positions, also if records were lost."""
    assert opened.advanced(dict.fromkeys(range(4), 0)) == set()
    ids = [new_id(1_700_000_000_000_000, slot) for slot in (0, 0, 2)]
    *_, position, last_position = opened.append([Reward(id, 1, 1.0) for id in ids])
    assert opened.advanced(dict.fromkeys(range(4), 0)) == {0, 2}
    assert opened.advanced({0: position, 1: 0, 2: last_position, 3: 0}) == set()
    opened.append([Reward(ids[2], 1, 1.0)])
    assert opened.advanced({0: position, 2: last_position}) == {2}
    assert opened.advanced({0: position + (1 << 16)}) == {0}
