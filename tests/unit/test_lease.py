"""Leases are acquired one by one, and renewed all at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import cast

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.exceptions import JournalUnavailable
from belated.journals import Cells, MemoryStore
from belated.journals.cells import Cell, Outcome
from belated.journals.store import StoreSession
from belated.service.learning.learners import LearnerSessions
from belated.service.learning.lease import PATIENCE, Lease, LeaseRenewal
from belated.service.runtime import Step, ThreadRuntime
from belated.service.serving.definition import Definition
from tests.learners import learning_service

SECONDS = 9.0


class Machine(ThreadRuntime):
    """Its clock stands still, and its one worker steps when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.monotonic: Callable[[], float] = lambda: self.now
        self.step: Step | None = None

    def start_worker(self, name: str, step: Step) -> Machine:
        """Have it step later."""
        self.step = step
        return self

    def wake(self) -> None:
        """It steps when it is told to."""

    def stop(self, seconds: float | None = None) -> None:
        """It steps no more."""
        self.step = None


class Process:
    """Learners of two bandits, and how often the store was asked."""

    def __init__(self, session: StoreSession, name: str) -> None:
        self.machine = Machine()
        self.session = session
        self.asked: list[set[str]] = []
        self.away = False
        renewal = LeaseRenewal(cast(Cells, self), SECONDS, self.machine)
        self.leases = {
            bandit: Lease(session.coordination(bandit), bandit, f"{name}/{bandit}", renewal)
            for bandit in ("a", "b")
        }

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """As the cells of the session do, if they can be reached."""
        self.asked.append({name.removeprefix("lease/") for name in expected})
        if self.away:
            raise JournalUnavailable("away")
        return self.session.cells.transact(expected, puts, deletes)

    def get(self, names: Iterable[str]) -> dict[str, Cell]:
        """As the cells of the session do."""
        return self.session.cells.get(names)

    def lead(self) -> dict[str, int | None]:
        """Ask for all."""
        return {name: lease.renew_or_acquire() for name, lease in self.leases.items()}

    def pass_time(self, seconds: float) -> None:
        """Some time, then a step of the worker."""
        self.machine.now += seconds
        assert self.machine.step is not None
        self.machine.step()


@pytest.fixture
def session() -> StoreSession:
    """With a store in memory."""
    store = MemoryStore()
    for name in ("a", "b"):
        store.journal(name)
    return store.session()


def test_all_are_renewed_in_one_call(session: StoreSession) -> None:
    """And not before it is time: as often as for one."""
    process = Process(session, "one")
    assert process.lead() == {"a": 1, "b": 1}
    process.pass_time(0.0)
    assert process.asked == []
    for _ in range(10):
        process.pass_time(SECONDS / 3)
        assert process.lead() == {"a": 1, "b": 1}
    assert process.asked == [{"a", "b"}] * 10


def test_a_lease_is_held_until_it_ends_though_it_cannot_be_renewed(session: StoreSession) -> None:
    """Then it is acquired again; here nobody else wants it."""
    process = Process(session, "one")
    process.lead()
    process.away = True
    process.pass_time(SECONDS / 3)
    acquired: list[str] = []
    for name, lease in process.leases.items():
        lease._coordination = _Noting(name, acquired)  # type: ignore[assignment]
    process.machine.now = 100.0 + 0.98 * SECONDS
    assert process.lead() == {"a": 1, "b": 1}
    assert acquired == []
    process.machine.now = 100.0 + SECONDS
    assert process.lead() == {"a": 7, "b": 7}
    assert acquired == ["a", "b"]


def test_a_lead_that_another_has_is_given_up(session: StoreSession) -> None:
    """As soon as it would be renewed; the other is renewed as ever."""
    process = Process(session, "one")
    process.lead()
    session.coordination("a").release_lease("one/a")
    assert session.coordination("a").acquire_lease("two", 100.0) == 3
    process.pass_time(SECONDS / 3)
    assert process.lead() == {"a": None, "b": 1}


def test_an_answer_that_comes_late_is_not_of_this_epoch(session: StoreSession) -> None:
    """The lease had ended, another led, and this learner leads again."""
    process = Process(session, "one")
    process.lead()
    lease = process.leases["a"]
    epoch, asked_at = lease.held.epoch, process.machine.now + 1.0
    process.machine.now += SECONDS
    session.coordination("a").release_lease("one/a")
    session.coordination("a").acquire_lease("two", 100.0)
    session.coordination("a").release_lease("two")
    next_epoch = lease.renew_or_acquire()
    assert next_epoch is not None
    assert next_epoch > epoch
    lease.renewed(asked_at, epoch, True)
    lease.renewed(asked_at, epoch, False)
    assert lease.renew_or_acquire() == next_epoch


def test_what_was_left_to_others_is_not_renewed(session: StoreSession) -> None:
    """And with the last lease the worker ends."""
    process = Process(session, "one")
    process.lead()
    process.leases["a"].close()
    process.pass_time(SECONDS / 3)
    assert process.asked == [{"b"}]
    assert session.coordination("a").leader() is None
    process.leases["b"].close()
    assert process.machine.step is None
    assert process.lead() == {"a": 3, "b": 3}  # it may lead again
    process.pass_time(SECONDS / 3)
    assert process.asked[-1] == {"a", "b"}


def test_learners_of_a_process_are_renewed_together() -> None:
    """Under one name, so that one heartbeat is enough."""
    store = MemoryStore()
    sessions = LearnerSessions(store, SECONDS)
    policy = DelayedUCB(2, Bernoulli())
    first, second = (
        learning_service(Definition(name, policy, Explicit()), store, sessions=sessions)
        for name in ("a", "b")
    )
    assert first.lease._renewal is second.lease._renewal is sessions.renewal
    assert first.holder == second.holder
    first.close()
    second.close()
    sessions.close()


def test_a_learner_that_is_stuck_loses_its_lead_and_no_other(session: StoreSession) -> None:
    """Though the heartbeat of its process goes on."""
    process = Process(session, "one")
    process.leases["b"].holder = "one/a"
    process.lead()
    for _ in range(round(PATIENCE)):
        process.leases["b"].renew_or_acquire()
        process.pass_time(SECONDS / 3)
    assert session.coordination("a").leader() is None
    assert session.coordination("b").leader() is not None


class _Noting:
    """Grants a lease, and notes of what."""

    def __init__(self, name: str, acquired: list[str]) -> None:
        self._name, self._acquired = name, acquired

    def acquire_lease(self, holder: str, seconds: float) -> int:
        self._acquired.append(self._name)
        return 7
