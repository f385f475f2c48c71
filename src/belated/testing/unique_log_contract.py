"""What every log that answers by id must do, as tests."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest

from belated.core.events import (
    Activation,
    Configured,
    Decision,
    Erased,
    Event,
    ModeChanged,
    Opaque,
    Overwritten,
    Record,
    Retracted,
    Reward,
    Settled,
    Void,
)
from belated.core.ids import erased_key_of, key_of, new_id, partition_of
from belated.core.rewards import Explicit
from belated.exceptions import InvalidInput, JournalClosed
from belated.fold.fold import Fold
from belated.journals import UniqueLog
from belated.journals.arrivals import erased_key_in
from belated.model.families import Bernoulli
from belated.policies import DelayedUCB
from belated.testing.clocks import ManualClock
from belated.testing.log_contract import LogContract

_ROW = np.array([1.0, 0.5], dtype=np.float32)


class UniqueLogContract(LogContract):
    """Subclass it as ``class TestMyLog(UniqueLogContract)``; it has the tests of a log too."""

    def open_journal(self, partitions: int, clock: ManualClock) -> UniqueLog:
        """Open a new and empty log."""
        raise NotImplementedError

    def reopen(self, journal: Any, clock: ManualClock) -> UniqueLog:
        """Open the same log a second time, while the first is still open."""
        pytest.skip("this log does not outlive its object")

    def test_all_records_of_ids_are_found_and_no_others(self) -> None:
        """By made ids and callers' own, in order, exactly as reading everything finds them."""
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
            everything = [one for p in range(4) for one in log.read(p, 0, 1_000)]
            for some in ([ids[3]], ids[::7], [ids[1], ids[1]], ["nobody"], []):
                expected = [one for one in everything if getattr(one.event, "id", None) in some]
                assert log.records_of(some) == expected

    def test_of_an_id_with_many_records_the_first_are_returned(self) -> None:
        """If so many are wanted; its decision always, wherever it is."""
        with self.open_journal(1, ManualClock()) as log:
            log.append([Reward("a", n, 1.0) for n in range(20)])
            log.append([Reward("b", 1, 1.0), _decision("a"), Void("a", 50)])
            everything = log.read(0, 0, 100)
            assert log.records_of(["a", "b"], 5) == [*everything[:5], *everything[20:22]]
            assert log.records_of(["a"], 0) == [everything[21]]
            assert len(log.records_of(["a"], 100)) == len(log.records_of(["a"])) == 22

    def test_ids_that_begin_alike_are_told_apart(self) -> None:
        """An index may know a part of the key only. Zeros look like nothing that has no id."""
        ids = [f"00000000000070008{end:015x}" for end in range(3)] + ["0" * 32]
        with self.open_journal(1, ManualClock()) as log:
            log.append([*map(_decision, ids), Settled(0, 7), ModeChanged(5, "freeze")])
            for id in ids:
                assert [getattr(one.event, "id", None) for one in log.records_of([id])] == [id]
                assert list(log.decisions([id])) == [id]
            assert [one.event for one in log.settlements(0)] == [Settled(0, 7)]
            assert log.mode() == ModeChanged(5, "freeze")

    def test_under_an_id_no_second_decision_is_taken(self) -> None:
        """The first that was appended stands, also one of the same call; all others are kept."""
        with self.open_journal(4, ManualClock()) as log:
            first = _decision("a")
            (made, _), standing = log.append_unique([first, Reward("a", 5, 1.0)], {"a"})
            assert standing == {}
            given: list[Event] = [
                Reward("a", 6, 0.5, "b"),
                _decision("a", 1, 3),
                _decision("b", 9, 1),
            ]
            (reward, second, new), standing = log.append_unique(given, {"a", "b"})
            assert reward > second == made
            assert standing == {"a": first}
            assert log.decisions(["a", "b"]) == {"a": first, "b": given[2]}
            assert log.append_unique([_decision("b", 1)], ["b"]) == ([new], {"b": given[2]})
            twice = [_decision("c", 9), _decision("c", 8)]
            positions, standing = log.append_unique(twice, ["c"])
            assert (positions[0], standing) == (positions[1], {"c": twice[0]})
            held = [one.event for p in range(4) for one in log.read(p, 0, 100)]
            assert [one for one in held if isinstance(one, Decision)].count(twice[0]) == 1
            assert twice[1] not in held
            assert given[1] not in held

    def test_a_decision_that_is_not_taken_leaves_no_request(self) -> None:
        """Whether it lost to one that was there, or to one of the same call."""
        with self.open_journal(4, ManualClock()) as log:
            (first,), _ = log.append_unique([_decision("a")], {"a"}, {0: b"first"})
            given = [_decision("a", 9), _decision("b"), _decision("b", 9), _decision("c")]
            requests = {n: b"%d" % n for n in range(4)}
            (_, b, _, c), _ = log.append_unique(given, {"a", "b"}, requests)
            for id, position, kept in [("a", first, b"first"), ("b", b, b"1"), ("c", c, b"3")]:
                home = partition_of(key_of(id), 4)
                assert log.requests(home, [position]) == {position: kept}
            held = sum(
                len(log.requests(p, [one.position for one in log.read(p, 0, 100)]))
                for p in range(4)
            )
            assert held == 3

    def test_ids_that_are_not_named_are_not_looked_at(self) -> None:
        """And nothing at all is nothing."""
        with self.open_journal(1, ManualClock()) as log:
            log.append([_decision("a")])
            assert log.append_unique([_decision("a", 9)], ()).standing == {}
            assert len(log.read(0, 0, 9)) == 2
            assert log.append_unique([], {"a"}) == ([], {})
            assert log.append_unique([Void("a", 5)], {"a"}).standing == {}

    def test_ids_that_share_half_their_key_have_a_decision_each(self) -> None:
        """An index may know a part of the key only."""
        ids = [f"018bcfe568007005ab1c2d3e4f50617{n}" for n in range(4)]
        with self.open_journal(1, ManualClock()) as log:
            for id in ids:
                assert log.append_unique([_decision(id)], {id}).standing == {}
            assert len(log.read(0, 0, 9)) == len(ids)
            assert log.append_unique([_decision(ids[2], 9)], ids).standing == {
                ids[2]: _decision(ids[2])
            }

    def test_of_many_that_race_all_are_told_the_same(self) -> None:
        """Threads, each with a log of its own where it can be opened twice."""
        clock = ManualClock()
        with self.open_journal(1, clock) as log:
            try:
                logs = [log, *(self.reopen(log, clock) for _ in range(3))]
            except pytest.skip.Exception:
                logs = [log] * 4
            told: list[list[tuple[int, Decision]]] = [[] for _ in logs]

            def race(who: int) -> None:
                for n in range(25):
                    own = _decision(f"order-{n}", at=100 - who, index=who)
                    (position,), standing = logs[who].append_unique([own], {own.id})
                    told[who].append((position, standing.get(own.id, own)))

            threads = [Thread(target=race, args=(who,)) for who in range(len(logs))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert told == [told[0]] * len(logs)
            assert len(log.read(0, 0, 1_000)) == 25
            for other in logs[1:]:
                if other is not log:
                    other.close()

    def test_the_decision_that_stands_is_that_of_the_ledger(self) -> None:
        """Of several under one id the one that the ledger takes; none where none was made."""
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
            (standing,) = [one.event for one in records if one.position == entry.position]
            assert log.decisions(["a", "b", "c"]) == {"a": standing}

    def test_the_last_settlements_are_found_wherever_they_are(self) -> None:
        """At the end of the partition or far before it, in order, and no others."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.settlements(1) == []
            log.append([Settled(1, until) for until in range(100, 300)])
            found = log.settlements(1)
            assert 1 < len(found) <= 200
            assert found == log.read(1, 0, 1_000)[-len(found) :]
            log.append([_decision(f"{n}") for n in range(200)])
            assert log.settlements(1) == found
            log.append([Settled(1, 300)])
            assert log.settlements(1)[-1].event == Settled(1, 300)
            assert log.settlements(0) == []
            with pytest.raises(InvalidInput):
                log.settlements(2)

    def test_the_mode_is_that_of_the_last_switch(self) -> None:
        """None before the first; other events do not change it."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.mode() is None
            log.append([ModeChanged(9, "freeze", "a sale begins")])
            log.append([_decision(f"{n}") for n in range(20)])
            assert log.mode() == ModeChanged(9, "freeze", "a sale begins")
            log.append([ModeChanged(5, "baseline"), ModeChanged(4, "learn"), Settled(0, 1)])
            assert log.mode() == ModeChanged(4, "learn")

    def test_what_was_erased_can_be_overwritten(self) -> None:
        """Its events and requests are gone; places, stamps and digests stay; once is enough."""
        with self.open_journal(4, ManualClock()) as log:
            key = erased_key_of("order-17")
            home = partition_of(key, 4)
            told: list[Event] = [Reward("order-17", 6, 1.0), _decision("order-17"), Void("b", 7)]
            log.append(told, requests={1: b"the request"})
            with pytest.raises(InvalidInput, match="was not erased"):
                log.overwrite([key])
            log.append([Erased(key, 5)])
            before = log.read(home, 0, 100)
            assert log.overwrite([key]) == 2
            assert log.overwrite([key]) == 0
            after = log.read(home, 0, 100)
            assert [(one.position, one.recorded, one.digest) for one in after] == [
                (one.position, one.recorded, one.digest) for one in before
            ]
            of_it = [one.event for one in after if erased_key_in(one.event) == key]
            assert of_it == [Overwritten(key)] * 2
            assert log.records_of(["b"])[0].event == Void("b", 7)
            assert [one.event for one in log.records_of(["order-17"])] == of_it
            assert log.decisions(["order-17"]) == {}
            assert log.requests(home, [one.position for one in after]) == {}
            log.append(told)  # sent once more: that changes nothing of what was overwritten
            assert log.read(home, 0, len(before)) == after

    def test_what_undoes_is_found(self) -> None:
        """In each partition its own, all of them, in order; and nothing else."""
        with self.open_journal(4, ManualClock()) as log:
            assert log.undone(1) == []
            key = erased_key_of("order-17")
            home = partition_of(key, 4)
            undoing: list[Event] = [Erased(key, 5), Retracted(home, 6, 1, 2, "feed")]
            log.append([_decision("order-17"), undoing[0], Settled(home, 1)])
            log.append([_decision(f"{n}") for n in range(40)])
            log.append([*undoing[1:], Retracted(home ^ 1, 6, 1, 2, "feed")])
            assert [one.event for one in log.undone(home)] == undoing
            assert [one.position for one in log.undone(home)] == sorted(
                one.position for one in log.undone(home)
            )
            assert len(log.undone(home ^ 1)) == 1
            assert log.settlements(home) == [
                one for one in log.read(home, 0, 99) if isinstance(one.event, Settled)
            ]
            with pytest.raises(InvalidInput):
                log.undone(4)

    def test_the_settings_are_the_last_ones(self) -> None:
        """None before the first; neither mode nor anything else changes them."""
        with self.open_journal(2, ManualClock()) as log:
            assert log.configured() is None
            log.append([ModeChanged(5, "freeze"), Configured(9, {"window": "7d"})])
            log.append([_decision(f"{n}") for n in range(20)])
            assert log.configured() == Configured(9, {"window": "7d"})
            log.append([Configured(8, {"window": "1d"}), Configured(7, {}), Settled(0, 1)])
            assert log.configured() == Configured(7, {})
            assert log.mode() == ModeChanged(5, "freeze")
            assert log.read(1, 0, 100) == log.records_of(
                [one.event.id for one in log.read(1, 0, 100)]  # type: ignore[union-attr]
            )

    def test_what_one_appends_the_other_finds(self) -> None:
        """Also after it has looked before."""
        clock = ManualClock()
        with self.open_journal(1, clock) as one, self.reopen(one, clock) as other:
            assert other.decisions(["a"]) == {}
            assert isinstance(other, UniqueLog)
            one.append([_decision("a"), Settled(0, 4), ModeChanged(5, "off")])
            assert other.decisions(["a"]) == {"a": _decision("a")}
            assert other.mode() == ModeChanged(5, "off")
            assert [record.event for record in other.settlements(0)] == [Settled(0, 4)]

    def test_a_closed_log_looks_nothing_up(self) -> None:
        """Every look-up raises JournalClosed."""
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


def _decision(id: str, at: int = 5, index: int = 0) -> Decision:
    return Decision(id, at, index, index, _ROW, 0.5, 1.0, 0)
