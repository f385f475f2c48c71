"""What every log must do, as tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belated.core.events import (
    Activation,
    Configured,
    Decision,
    Event,
    ModeChanged,
    Opaque,
    Record,
    Reward,
    Settled,
    Void,
)
from belated.core.ids import key_of, new_id, partition_of
from belated.exceptions import InvalidInput, JournalClosed
from belated.journals import Log
from belated.journals.log import FollowedLog
from belated.journals.pages import ColumnLog
from belated.testing.clocks import ManualClock

_ROW = np.array([0.5, -0.0, 1e-45], dtype=np.float32)
_EVERY_KIND: list[Event] = [
    Decision("order-17", 5, "blue", 3, _ROW, 0.25, 1 / 3, 7, activated=False),
    Decision("ключ 🎲", -5, 2**40, 0, np.empty(0, np.float32), -0.0, 1.0, 0),
    Activation("order-17", 6),
    Reward("order-17", 2**53 + 1, 0.1, "click", 2),
    Reward("order-17", 7, math.nan),
    Void("order-17", 8),
    Settled(0, 1_700_000_000_000_000),
    ModeChanged(9, "freeze", "a sale begins"),
    Configured(10, {"window": "7d", "größe": ""}),
]
_FROM_THE_FUTURE = Opaque(b"\xc8written by a release to come")


class LogContract:
    """Subclass it as ``class TestMyLog(LogContract)`` and say how a log is opened.

    Each test opens logs of its own, and closes them. Positions may have gaps.
    """

    def open_journal(self, partitions: int, clock: ManualClock) -> Log:
        """Open a new and empty log."""
        raise NotImplementedError

    def reopen(self, journal: Any, clock: ManualClock) -> Log:
        """Open the same log a second time, while the first is still open.

        Leave it as it is if a log does not outlive its object: tests that need it are skipped.
        """
        pytest.skip("this log does not outlive its object")

    # --- records ----------------------------------------------------------------------------

    def test_a_new_log_is_empty(self) -> None:
        """No partition has a record, an end or a stamp."""
        with self.open_journal(4, ManualClock()) as journal:
            assert isinstance(journal, Log)
            assert journal.partitions == 4
            for partition in range(4):
                assert journal.read(partition, 0, 10) == []
                assert (journal.end(partition), journal.last_stamp(partition)) == (0, 0)

    def test_events_survive_exactly(self) -> None:
        """All kinds come back equal, in the order in which they were appended."""
        with self.open_journal(1, ManualClock()) as journal:
            journal.append(_EVERY_KIND)
            assert [record.event for record in journal.read(0, 0, 100)] == _EVERY_KIND

    def test_positions_increase_and_are_those_of_the_records(self) -> None:
        """The positions that append gives are the places at which the events are found."""
        with self.open_journal(1, ManualClock()) as journal:
            positions = journal.append([Void("a", 1)])
            positions += journal.append([Void("b", 2), Void("c", 3)])
            assert 0 < positions[0] < positions[1] < positions[2] == journal.end(0)
            records = journal.read(0, 0, 10)
            assert [(r.position, r.event) for r in records] == list(
                zip(positions, [Void("a", 1), Void("b", 2), Void("c", 3)], strict=True)
            )

    def test_nothing_may_be_appended(self) -> None:
        """An empty batch has no positions and leaves the journal as it was."""
        with self.open_journal(1, ManualClock()) as journal:
            assert journal.append([]) == []
            journal.import_records([])
            assert journal.end(0) == 0

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_pages_of_any_size_give_every_record_once(self, limit: int) -> None:
        """A page is full unless it is the last, and the next starts where it ended."""
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
    def test_columns_are_the_records(self, limit: int) -> None:
        """If the log gives any: the same, page by page, and none beyond the last."""
        with self.open_journal(1, ManualClock()) as journal:
            if not isinstance(journal, ColumnLog):
                return  # it promises none
            x = np.array([0.5, -1.0], dtype=np.float32)
            decision = Decision("a", 5, "blue", 0, x, 0.5, 1.0, 3)
            journal.append([Void("v", 1), decision, *[Void(f"{n}", n) for n in range(5)]])
            positions = [record.position for record in journal.read(0, 0, 10)]
            for after in (0, *positions):
                columns = journal.read_columns(0, after, limit)
                assert columns.records(0) == journal.read(0, after, limit)
            assert len(journal.read_columns(0, positions[-1], limit)) == 0

    def test_what_follows_directly_is_given_back(self) -> None:
        """If the log can: the very records; none where another was the last, and all are there."""
        with self.open_journal(1, ManualClock()) as journal:
            if not isinstance(journal, FollowedLog):
                return  # it promises nothing of the kind
            journal.append([Void("a", 1)])
            [last] = journal.read(0, 0, 10)
            found = journal.append_after([Void("b", 2), Void("c", 3)], last)
            assert found.records == journal.read(0, last.position, 10)
            assert found.positions == [record.position for record in found.records]
            changed = msgspec.structs.replace(found.records[-1], digest=bytes(32))
            for id, known in (("d", last), ("e", changed)):
                more = journal.append_after([Void(id, 4)], known)
                assert more.records == []
                assert more.positions == [journal.end(0)]
            assert [record.event.id for record in journal.read(0, 0, 10)] == list("abcde")  # type: ignore[union-attr]

    def test_what_cannot_be_read_is_refused(self) -> None:
        """A partition that is not there, a position before the first, a page below nothing."""
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

    def test_an_event_is_in_the_partition_of_its_id(self) -> None:
        """However events are batched, each partition holds those of its ids, in order."""

        @settings(max_examples=max(1, settings().max_examples // 4))  # some commit to a disk
        @given(
            st.lists(st.lists(st.text(min_size=1, max_size=32), max_size=5), max_size=5),
            st.sampled_from([1, 2, 16]),
        )
        def holds(batches: list[list[str]], partitions: int) -> None:
            numbers = count()  # no event twice: a log may keep the same one once
            with self.open_journal(partitions, ManualClock()) as journal:
                expected: dict[int, list[tuple[int, Event]]] = {n: [] for n in range(partitions)}
                for batch in batches:
                    events = [Void(id, next(numbers)) for id in batch]
                    for event, position in zip(events, journal.append(events), strict=True):
                        home = partition_of(key_of(event.id), partitions)
                        expected[home].append((position, event))
                for partition, kept in expected.items():
                    records = journal.read(partition, 0, 1000)
                    assert [(r.position, r.event) for r in records] == kept
                    assert all(r.partition == partition for r in records)

        holds()

    def test_ids_made_here_go_by_their_slot(self) -> None:
        """Slot mod P; settled marks go where they say."""
        with self.open_journal(4, ManualClock()) as journal:
            journal.append([Void(new_id(10**15, slot), slot) for slot in (0, 5, 4094)])
            journal.append([Settled(3, 9)])
            ends = [len(journal.read(partition, 0, 10)) for partition in range(4)]
            assert ends == [1, 1, 1, 1]

    # --- batches ----------------------------------------------------------------------------

    def test_a_batch_with_something_wrong_in_it_leaves_nothing(self) -> None:
        """No event, an event of no partition here, an unreadable one: none of the batch is kept."""
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

    # --- stamps -----------------------------------------------------------------------------

    def test_stamps_are_those_of_the_clock(self) -> None:
        """A batch has one stamp, and the last one is known."""
        clock = ManualClock(1000)
        with self.open_journal(1, clock) as journal:
            journal.append([Void("a", 1), Void("b", 1)])
            clock.now = 1007
            journal.append([Void("c", 1)])
            assert [record.recorded for record in journal.read(0, 0, 10)] == [1000, 1000, 1007]
            assert journal.last_stamp(0) == 1007

    def test_the_clock_that_stamps_can_be_asked(self) -> None:
        """It is not held where stamps are."""
        clock = ManualClock(1000)
        with self.open_journal(1, clock) as journal:
            journal.append([Void("a", 1)])
            clock.now = 900
            assert journal.now() == 900

    def test_a_clock_that_steps_back_is_held(self) -> None:
        """Stamps never decrease within a partition, one event at a time or in batches."""
        clock = ManualClock(1000)
        with self.open_journal(1, clock) as journal:
            for n, clock.now in enumerate((1000, 900, -5, 999, 1001, 1000)):
                journal.append([Void("a", n)])
                journal.append([Void("b", n), Void("c", n)])
            stamps = [record.recorded for record in journal.read(0, 0, 100)]
            assert stamps == [1000] * 12 + [1001] * 6

    def test_a_clock_is_held_in_each_partition_apart(self) -> None:
        """What one partition has seen does not hold the others."""
        clock = ManualClock(1000)
        with self.open_journal(2, clock) as journal:
            journal.append([Settled(0, 1)])
            clock.now = 500
            journal.append([Settled(0, 2), Settled(1, 2)])
            assert (journal.last_stamp(0), journal.last_stamp(1)) == (1000, 500)

    def test_times_may_be_given_with_the_events(self) -> None:
        """They stand for the clock, and are held like it."""
        with self.open_journal(1, ManualClock(1000)) as journal:
            journal.append([Void("a", 1), Void("b", 1), Void("c", 1)], recorded=[70, 50, 80])
            journal.append([Void("d", 1)], recorded=[60])
            assert [record.recorded for record in journal.read(0, 0, 10)] == [70, 70, 80, 80]

    # --- records from elsewhere -------------------------------------------------------------

    def test_imported_records_keep_stamp_and_event(self) -> None:
        """Every kind arrives, also one that cannot be read; the clock goes on from there."""
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

    def test_imported_records_find_their_partition(self) -> None:
        """By id; what cannot be read stays in its own partition modulo the number here."""
        id = new_id(10**15, slot=7)
        records = [Record(0, 1, 5, Void(id, 1)), Record(7, 1, 5, _FROM_THE_FUTURE)]
        with self.open_journal(2, ManualClock()) as journal:
            journal.import_records(records)
            assert [r.event for r in journal.read(1, 0, 10)] == [Void(id, 1), _FROM_THE_FUTURE]
            assert journal.end(0) == 0

    def test_imported_stamps_that_decrease_are_refused_whole(self) -> None:
        """Within the call or against what is there: nothing of the call is kept."""
        first, second = Record(0, 1, 50, Void("a", 1)), Record(0, 2, 40, Void("b", 1))
        with self.open_journal(1, ManualClock(1000)) as journal:
            with pytest.raises(InvalidInput, match="sort"):
                journal.import_records([first, second])
            assert journal.end(0) == 0
            journal.import_records([second, first])
            with pytest.raises(InvalidInput, match="sort"):
                journal.import_records([second])
            assert [record.recorded for record in journal.read(0, 0, 10)] == [40, 50]

    # --- what decisions were chosen from ----------------------------------------------------

    def test_requests_lie_beside_their_decisions(self) -> None:
        """In the partition and at the position of each; those of no other are given."""
        events: list[Event] = [Void("a", 1), *map(_decision, "abcdef"), Settled(0, 5)]
        requests = {n: bytes([1, 0, n]) * 3 for n in (1, 3, 6)}
        with self.open_journal(4, ManualClock()) as journal:
            found = journal.append(events, requests=requests)
            journal.append([_decision("g")])
            (single,) = journal.append([_decision("h")], requests={0: b"h"})
            homes = {id: partition_of(key_of(id), 4) for id in "abcdefgh"}
            for partition in range(4):
                expected = {
                    found[n]: request
                    for n, request in requests.items()
                    if homes["_abcdef"[n]] == partition
                }
                if homes["h"] == partition:
                    expected[single] = b"h"
                everything = [record.position for record in journal.read(partition, 0, 100)]
                assert journal.requests(partition, everything) == expected
                assert journal.requests(partition, list(expected)[:1]) == dict(
                    list(expected.items())[:1]
                )
                assert journal.requests(partition, []) == {}
                assert journal.requests(partition, [999_999]) == {}
            with pytest.raises(InvalidInput):
                journal.requests(4, [1])

    def test_requests_come_with_imported_records(self) -> None:
        """By their place in the call, wherever the records go."""
        records = [Record(0, 10 * n, 5000 + n, _decision(id)) for n, id in enumerate("abcd")]
        with self.open_journal(2, ManualClock(1000)) as journal:
            journal.import_records(iter(records), requests={1: b"of b", 3: b"of d"})
            told = {}
            for partition in range(2):
                for record in journal.read(partition, 0, 10):
                    assert isinstance(record.event, Decision)
                    kept = journal.requests(partition, [record.position])
                    told[record.event.id] = kept.get(record.position)
            assert told == {"a": None, "b": b"of b", "c": None, "d": b"of d"}

    def test_a_request_of_no_decision_leaves_nothing(self) -> None:
        """Of another event, or of none: nothing of the call is kept."""
        with self.open_journal(1, ManualClock()) as journal:
            for place in (1, 2, -1):
                with pytest.raises(InvalidInput, match="no decision"):
                    journal.append([_decision("a"), Void("a", 1)], requests={place: b"x"})
            with pytest.raises(InvalidInput, match="no decision"):
                journal.import_records([Record(0, 1, 5, Void("a", 1))], requests={0: b"x"})
            with pytest.raises(InvalidInput, match="no decision"):
                journal.append([Void("a", 1)], requests={0: b"x"})
            assert journal.end(0) == 0

    # --- several at once --------------------------------------------------------------------

    def test_what_one_writes_the_other_reads(self) -> None:
        """Two objects on one log see each other's records and stamps."""
        clock = ManualClock(1000)
        with self.open_journal(2, clock) as one, self.reopen(one, clock) as other:
            assert (other.bandit, other.partitions) == (one.bandit, 2)
            one.append([Settled(0, 1)])
            clock.now = 900
            other.append([Settled(0, 2)])
            one.append([Settled(0, 3)])
            records = other.read(0, 0, 10)
            assert records == one.read(0, 0, 10)
            assert [record.event for record in records] == [Settled(0, n) for n in (1, 2, 3)]
            assert other.last_stamp(0) == 1000

    # --- the end ----------------------------------------------------------------------------

    def test_a_closed_log_says_so(self) -> None:
        """Every call raises JournalClosed; closing twice is no error."""
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


def _decision(id: str) -> Decision:
    return Decision(id, 5, "blue", 0, _ROW, 0.25, 1.0, 7)
