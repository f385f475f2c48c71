"""Contract tests for logs and journals."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from belated.core.events import (
    ActionChanged,
    Activation,
    Configured,
    Decision,
    Erased,
    Event,
    ModeChanged,
    ModelChosen,
    Opaque,
    Overwritten,
    Record,
    Retracted,
    Reward,
    Settled,
    Trimmed,
    Void,
)
from belated.core.ids import erased_key_of, key_of, new_id, partition_of
from belated.core.rewards import Explicit
from belated.exceptions import HistoryTrimmed, HistoryUndone, InvalidInput, JournalClosed
from belated.fold.fold import Fold
from belated.journals import Journal, Log, UniqueLog
from belated.journals.arrivals import erased_key_in
from belated.journals.log import FollowedLog
from belated.journals.pages import ColumnLog
from belated.journals.snapshots import Snapshot
from belated.model.families import Bernoulli
from belated.policies import DelayedUCB
from belated.testing.clocks import ManualClock

_ROW = np.array([1.0, 0.5], dtype=np.float32)
_EXACT = np.array([0.5, -0.0, 1e-45], dtype=np.float32)
_EVERY_KIND: list[Event] = [
    Decision("order-17", 5, "blue", 3, _EXACT, 0.25, 1 / 3, 7, activated=False),
    Decision("ключ 🎲", -5, 2**40, 0, np.empty(0, np.float32), -0.0, 1.0, 0),
    Activation("order-17", 6),
    Reward("order-17", 2**53 + 1, 0.1, "click", 2),
    Reward("order-17", 7, math.nan),
    Void("order-17", 8),
    Settled(0, 1_700_000_000_000_000),
    ModeChanged(9, "freeze", "a sale begins"),
    Configured(10, {"window": "7d", "größe": ""}),
    ActionChanged(11, "größe/1", "pause", 12, 13, "sold out", "me"),
    ModelChosen(12, 13, bytes(range(256)), "it was better", "me"),
]
_FROM_THE_FUTURE = Opaque(b"\xc8written by a release to come")


class LogContract:
    """Tests for logs: subclass as ``class TestMyLog(LogContract)``, and define ``open_journal``.

    Each test opens and closes its own logs. Positions need not be consecutive.
    """

    def open_journal(self, partitions: int, clock: ManualClock) -> Log:
        """Open a new, empty log."""
        raise NotImplementedError

    def reopen(self, journal: Any, clock: ManualClock) -> Log:
        """Open the same log a second time while the first one is open.

        Do not define this method if a log does not outlive its object; tests that need it are
        skipped.
        """
        pytest.skip("this log does not outlive its object")

    # --- records ----------------------------------------------------------------------------

    def test_new_log_is_empty(self) -> None:
        """No partition has records, an end or a timestamp."""
        with self.open_journal(4, ManualClock()) as journal:
            assert isinstance(journal, Log)
            assert journal.partitions == 4
            for partition in range(4):
                assert journal.read(partition, 0, 10) == []
                assert (journal.end(partition), journal.last_stamp(partition)) == (0, 0)

    def test_events_round_trip(self) -> None:
        """All kinds of events are read back unchanged and in order."""
        with self.open_journal(1, ManualClock()) as journal:
            journal.append(_EVERY_KIND)
            assert [record.event for record in journal.read(0, 0, 100)] == _EVERY_KIND

    def test_append_returns_increasing_positions(self) -> None:
        """The positions returned by ``append`` are the positions of the records."""
        with self.open_journal(1, ManualClock()) as journal:
            positions = journal.append([Void("a", 1)])
            positions += journal.append([Void("b", 2), Void("c", 3)])
            assert 0 < positions[0] < positions[1] < positions[2] == journal.end(0)
            records = journal.read(0, 0, 10)
            assert [(r.position, r.event) for r in records] == list(
                zip(positions, [Void("a", 1), Void("b", 2), Void("c", 3)], strict=True)
            )

    def test_empty_append_is_allowed(self) -> None:
        """An empty batch returns no positions and changes nothing."""
        with self.open_journal(1, ManualClock()) as journal:
            assert journal.append([]) == []
            journal.import_records([])
            assert journal.end(0) == 0

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_pages_cover_every_record_once(self, limit: int) -> None:
        """Every page except the last is full, and the next page starts where it ended."""
        with self.open_journal(1, ManualClock()) as journal:
            journal.append([Void(f"{n}", n) for n in range(7)])
            whole, after = [], 0
            while page := journal.read(0, after, limit):
                whole += page
                after = page[-1].position
                assert len(page) == limit or after == journal.end(0)
            assert whole == journal.read(0, 0, 100)
            assert [record.event for record in whole] == [Void(f"{n}", n) for n in range(7)]

    @pytest.mark.parametrize("limit", [1, 3, 100])
    def test_columns_equal_the_records(self, limit: int) -> None:
        """If the log supports columns, the columns of each page equal its records."""
        with self.open_journal(1, ManualClock()) as journal:
            if not isinstance(journal, ColumnLog):
                return  # this feature is optional
            x = np.array([0.5, -1.0], dtype=np.float32)
            decision = Decision("a", 5, "blue", 0, x, 0.5, 1.0, 3)
            journal.append([Void("v", 1), decision, *[Void(f"{n}", n) for n in range(5)]])
            positions = [record.position for record in journal.read(0, 0, 10)]
            for after in (0, *positions):
                columns = journal.read_columns(0, after, limit)
                assert columns.records(0) == journal.read(0, after, limit)
            assert len(journal.read_columns(0, positions[-1], limit)) == 0

    def test_append_after_returns_adjacent_records(self) -> None:
        """``append_after`` returns the appended records only if ``last`` was the last record."""
        with self.open_journal(1, ManualClock()) as journal:
            if not isinstance(journal, FollowedLog):
                return  # this feature is optional
            journal.append([Void("a", 1)])
            [last] = journal.read(0, 0, 10)
            appended = journal.append_after([Void("b", 2), Void("c", 3)], last)
            assert appended.records == journal.read(0, last.position, 10)
            assert appended.positions == [record.position for record in appended.records]
            changed = msgspec.structs.replace(appended.records[-1], digest=bytes(32))
            for id, record in (("d", last), ("e", changed)):
                appended = journal.append_after([Void(id, 4)], record)
                assert appended.records == []
                assert appended.positions == [journal.end(0)]
            assert [record.event.id for record in journal.read(0, 0, 10)] == list("abcde")  # type: ignore[union-attr]

    def test_invalid_reads_are_refused(self) -> None:
        """Unknown partitions, negative positions and negative limits raise InvalidInput."""
        with self.open_journal(2, ManualClock()) as journal:
            for partition, after, limit in [(2, 0, 1), (-1, 0, 1), (0, -1, 1), (0, 0, -1)]:
                with pytest.raises(InvalidInput):
                    journal.read(partition, after, limit)
            with pytest.raises(InvalidInput):
                journal.end(2)
            with pytest.raises(InvalidInput):
                journal.last_stamp(-1)
            assert journal.read(0, 0, 0) == []
            assert journal.read(0, 99, 10) == []

    def test_events_are_partitioned_by_id(self) -> None:
        """However events are batched, each partition holds the events of its ids in order."""

        @settings(max_examples=max(1, settings().max_examples // 4))  # some logs sync a disk
        @given(
            st.lists(st.lists(st.text(min_size=1, max_size=32), max_size=5), max_size=5),
            st.sampled_from([1, 2, 16]),
        )
        def holds(batches: list[list[str]], partitions: int) -> None:
            numbers = count()  # makes all events distinct: a log may store duplicates once
            with self.open_journal(partitions, ManualClock()) as journal:
                expected: dict[int, list[tuple[int, Event]]] = {n: [] for n in range(partitions)}
                for batch in batches:
                    events = [Void(id, next(numbers)) for id in batch]
                    for event, position in zip(events, journal.append(events), strict=True):
                        home = partition_of(key_of(event.id), partitions)
                        expected[home].append((position, event))
                for partition, events_of_partition in expected.items():
                    records = journal.read(partition, 0, 1000)
                    assert [(r.position, r.event) for r in records] == events_of_partition
                    assert all(r.partition == partition for r in records)

        holds()

    def test_generated_ids_are_partitioned_by_slot(self) -> None:
        """Generated ids are routed by slot modulo P, settlements to the partition they name."""
        with self.open_journal(4, ManualClock()) as journal:
            journal.append([Void(new_id(10**15, slot), slot) for slot in (0, 5, 4094)])
            journal.append([Settled(3, 9)])
            ends = [len(journal.read(partition, 0, 10)) for partition in range(4)]
            assert ends == [1, 1, 1, 1]

    # --- batches ----------------------------------------------------------------------------

    def test_invalid_batch_stores_nothing(self) -> None:
        """A batch with a non-event, unknown partition or unreadable event stores nothing."""
        wrong: list[object] = ["no event", Settled(2, 5), Settled(-1, 5), _FROM_THE_FUTURE, None]
        with self.open_journal(2, ManualClock()) as journal:
            for event in wrong:
                with pytest.raises(InvalidInput):
                    journal.append([Void("a", 1), event])  # type: ignore[list-item]
                with pytest.raises(InvalidInput):
                    journal.append([event])  # type: ignore[list-item]
            with pytest.raises(InvalidInput):
                journal.append([Void("a", 1), Void("b", 1)], recorded=[1])
            assert (journal.end(0), journal.end(1)) == (0, 0)

    # --- timestamps -----------------------------------------------------------------------------

    def test_records_are_stamped_by_the_clock(self) -> None:
        """Records in a batch have the same timestamp; ``last_stamp`` returns the last one."""
        clock = ManualClock(1000)
        with self.open_journal(1, clock) as journal:
            journal.append([Void("a", 1), Void("b", 1)])
            clock.now = 1007
            journal.append([Void("c", 1)])
            assert [record.recorded for record in journal.read(0, 0, 10)] == [1000, 1000, 1007]
            assert journal.last_stamp(0) == 1007

    def test_now_returns_the_clock_time(self) -> None:
        """``now`` returns the clock's time, even if it is earlier than the last timestamp."""
        clock = ManualClock(1000)
        with self.open_journal(1, clock) as journal:
            journal.append([Void("a", 1)])
            clock.now = 900
            assert journal.now() == 900

    def test_stamps_never_decrease(self) -> None:
        """Timestamps never decrease within a partition, for single events and batches."""
        clock = ManualClock(1000)
        with self.open_journal(1, clock) as journal:
            for n, clock.now in enumerate((1000, 900, -5, 999, 1001, 1000)):
                journal.append([Void("a", n)])
                journal.append([Void("b", n), Void("c", n)])
            stamps = [record.recorded for record in journal.read(0, 0, 100)]
            assert stamps == [1000] * 12 + [1001] * 6

    def test_partitions_have_independent_stamps(self) -> None:
        """The last timestamp of a partition does not affect other partitions."""
        clock = ManualClock(1000)
        with self.open_journal(2, clock) as journal:
            journal.append([Settled(0, 1)])
            clock.now = 500
            journal.append([Settled(0, 2), Settled(1, 2)])
            assert (journal.last_stamp(0), journal.last_stamp(1)) == (1000, 500)

    def test_append_accepts_explicit_stamps(self) -> None:
        """Explicit timestamps replace the clock's time, and never decrease either."""
        with self.open_journal(1, ManualClock(1000)) as journal:
            journal.append([Void("a", 1), Void("b", 1), Void("c", 1)], recorded=[70, 50, 80])
            journal.append([Void("d", 1)], recorded=[60])
            assert [record.recorded for record in journal.read(0, 0, 10)] == [70, 70, 80, 80]

    # --- records from elsewhere -------------------------------------------------------------

    def test_import_preserves_stamps_and_events(self) -> None:
        """An import accepts all events, even unreadable ones, and timestamps never decrease."""
        events = [*_EVERY_KIND, _FROM_THE_FUTURE]
        records = [Record(0, 10 * n, 5000 + n // 2, event) for n, event in enumerate(events)]
        with self.open_journal(1, ManualClock(1000)) as journal:
            journal.import_records(iter(records))
            imported = journal.read(0, 0, 100)
            assert [(r.recorded, r.event) for r in imported] == [
                (r.recorded, r.event) for r in records
            ]
            journal.append([Void("a", 1)])
            assert journal.last_stamp(0) == records[-1].recorded

    def test_import_routes_records_to_partitions(self) -> None:
        """Records are routed by id, and unreadable records by partition modulo the new number."""
        id = new_id(10**15, slot=7)
        records = [Record(0, 1, 5, Void(id, 1)), Record(7, 1, 5, _FROM_THE_FUTURE)]
        with self.open_journal(2, ManualClock()) as journal:
            journal.import_records(records)
            assert [r.event for r in journal.read(1, 0, 10)] == [Void(id, 1), _FROM_THE_FUTURE]
            assert journal.end(0) == 0

    def test_import_refuses_decreasing_stamps(self) -> None:
        """If timestamps decrease, within the call or after existing records, nothing is stored."""
        first, second = Record(0, 1, 50, Void("a", 1)), Record(0, 2, 40, Void("b", 1))
        with self.open_journal(1, ManualClock(1000)) as journal:
            with pytest.raises(InvalidInput, match="sort"):
                journal.import_records([first, second])
            assert journal.end(0) == 0
            journal.import_records([second, first])
            with pytest.raises(InvalidInput, match="sort"):
                journal.import_records([second])
            assert [record.recorded for record in journal.read(0, 0, 10)] == [40, 50]

    # --- requests ---------------------------------------------------------------------------

    def test_requests_are_stored_with_decisions(self) -> None:
        """Requests are returned by the partition and position of their decision."""
        events: list[Event] = [Void("a", 1), *map(_decision, "abcdef"), Settled(0, 5)]
        requests = {n: bytes([1, 0, n]) * 3 for n in (1, 3, 6)}
        with self.open_journal(4, ManualClock()) as journal:
            positions = journal.append(events, requests=requests)
            journal.append([_decision("g")])
            (single,) = journal.append([_decision("h")], requests={0: b"h"})
            homes = {id: partition_of(key_of(id), 4) for id in "abcdefgh"}
            for partition in range(4):
                expected = {
                    positions[n]: request
                    for n, request in requests.items()
                    if homes["_abcdef"[n]] == partition
                }
                if homes["h"] == partition:
                    expected[single] = b"h"
                all_positions = [record.position for record in journal.read(partition, 0, 100)]
                assert journal.requests(partition, all_positions) == expected
                assert journal.requests(partition, list(expected)[:1]) == dict(
                    list(expected.items())[:1]
                )
                assert journal.requests(partition, []) == {}
                assert journal.requests(partition, [999_999]) == {}
            with pytest.raises(InvalidInput):
                journal.requests(4, [1])

    def test_import_stores_requests(self) -> None:
        """Requests are stored with their decisions in any partition."""
        records = [Record(0, 10 * n, 5000 + n, _decision(id)) for n, id in enumerate("abcd")]
        with self.open_journal(2, ManualClock(1000)) as journal:
            journal.import_records(iter(records), requests={1: b"of b", 3: b"of d"})
            imported = {}
            for partition in range(2):
                for record in journal.read(partition, 0, 10):
                    assert isinstance(record.event, Decision)
                    requests = journal.requests(partition, [record.position])
                    imported[record.event.id] = requests.get(record.position)
            assert imported == {"a": None, "b": b"of b", "c": None, "d": b"of d"}

    def test_request_without_a_decision_is_refused(self) -> None:
        """If a request belongs to no decision, nothing is stored."""
        with self.open_journal(1, ManualClock()) as journal:
            for place in (1, 2, -1):
                with pytest.raises(InvalidInput, match="not a decision"):
                    journal.append([_decision("a"), Void("a", 1)], requests={place: b"x"})
            with pytest.raises(InvalidInput, match="not a decision"):
                journal.import_records([Record(0, 1, 5, Void("a", 1))], requests={0: b"x"})
            with pytest.raises(InvalidInput, match="not a decision"):
                journal.append([Void("a", 1)], requests={0: b"x"})
            assert journal.end(0) == 0

    # --- several at once --------------------------------------------------------------------

    def test_two_instances_share_records(self) -> None:
        """Two objects for the same log read each other's records and timestamps."""
        clock = ManualClock(1000)
        with self.open_journal(2, clock) as first, self.reopen(first, clock) as second:
            assert (second.bandit, second.partitions) == (first.bandit, 2)
            first.append([Settled(0, 1)])
            clock.now = 900
            second.append([Settled(0, 2)])
            first.append([Settled(0, 3)])
            records = second.read(0, 0, 10)
            assert records == first.read(0, 0, 10)
            assert [record.event for record in records] == [Settled(0, n) for n in (1, 2, 3)]
            assert second.last_stamp(0) == 1000

    # --- closing ----------------------------------------------------------------------------

    def test_closed_log_raises(self) -> None:
        """Every call raises JournalClosed; closing twice is allowed."""
        journal = self.open_journal(1, ManualClock())
        journal.append([Void("a", 1)])
        journal.close()
        journal.close()
        calls: list[Callable[[], object]] = [
            lambda: journal.append([Void("a", 1)]),
            lambda: journal.append([]),
            lambda: journal.import_records([]),
            lambda: journal.read(0, 0, 1),
            lambda: journal.requests(0, [1]),
            lambda: journal.end(0),
            lambda: journal.last_stamp(0),
            journal.now,
        ]
        for call in calls:
            with pytest.raises(JournalClosed):
                call()


class JournalContract(LogContract):
    """Tests for journals: subclass as ``class TestMyJournal(JournalContract)``.

    Define ``open_journal``; also define ``reopen`` if journals outlive their objects. Each test
    opens and closes its own journals.
    """

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """Open a new, empty journal."""
        raise NotImplementedError

    def reopen(self, journal: Any, clock: ManualClock) -> Journal:
        """Open the same journal a second time while the first one is open."""
        pytest.skip("this journal does not outlive its object")

    def test_lookups_equal_a_full_read(self) -> None:
        """Lookups by generated ids and by callers' ids equal a full read, in order."""
        ids = [new_id(10**15 + n) for n in range(20)] + [f"order-{n}" for n in range(20)]
        events: list[Event] = []
        for n, id in enumerate(ids):
            events += [_decision(id), Reward(id, n, 1.0), Void(id, n)]
        events += [Settled(p, 7) for p in range(4)]
        with self.open_journal(4, ManualClock()) as log:
            assert isinstance(log, UniqueLog)
            assert log.records_of(ids) == []
            log.append(events)
            log.import_records([Record(0, 9, 10**18, Opaque(b"\xc8from a release to come"))])
            log.append([Activation(id, 1) for id in ids])
            records = [record for p in range(4) for record in log.read(p, 0, 1_000)]
            for sample in ([ids[3]], ids[::7], [ids[1], ids[1]], ["nobody"], []):
                expected = [r for r in records if getattr(r.event, "id", None) in sample]
                assert log.records_of(sample) == expected

    def test_lookup_limit_returns_the_first_records(self) -> None:
        """With a limit, the first records of each id are returned, including its decision."""
        with self.open_journal(1, ManualClock()) as log:
            log.append([Reward("a", n, 1.0) for n in range(20)])
            log.append([Reward("b", 1, 1.0), _decision("a"), Void("a", 50)])
            records = log.read(0, 0, 100)
            assert log.records_of(["a", "b"], 5) == [*records[:5], *records[20:22]]
            assert log.records_of(["a"], 0) == [records[21]]
            assert len(log.records_of(["a"], 100)) == len(log.records_of(["a"])) == 22

    def test_ids_with_a_common_prefix_are_distinct(self) -> None:
        """An index may store part of the key; ids of zeros differ from events without an id."""
        ids = [f"00000000000070008{end:015x}" for end in range(3)] + ["0" * 32]
        with self.open_journal(1, ManualClock()) as log:
            log.append([*map(_decision, ids), Settled(0, 7), ModeChanged(5, "freeze")])
            for id in ids:
                assert [getattr(r.event, "id", None) for r in log.records_of([id])] == [id]
                assert list(log.decisions([id])) == [id]
            assert [record.event for record in log.settlements(0)] == [Settled(0, 7)]
            assert log.mode() == ModeChanged(5, "freeze")

    def test_first_decision_with_an_id_wins(self) -> None:
        """The first decision with an id wins, even in a single call; other events are stored."""
        with self.open_journal(4, ManualClock()) as log:
            first = _decision("a")
            (original, _), standing = log.append_unique([first, Reward("a", 5, 1.0)], {"a"})
            assert standing == {}
            events: list[Event] = [
                Reward("a", 6, 0.5, "b"),
                _decision("a", 1, 3),
                _decision("b", 9, 1),
            ]
            (reward, second, new), standing = log.append_unique(events, {"a", "b"})
            assert reward > second == original
            assert standing == {"a": first}
            assert log.decisions(["a", "b"]) == {"a": first, "b": events[2]}
            assert log.append_unique([_decision("b", 1)], ["b"]) == ([new], {"b": events[2]})
            duplicates = [_decision("c", 9), _decision("c", 8)]
            positions, standing = log.append_unique(duplicates, ["c"])
            assert (positions[0], standing) == (positions[1], {"c": duplicates[0]})
            stored = [record.event for p in range(4) for record in log.read(p, 0, 100)]
            assert [event for event in stored if isinstance(event, Decision)].count(
                duplicates[0]
            ) == 1
            assert duplicates[1] not in stored
            assert events[1] not in stored

    def test_rejected_decision_stores_no_request(self) -> None:
        """The request of a rejected decision is dropped, even within a call."""
        with self.open_journal(4, ManualClock()) as log:
            (first,), _ = log.append_unique([_decision("a")], {"a"}, {0: b"first"})
            rivals = [_decision("a", 9), _decision("b"), _decision("b", 9), _decision("c")]
            requests = {n: b"%d" % n for n in range(4)}
            (_, b, _, c), _ = log.append_unique(rivals, {"a", "b"}, requests)
            for id, position, request in [("a", first, b"first"), ("b", b, b"1"), ("c", c, b"3")]:
                home = partition_of(key_of(id), 4)
                assert log.requests(home, [position]) == {position: request}
            stored = sum(
                len(log.requests(p, [record.position for record in log.read(p, 0, 100)]))
                for p in range(4)
            )
            assert stored == 3

    def test_only_the_given_ids_are_checked(self) -> None:
        """Only the ids passed are checked; empty calls are allowed."""
        with self.open_journal(1, ManualClock()) as log:
            log.append([_decision("a")])
            assert log.append_unique([_decision("a", 9)], ()).standing == {}
            assert len(log.read(0, 0, 9)) == 2
            assert log.append_unique([], {"a"}) == ([], {})
            assert log.append_unique([Void("a", 5)], {"a"}).standing == {}

    def test_index_collisions_keep_decisions_apart(self) -> None:
        """An index may store only part of the key; each id still has its own decision."""
        ids = [f"018bcfe568007005ab1c2d3e4f50617{n}" for n in range(4)]
        with self.open_journal(1, ManualClock()) as log:
            for id in ids:
                assert log.append_unique([_decision(id)], {id}).standing == {}
            assert len(log.read(0, 0, 9)) == len(ids)
            assert log.append_unique([_decision(ids[2], 9)], ids).standing == {
                ids[2]: _decision(ids[2])
            }

    def test_concurrent_decisions_with_an_id_agree(self) -> None:
        """All concurrent threads get the same decision for an id."""
        clock = ManualClock()
        with self.open_journal(1, clock) as log:
            try:
                logs = [log, *(self.reopen(log, clock) for _ in range(3))]
            except pytest.skip.Exception:
                logs = [log] * 4
            results: list[list[tuple[int, Decision]]] = [[] for _ in logs]

            def race(thread: int) -> None:
                for n in range(25):
                    own = _decision(f"order-{n}", at=100 - thread, index=thread)
                    (position,), standing = logs[thread].append_unique([own], {own.id})
                    results[thread].append((position, standing.get(own.id, own)))

            threads = [Thread(target=race, args=(number,)) for number in range(len(logs))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert results == [results[0]] * len(logs)
            assert len(log.read(0, 0, 1_000)) == 25
            for other in logs[1:]:
                if other is not log:
                    other.close()

    def test_log_and_ledger_select_the_same_decision(self) -> None:
        """If several decisions have one id, the log and the ledger select the same decision."""
        rivals = [_decision("a", at, index) for at in (9, 5) for index in range(6)]
        with self.open_journal(4, ManualClock()) as log:
            log.append(rivals)
            log.append([Reward("b", 5, 1.0)])
            fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=4)
            home = partition_of(key_of("a"), 4)
            records = log.read(home, 0, 100)
            for record in records:
                fold.take(record)
            entry = fold.ledgers[home].entry("a")
            assert entry is not None
            (standing,) = [r.event for r in records if r.position == entry.position]
            assert log.decisions(["a", "b", "c"]) == {"a": standing}

    def test_settlements_returns_the_latest(self) -> None:
        """The latest settlements are returned in order, wherever they are in the partition."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.settlements(1) == []
            log.append([Settled(1, until) for until in range(100, 300)])
            settlements = log.settlements(1)
            assert 1 < len(settlements) <= 200
            assert settlements == log.read(1, 0, 1_000)[-len(settlements) :]
            log.append([_decision(f"{n}") for n in range(200)])
            assert log.settlements(1) == settlements
            log.append([Settled(1, 300)])
            assert log.settlements(1)[-1].event == Settled(1, 300)
            assert log.settlements(0) == []
            with pytest.raises(InvalidInput):
                log.settlements(2)

    def test_mode_returns_the_latest_change(self) -> None:
        """The mode is initially None; only mode changes affect it."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.mode() is None
            log.append([ModeChanged(9, "freeze", "a sale begins")])
            log.append([_decision(f"{n}") for n in range(20)])
            assert log.mode() == ModeChanged(9, "freeze", "a sale begins")
            log.append([ModeChanged(5, "baseline"), ModeChanged(4, "learn"), Settled(0, 1)])
            assert log.mode() == ModeChanged(4, "learn")

    def test_actions_returns_the_latest_changes(self) -> None:
        """The last change of each action is returned; other events do not affect it."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.actions() == {}
            first = [ActionChanged(5, name, "pause") for name in ("a", "b", "1", "größe/1")]
            log.append(first)
            log.append([_decision(f"{n}") for n in range(20)])
            assert log.actions() == {change.action: change for change in first}
            last = [ActionChanged(7, "a", "resume"), ActionChanged(6, "b", "retire", 9, None, "x")]
            log.append([ActionChanged(6, "a", "retire"), *last, Settled(0, 1)])
            assert log.actions() == {change.action: change for change in (*first, *last)}

    def test_erased_records_can_be_overwritten(self) -> None:
        """Events and requests are removed; positions, timestamps and digests are unchanged."""
        with self.open_journal(4, ManualClock()) as log:
            key = erased_key_of("order-17")
            home = partition_of(key, 4)
            events: list[Event] = [Reward("order-17", 6, 1.0), _decision("order-17"), Void("b", 7)]
            log.append(events, requests={1: b"the request"})
            with pytest.raises(InvalidInput, match="was not erased"):
                log.overwrite([key])
            log.append([Erased(key, 5)])
            before = log.read(home, 0, 100)
            assert log.overwrite([key]) == 2
            assert log.overwrite([key]) == 0
            after = log.read(home, 0, 100)
            assert [(record.position, record.recorded, record.digest) for record in after] == [
                (record.position, record.recorded, record.digest) for record in before
            ]
            overwritten = [r.event for r in after if erased_key_in(r.event) == key]
            assert overwritten == [Overwritten(key)] * 2
            assert log.records_of(["b"])[0].event == Void("b", 7)
            assert [record.event for record in log.records_of(["order-17"])] == overwritten
            assert log.decisions(["order-17"]) == {}
            assert log.requests(home, [record.position for record in after]) == {}
            log.append(events)  # duplicates do not change overwritten records
            assert log.read(home, 0, len(before)) == after

    def test_undone_returns_erasures_and_retractions(self) -> None:
        """Only the partition's erasures and retractions are returned, in order."""
        with self.open_journal(4, ManualClock()) as log:
            assert log.undone(1) == []
            key = erased_key_of("order-17")
            home = partition_of(key, 4)
            undoing: list[Event] = [Erased(key, 5), Retracted(home, 6, 1, 2, "feed")]
            log.append([_decision("order-17"), undoing[0], Settled(home, 1)])
            log.append([_decision(f"{n}") for n in range(40)])
            log.append([*undoing[1:], Retracted(home ^ 1, 6, 1, 2, "feed")])
            assert [record.event for record in log.undone(home)] == undoing
            assert [record.position for record in log.undone(home)] == sorted(
                record.position for record in log.undone(home)
            )
            assert len(log.undone(home ^ 1)) == 1
            assert log.settlements(home) == [
                record for record in log.read(home, 0, 99) if isinstance(record.event, Settled)
            ]
            with pytest.raises(InvalidInput):
                log.undone(4)

    def test_configured_returns_the_latest_settings(self) -> None:
        """Settings are initially None; only configuration events affect them."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.configured() is None
            log.append([ModeChanged(5, "freeze"), Configured(9, {"window": "7d"})])
            log.append([_decision(f"{n}") for n in range(20)])
            assert log.configured() == Configured(9, {"window": "7d"})
            log.append([Configured(8, {"window": "1d"}), Configured(7, {}), Settled(0, 1)])
            assert log.configured() == Configured(7, {})
            assert log.mode() == ModeChanged(5, "freeze")
            assert log.read(1, 0, 100) == log.records_of(
                [record.event.id for record in log.read(1, 0, 100)]  # type: ignore[union-attr]
            )

    def test_two_instances_share_lookups(self) -> None:
        """Events appended through one object are found through another, even after a lookup."""
        clock = ManualClock()
        with self.open_journal(1, clock) as first, self.reopen(first, clock) as second:
            assert second.decisions(["a"]) == {}
            assert isinstance(second, UniqueLog)
            first.append([_decision("a"), Settled(0, 4), ModeChanged(5, "off")])
            assert second.decisions(["a"]) == {"a": _decision("a")}
            assert second.mode() == ModeChanged(5, "off")
            assert [record.event for record in second.settlements(0)] == [Settled(0, 4)]

    def test_closed_log_refuses_lookups(self) -> None:
        """Every lookup raises JournalClosed."""
        log = self.open_journal(1, ManualClock())
        log.close()
        calls: list[Callable[[], object]] = [
            lambda: log.records_of(["a"]),
            lambda: log.decisions(["a"]),
            lambda: log.append_unique([_decision("a")], {"a"}),
            lambda: log.settlements(0),
            log.mode,
            log.configured,
        ]
        for call in calls:
            with pytest.raises(JournalClosed):
                call()

    def test_implements_the_journal_protocol(self) -> None:
        """The journal implements the ``Journal`` protocol."""
        with self.open_journal(1, ManualClock()) as journal:
            assert isinstance(journal, Journal)

    # --- dropping old records -----------------------------------------------------------------

    def test_drop_removes_records_before_the_base(self) -> None:
        """Records are dropped in steps; later records and operator actions are unchanged."""
        with self.open_journal(1, ManualClock()) as journal:
            places = _fill(journal)
            sixth, seventh = places[5:7]
            before = journal.read(0, 0, 100)
            assert journal.start(0) == (0, 0)
            assert journal.base(0) is None
            assert journal.drop(0, 10) == 0
            base = Snapshot(0, sixth, "v1", {"ledger": b"six", "chain": b""})
            journal.rebase(base, _trimmed(sixth), 1)
            assert journal.start(0) == (sixth, STAMP)
            assert journal.base(0) == base
            while count := journal.drop(0, 2):
                assert count <= 2
            with pytest.raises(HistoryTrimmed):
                journal.read(0, 0, 100)
            after = journal.read(0, sixth, 100)
            assert after[:-1] == before[6:]
            assert after[-1].event == _trimmed(sixth)
            assert journal.mode() == ModeChanged(1, "freeze")
            assert journal.configured() == Configured(1, {"policy": "UCB"})
            assert [r.event for r in journal.undone(0)] == [Erased(erased_key_of("a"), 1)]
            assert journal.settlements(0) == []
            assert journal.records_of(["a", "b"]) == before[6:7]
            assert journal.decisions(["a"]) == {}
            assert journal.requests(0, places[1:2]) == {}
            assert journal.load(0) == Snapshot(0, places[7], "v1", {"ledger": b"eight"})
            (position,) = journal.append([Void("z", 5)])
            assert position > after[-1].position
            later = Snapshot(0, seventh, "v1", {"ledger": b"seven"})
            journal.rebase(later, _trimmed(seventh), 1)
            assert journal.base(0) == later
            journal.drop(0, 100)
            assert journal.read(0, seventh, 1) == before[7:8]

    def test_base_that_loses_data_is_refused(self) -> None:
        """A base needs a later snapshot, and must be newer than the last and include erasures."""
        with self.open_journal(1, ManualClock()) as journal:
            places = _fill(journal)
            sixth, eighth = places[5], places[7]
            base = Snapshot(0, sixth, "v1", {"ledger": b"six"})
            for position in (eighth, eighth + 1):  # the snapshot is at the eighth record
                with pytest.raises(InvalidInput, match="snapshot"):
                    journal.rebase(Snapshot(0, position, "v1", {}), _trimmed(position), 1)
            with pytest.raises(HistoryUndone):
                journal.rebase(base, _trimmed(sixth), 0)
            assert journal.start(0) == (0, 0)
            assert journal.base(0) is None
            assert journal.end(0) == eighth
            journal.rebase(base, _trimmed(sixth), 1)
            assert len(journal.read(0, eighth, 9)) == 1
            for position in (places[4], sixth):
                with pytest.raises(InvalidInput, match="cannot replace"):
                    journal.rebase(Snapshot(0, position, "v1", {}), _trimmed(position), 1)
            assert journal.base(0) == base


def _decision(id: str, at: int = 5, index: int = 0) -> Decision:
    return Decision(id, at, index, index, _ROW, 0.5, 1.0, 0)


#: Timestamp of the last dropped record.
STAMP = 1_006


def _trimmed(position: int) -> Trimmed:
    return Trimmed(0, 7, position, STAMP, "too old", "me")


def _fill(journal: Journal) -> list[int]:
    """Append eight records and save a snapshot; return their positions."""
    decision = Decision("a", 5, 0, 0, np.ones(2, dtype=np.float32), 0.5, 1.0, 0)
    events: list[Event] = [
        ModeChanged(1, "freeze"),
        decision,
        Configured(1, {"policy": "UCB"}),
        Erased(erased_key_of("a"), 1),
        Settled(0, 3),
        Reward("b", 5, 1.0),
        Void("b", 6),
        Reward("c", 5, 1.0),
    ]
    stamps = [STAMP - 5 + n for n in range(8)]
    places = journal.append(events, recorded=stamps, requests={1: b"request"})
    journal.save(Snapshot(0, places[-1], "v1", {"ledger": b"eight"}))
    return places
