"""What every coordination store must do, as tests."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from belated.exceptions import JournalClosed, OwnerFenced
from belated.journals import Claim, CoordinationStore, Journal, SentSums
from belated.testing.clocks import ManualClock


class CoordinationContract:
    """Subclass it as ``class TestMyStore(CoordinationContract)`` and say how one is opened."""

    def open_coordination(self, clock: ManualClock) -> CoordinationStore:
        """Open the store of a bandit that is new; its journal has four partitions."""
        raise NotImplementedError

    def reopen(self, store: Any, clock: ManualClock) -> CoordinationStore:
        """Open the same store a second time, while the first is still open."""
        raise NotImplementedError

    def open_journal(self, store: Any, clock: ManualClock) -> Journal:
        """Open the journal of the same bandit, which has four partitions."""
        raise NotImplementedError

    def pass_time(self, store: Any, clock: ManualClock, seconds: float) -> None:
        """Let so many seconds pass; for a store with a clock of its own, move its leases."""
        clock.now += round(seconds * 1e6)

    def test_one_holder_leads_at_a_time(self) -> None:
        """Whoever comes second is told None, and everyone sees who leads and for how long."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            closing(self.reopen(store, clock)) as other,
        ):
            assert isinstance(store, CoordinationStore)
            assert store.leader() is None
            epoch = store.acquire_lease("one", 100.0)
            assert epoch is not None
            assert other.acquire_lease("two", 100.0) is None
            leader = other.leader()
            assert leader is not None
            assert (leader.holder, leader.epoch) == ("one", epoch)
            assert 90.0 < leader.seconds <= 100.0

    def test_a_lease_ends_at_its_end(self) -> None:
        """Not before, and at that very moment no one leads and another may."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            first = store.acquire_lease("one", 100.0)
            assert first is not None
            self.pass_time(store, clock, 90.0)
            assert store.acquire_lease("two", 100.0) is None
            assert store.leader() is not None
            self.pass_time(store, clock, 10.0)
            assert store.leader() is None
            second = store.acquire_lease("two", 100.0)
            assert second is not None
            assert second > first

    def test_a_lease_is_renewed_from_now_on(self) -> None:
        """The epoch stays, also where it had ended and no other came."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            epoch = store.acquire_lease("one", 100.0)
            self.pass_time(store, clock, 60.0)
            assert store.acquire_lease("one", 100.0) == epoch
            self.pass_time(store, clock, 60.0)
            assert store.acquire_lease("two", 100.0) is None
            self.pass_time(store, clock, 60.0)
            assert store.acquire_lease("one", 100.0) == epoch

    def test_a_lease_that_is_released_is_free_at_once(self) -> None:
        """By its holder only; the epoch grows with every other holder."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            store.release_lease("one")
            epochs = [store.acquire_lease("one", 100.0)]
            store.release_lease("two")
            assert store.leader() is not None
            for holder, next_one in (("one", "two"), ("two", "one")):
                store.release_lease(holder)
                assert store.leader() is None
                epochs.append(store.acquire_lease(next_one, 100.0))
            first, second, third = epochs
            assert first is not None
            assert second is not None
            assert third is not None
            assert first < second < third

    def test_models_are_numbered_and_the_last_is_there(self) -> None:
        """Whoever has the last one is told None; bytes of any kind survive."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            closing(self.reopen(store, clock)) as other,
        ):
            assert other.published() is None
            epoch = store.acquire_lease("one", 100.0)
            assert epoch is not None
            data = bytes(range(256)) * 100
            first = store.publish(b"first", epoch)
            assert other.published() == (first, b"first")
            second = store.publish(data, epoch)
            assert second > first
            assert other.published(first) == (second, data)
            assert other.published(second) is None
            # After a restore numbers can be lower than the last one seen.
            assert other.published(second + 5) == (second, data)

    def test_only_the_last_epoch_may_publish(self) -> None:
        """Before anyone leads no one may; a lease that has ended may, until another has led."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            for never in (0, 1):
                with pytest.raises(OwnerFenced):
                    store.publish(b"too early", never)
            first = store.acquire_lease("one", 100.0)
            assert first is not None
            self.pass_time(store, clock, 200.0)
            number = store.publish(b"of one", first)
            second = store.acquire_lease("two", 100.0)
            assert second is not None
            with pytest.raises(OwnerFenced):
                store.publish(b"too late", first)
            assert store.published() == (number, b"of one")
            assert store.publish(b"of two", second) > number

    def test_workers_share_the_partitions(self) -> None:
        """A newcomer waits until others have given back what is beyond their share."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            closing(self.reopen(store, clock)) as other,
        ):
            assert store.claim("one", 100.0) == Claim((0, 1, 2, 3))
            assert other.claim("two", 100.0) == Claim(())
            assert store.claim("one", 100.0) == Claim((0, 1, 2, 3), surplus=(2, 3))
            store.give_back("one", [2])
            assert other.claim("two", 100.0) == Claim((2,))
            store.give_back("one", [3])
            assert other.claim("two", 100.0) == Claim((2, 3))
            assert store.claim("one", 100.0) == Claim((0, 1))
            other.leave("two")
            other.leave("nobody")
            other.give_back("nobody", [0])
            assert store.claim("one", 100.0) == Claim((0, 1, 2, 3))

    def test_a_session_ends_at_its_end(self) -> None:
        """Then others have its partitions; a worker that nobody has replaced keeps its own."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            assert store.claim("one", 100.0) == Claim((0, 1, 2, 3))
            self.pass_time(store, clock, 90.0)
            assert store.claim("two", 100.0) == Claim(())
            self.pass_time(store, clock, 50.0)
            assert store.claim("one", 30.0) == Claim((0, 1, 2, 3), surplus=(2, 3))
            self.pass_time(store, clock, 40.0)
            assert store.claim("two", 100.0) == Claim((0, 1, 2, 3))
            assert store.claim("one", 100.0) == Claim(())

    def test_sums_are_taken_from_the_owner(self) -> None:
        """The last ones of each partition stay, by epoch and position, whenever they came."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            self.open_journal(store, clock) as journal,
        ):
            assert store.sent({}) == []
            assert store.send([SentSums(2, 1, 5, 0, b"of nobody")]) == [2]
            first = journal.acquire(2)
            data = bytes(range(256)) * 100
            sums = SentSums(2, first, 5, 0, data)
            assert store.send([sums]) == []
            assert store.send([SentSums(2, first, 4, 7, b"late")]) == []
            assert store.sent({}) == [sums]
            assert store.sent({2: sums.order}) == []
            centered = SentSums(2, first, 5, 1, b"expanded elsewhere")
            assert store.send([centered]) == []
            assert store.sent({2: sums.order}) == [centered]
            second, other = journal.acquire(2), journal.acquire(0)
            later = SentSums(2, second, 3, 0, b"it knows less, and owns the partition")
            more = SentSums(0, other, 1, 0, b"of another partition")
            assert store.send([SentSums(2, first, 9, 1, b"superseded"), more]) == [2]
            assert store.sent({2: centered.order}) == [more]
            assert store.send([later]) == []
            assert store.sent({0: more.order, 2: centered.order}) == [later]

    def test_a_closed_store_says_so(self) -> None:
        """Every call raises JournalClosed."""
        store = self.open_coordination(ManualClock())
        store.close()
        store.close()
        for call in (
            lambda: store.acquire_lease("one", 1.0),
            lambda: store.release_lease("one"),
            store.leader,
            lambda: store.publish(b"", 1),
            store.published,
            lambda: store.claim("one", 1.0),
            lambda: store.give_back("one", [0]),
            lambda: store.leave("one"),
            lambda: store.send([SentSums(0, 1, 1, 0, b"")]),
            lambda: store.sent({}),
        ):
            with pytest.raises(JournalClosed):
                call()
