"""Leases, published models and sums, on the cells of any store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from belated.exceptions import InvalidInput, JournalClosed, OwnerFenced
from belated.journals import MemoryJournal, MemoryStore
from belated.journals.coordination import CoordinationStore, Held, leaders, renew_leases
from belated.testing import ManualClock


class TestCoordination:
    """Of one bandit, in memory."""

    def open_coordination(self, clock: ManualClock) -> CoordinationStore:
        """Open that of a bandit that is new; its journal has four partitions."""
        self.store = MemoryStore(clock=clock)
        self.store.journal(partitions=4)
        return self.store.coordination()

    def reopen(self, store: object, clock: ManualClock) -> CoordinationStore:
        """Open the same a second time, while the first is still open."""
        return self.store.coordination()

    def open_journal(self, store: object, clock: ManualClock) -> MemoryJournal:
        """Open the journal of the same bandit."""
        return self.store.journal()

    def test_one_holder_leads_at_a_time(self) -> None:
        """Whoever comes second is told None, and everyone sees who leads and for how long."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            closing(self.reopen(store, clock)) as peer,
        ):
            assert store.leader() is None
            epoch = store.acquire_lease("one", 100.0)
            assert epoch is not None
            assert peer.acquire_lease("two", 100.0) is None
            leader = peer.leader()
            assert leader is not None
            assert (leader.holder, leader.epoch) == ("one", epoch)
            assert 90.0 < leader.seconds <= 100.0

    def test_a_lease_ends_at_its_end(self) -> None:
        """Not before, and at that very moment no one leads and another may."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            first = store.acquire_lease("one", 100.0)
            assert first is not None
            clock.now += 1_000_000 * round(90.0)
            assert store.acquire_lease("two", 100.0) is None
            assert store.leader() is not None
            clock.now += 1_000_000 * round(10.0)
            assert store.leader() is None
            second = store.acquire_lease("two", 100.0)
            assert second is not None
            assert second > first

    def test_a_lease_is_renewed_from_now_on(self) -> None:
        """The epoch stays, also where it had ended and no other came."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            epoch = store.acquire_lease("one", 100.0)
            clock.now += 1_000_000 * round(60.0)
            assert store.acquire_lease("one", 100.0) == epoch
            clock.now += 1_000_000 * round(60.0)
            assert store.acquire_lease("two", 100.0) is None
            clock.now += 1_000_000 * round(60.0)
            assert store.acquire_lease("one", 100.0) == epoch

    def test_a_lease_that_is_released_is_free_at_once(self) -> None:
        """By its holder only; the epoch grows with every other holder."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            store.release_lease("one")
            epochs = [store.acquire_lease("one", 100.0)]
            store.release_lease("two")
            assert store.leader() is not None
            for holder, successor in (("one", "two"), ("two", "one")):
                store.release_lease(holder)
                assert store.leader() is None
                epochs.append(store.acquire_lease(successor, 100.0))
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
            closing(self.reopen(store, clock)) as peer,
        ):
            assert peer.published() is None
            epoch = store.acquire_lease("one", 100.0)
            assert epoch is not None
            data = bytes(range(256)) * 100
            store.publish(b"first", epoch)
            first, content = peer.published() or (0, b"")
            assert content == b"first"
            store.publish(data, epoch)
            second, content = peer.published(first) or (0, b"")
            assert second > first
            assert content == data
            assert peer.published(second) is None
            # After a restore numbers can be lower than the last one seen.
            assert peer.published(second + 5) == (second, data)

    def test_only_the_last_epoch_may_publish(self) -> None:
        """Before anyone leads no one may; a lease that has ended may, until another has led."""
        clock = ManualClock()
        with closing(self.open_coordination(clock)) as store:
            for epoch in (0, 1):
                with pytest.raises(OwnerFenced):
                    store.publish(b"too early", epoch)
            first = store.acquire_lease("one", 100.0)
            assert first is not None
            clock.now += 1_000_000 * round(200.0)
            store.publish(b"of one", first)
            second = store.acquire_lease("two", 100.0)
            assert second is not None
            with pytest.raises(OwnerFenced):
                store.publish(b"too late", first)
            assert store.published() == (1, b"of one")
            store.publish(b"of two", second)
            assert store.published() == (2, b"of two")

    def test_partitions_are_shared_in_kafka_alone(self) -> None:
        """Brokers assign them; anywhere else the reason is given."""
        with (
            closing(self.open_coordination(ManualClock())) as store,
            pytest.raises(InvalidInput, match=r'learners = "many" is for Kafka'),
        ):
            store.join_group(1.0)

    def test_sums_are_taken_from_the_owner(self) -> None:
        """The last ones of each partition stay, and a sender who was replaced is told so."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            closing(self.reopen(store, clock)) as peer,
            self.open_journal(store, clock) as journal,
        ):
            assert store.sent(4, {}) == {}
            assert store.send({2: (1, b"of nobody")}) == [2]
            assert store.send({2: (0, b"of nobody")}) == [2]
            first, data = journal.acquire(2), bytes(range(256)) * 100
            assert store.send({2: (first, data)}) == []
            assert store.sent(4, {}) == {2: (1, data)}
            assert store.sent(4, {2: 1}) == {}
            assert store.send({2: (first, b"more")}) == []
            assert peer.sent(4, {2: 1}) == {2: (2, b"more")}
            second, third = journal.acquire(2), journal.acquire(0)
            assert store.send({2: (first, b"superseded"), 0: (third, b"of another")}) == [2]
            assert store.sent(4, {2: 2}) == {0: (1, b"of another")}
            assert peer.send({2: (second, b"it knows less, and owns the partition")}) == []
            assert store.sent(4, {0: 1, 2: 2})[2][0] == 3

    def test_sums_that_arrive_late_replace_nothing(self) -> None:
        """Those whose sender has sent others since, though the partition is still its own."""
        clock = ManualClock()
        with (
            closing(self.open_coordination(clock)) as store,
            self.open_journal(store, clock) as journal,
        ):
            epoch, calls = journal.acquire(0), []
            transact = store.cells.transact
            store.cells.transact = lambda *args: calls.append(args) or transact(*args)  # type: ignore
            store.send({0: (epoch, b"first")})
            store.send({0: (epoch, b"second")})
            assert not transact(*calls[0]).ok
            assert store.sent(1, {})[0][1] == b"second"

    def test_a_closed_store_says_so(self) -> None:
        """Every call raises JournalClosed."""
        store = self.open_coordination(ManualClock())
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.acquire_lease("one", 1.0),
            lambda: store.release_lease("one"),
            store.leader,
            lambda: store.publish(b"", 1),
            store.published,
            lambda: store.send({0: (1, b"")}),
            lambda: store.sent(1, {}),
        ]
        for call in calls:
            with pytest.raises(JournalClosed):
                call()


# --- clocks and many bandits ---------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [86_400.0, 11.0])
def test_a_lease_taken_with_a_clock_ahead_ends_when_the_clock_is_right(ahead: float) -> None:
    """It has lasted for a day; now for twice its time at most."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.journal()
    start = clock.now
    clock.now += round(ahead * 1e6)
    assert store.coordination().acquire_lease("one", 10.0) == 1
    clock.now = start
    assert store.coordination().leader() is None
    assert store.coordination().acquire_lease("two", 10.0) == 2


def test_a_clock_that_is_set_back_a_little_ends_no_lease() -> None:
    """It lasts longer by as much, and no longer than twice its time."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.journal()
    store.coordination().acquire_lease("one", 10.0)
    clock.now -= 4_000_000
    assert store.coordination().acquire_lease("two", 10.0) is None
    clock.now += 13_999_999
    assert store.coordination().acquire_lease("two", 10.0) is None
    clock.now += 1
    assert store.coordination().acquire_lease("two", 10.0) == 2


def test_a_hundred_leases_are_renewed_in_one_transaction() -> None:
    """Which writes one cell; those that another has are told apart."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    bandits = [f"bandit {n}" for n in range(100)]
    leases = {}
    for bandit in bandits:
        store.journal(bandit)
        epoch = store.coordination(bandit).acquire_lease("me", 10.0)
        assert epoch is not None
        leases[bandit] = Held("me", epoch)
    cells, calls = store.cells(), []
    transact = cells.transact
    cells.transact = lambda *args: calls.append(args) or transact(*args)  # type: ignore
    clock.now += 9_000_000
    assert renew_leases(cells, leases, 10.0) == {*bandits}
    ((_, writes),) = calls
    assert len(writes) == 1
    clock.now += 9_000_000
    assert len(leaders(cells, bandits)) == 100
    store.coordination("bandit 7").release_lease("me")
    assert store.coordination("bandit 7").acquire_lease("another", 10.0) is not None
    assert renew_leases(cells, leases, 10.0) == {*bandits} - {"bandit 7"}
    assert renew_leases(cells, {}, 10.0) == set()


def test_a_holder_who_has_renewed_meanwhile_is_not_replaced() -> None:
    """Whoever found the heartbeat to be over finds out that it is not."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.journal()
    first, second = store.coordination(), store.coordination()
    assert first.acquire_lease("one", 10.0) == 1
    clock.now += 10_000_000
    get, calls = second.cells.get, []

    def get_late(names, *known):  # type: ignore[no-untyped-def]
        values = get(names, *known)
        calls.append(names)
        if len(calls) == 2:  # the heartbeat was read
            assert renew_leases(first.cells, {"default": Held("one", 1)}, 10.0) == {"default"}
        return values

    second.cells.get = get_late  # type: ignore[method-assign]
    assert second.acquire_lease("two", 10.0) is None
