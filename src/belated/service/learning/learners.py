"""Runs all learners of a process in one thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from belated.exceptions import BelatedError, InvalidInput, JournalError, JournalUnavailable
from belated.fold.fold import Fold
from belated.fold.partitioned import PartitionFold, check_mergeable
from belated.journals import Store
from belated.journals.coordination import leaders
from belated.journals.outcomes import OutcomeLog
from belated.journals.store import StoreSession
from belated.service.learning.leader import PUBLISH
from belated.service.learning.learning_service import LearningService
from belated.service.learning.lease import SECONDS, LeaseRenewal, new_holder
from belated.service.learning.shared_learner import SharedLearner
from belated.service.runtime import SharedThreads, ThreadRuntime, Worker
from belated.service.serving.definition import Definition

#: Interval between polls of idle journals in seconds: initially, and the maximum after doubling.
IDLE, MAX_IDLE = 0.005, 0.1
#: Interval between polls at a low rate of records, in seconds. It equals the publishing interval,
#: because a poll costs as much as folding ten records. After a turn that has folded at least `MANY`
#: records, the next turn follows immediately.
PACE, MANY = PUBLISH, 500
#: Seconds until the next call of a learner that shares a bandit, that stands by, whose journal is
#: unavailable, or that has failed with an unexpected error.
SHARED, STAND_BY, UNAVAILABLE, FAILED = 0.02, 0.2, 0.2, 5.0
#: Timeout for stopping all learners, in seconds. The next leader folds any unsaved records again.
STOP = 15.0

#: Either kind of learner.
Learning = LearningService | SharedLearner

log = logging.getLogger("belated.service")


class LearnerSessions:
    """Three connections, shared by any number of learners and each opened on first use.

    Reading, coordination and snapshots use separate connections, so that leases do not expire while
    a large snapshot is being written.

    Args:
        store: Store that contains the journals.
        lease: Duration of leases in seconds.
    """

    def __init__(self, store: Store, lease: float) -> None:
        self._open = store.session
        self._lease = lease
        #: Holder name for the leases of all learners in the process.
        self.holder = new_holder()
        #: Threads for the leases, fits and snapshots of all learners.
        self.threads = SharedThreads()

    @cached_property
    def reading(self) -> StoreSession:
        """Connection for reading records."""
        return self._open()

    @cached_property
    def coordinating(self) -> StoreSession:
        """Connection for leases and models."""
        return self._open()

    @cached_property
    def renewal(self) -> LeaseRenewal:
        """Renews all leases."""
        return LeaseRenewal(self.coordinating.cells, self._lease, self.threads)

    @cached_property
    def saving(self) -> StoreSession:
        """Connection for snapshots."""
        return self._open()

    def close(self) -> None:
        """Stop the threads and close the connections. Call this after all learners have stopped."""
        self.threads.stop()
        for name in ("reading", "coordinating", "saving"):
            if name in vars(self):
                getattr(self, name).close()


class Look(NamedTuple):
    """The state of a bandit's journal.

    Attributes:
        ends: Position of the last record in each partition.
        led: Whether another learner leads. Queried only for learners on standby.
    """

    ends: tuple[int, ...]
    led: bool


class Learners:
    """Runs the learners of several bandits in one thread.

    A single query finds the journals with new records. Learners of other journals are called only
    when they have other work to do. If a learner fails, the error is logged and the learner is
    replaced; the other learners continue. Leadership changes are logged.

    Args:
        make: Factories for the learners, by bandit.
        sessions: Connections of the learners, closed when the learners stop; None to call every
            learner in every turn.
    """

    def __init__(
        self,
        make: Mapping[str, Callable[[], Learning]],
        sessions: LearnerSessions | None = None,
    ) -> None:
        self._stopped = threading.Event()
        self._sessions = sessions
        self.names = list(make)
        #: Running learners and number of failures, by bandit.
        self.running: dict[str, Learning] = {}
        self.failures: Counter[str] = Counter()
        self._entries = [_Entry(name, factory) for name, factory in make.items()]
        self._unavailable = False
        #: Bandits led by other processes, and the time of the query.
        self._others: set[str] = set()
        self._led_at = -math.inf
        self._pause = IDLE
        self._ended = threading.Event()
        self._worker: Worker | None = None

    def start(self) -> None:
        """Start calling the learners."""
        if self._entries:
            self._worker = ThreadRuntime().start_worker("belated learners", self._turn)

    def stop(self) -> None:
        """Wait for all learners to save their state and release their leases."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.wake()
            self._ended.wait(STOP)
            self._worker.stop(0.0)

    def _turn(self) -> float | None:
        """Call the learners that are due; return the seconds until the next turn."""
        if self._stopped.is_set():
            self._end_all()
            return None
        looks = self._look()
        if looks is None:
            return UNAVAILABLE
        most = 0
        for entry in self._entries:
            if not self._stopped.is_set() and entry.is_due(looks.get(entry.name)):
                most = max(most, self._step(entry))
        if most:
            self._pause = IDLE
            return 0.0 if most >= MANY else PACE
        # Pause even if a learner is due: with a hundred learners, at least one always is.
        pause, self._pause = self._pause, min(2 * self._pause, MAX_IDLE)
        return IDLE if self._sessions is None else pause

    def _end_all(self) -> None:
        try:
            for entry in self._entries:
                self._end(entry)
            if self._sessions is not None:
                self._sessions.close()
        finally:
            self._ended.set()

    def _look(self) -> Mapping[str, Look] | None:
        """Return the state of the journals, by bandit; None while the store is unavailable."""
        # Learners that share a bandit query their own partitions in every step.
        names = [
            entry.name for entry in self._entries if not isinstance(entry.learner, SharedLearner)
        ]
        if self._sessions is None or not names:
            return {}
        try:
            ends, led = self._sessions.reading.ends(names), self._led(self._sessions)
        except JournalUnavailable as error:
            if not self._unavailable:
                _log(logging.WARNING, "the journal is unavailable", "*", error=str(error))
            self._unavailable = True
            return None
        except JournalError:  # raised again and logged by each learner
            return {}
        if self._unavailable:
            _log(logging.INFO, "the journal is available again", "*")
            for entry in self._entries:
                entry.due = -math.inf
        self._unavailable = False
        return {name: Look(positions, name in led) for name, positions in ends.items()}

    def _led(self, sessions: LearnerSessions) -> Collection[str]:
        """Return the bandits that another process leads while the learner here stands by."""
        waiting = [entry.name for entry in self._entries if entry.stands_by()]
        now = time.monotonic()
        if not waiting:
            self._others = set()
        elif now >= self._led_at + STAND_BY:
            self._others, self._led_at = {*leaders(sessions.reading.cells, waiting)}, now
        return self._others

    def _step(self, entry: _Entry) -> int:
        """Call one learner; return the number of records that it folded or appended."""
        try:
            if entry.learner is None:
                entry.learner = self.running[entry.name] = entry.make()
            count = entry.step(entry.learner)
        except JournalUnavailable as error:
            if not entry.unavailable:
                _log(logging.WARNING, "the journal is unavailable", entry.name, error=str(error))
            entry.unavailable = entry.learner is not None
            entry.due = time.monotonic() + (UNAVAILABLE if entry.unavailable else FAILED)
            return 0
        except Exception as error:
            self.failures[entry.name] += 1
            log.exception("a learner failed and will be restarted", extra={"bandit": entry.name})
            # The library's own errors leave folds consistent. Other errors may not.
            self._end(entry, save=isinstance(error, BelatedError))
            entry.due = time.monotonic() + FAILED
            return 0
        if entry.unavailable:
            _log(logging.INFO, "the journal is available again", entry.name)
        entry.unavailable = False
        return count

    def _end(self, entry: _Entry, *, save: bool = True) -> None:
        learner, entry.learner, entry.leads, entry.unavailable = entry.learner, None, None, False
        if learner is not None:
            del self.running[entry.name]
            try:
                learner.close(save=save)
            except Exception:
                log.exception("a learner could not be closed", extra={"bandit": entry.name})


class _Entry:
    """The learner of one bandit, and the time of its next call.

    Attributes:
        due: When to call the learner even without new records, by the monotonic clock.
    """

    def __init__(self, name: str, make: Callable[[], Learning]) -> None:
        self.name = name
        self.make = make
        self.learner: Learning | None = None
        self.leads: bool | None = None
        self.unavailable = False
        self.due = -math.inf
        self._seen: Look | None = None
        self._next: Look | None = None

    def stands_by(self) -> bool:
        """Return whether another learner leads and this learner waits to take over."""
        return self.leads is False and not isinstance(self.learner, SharedLearner)

    def is_due(self, look: Look | None) -> bool:
        """Return whether to call the learner, given the state of its journal."""
        self._next = look
        if time.monotonic() >= self.due:
            return True
        if look is None or self.learner is None or self.unavailable:
            return False
        if self.stands_by():
            return not look.led
        return self._seen is None or look.ends != self._seen.ends

    def step(self, learner: Learning) -> int:
        """Call the learner; return the number of records that it folded or appended."""
        count = learner.step()
        self._seen = self._next
        if self.leads is not learner.leads():
            self.leads = learner.leads()
            _log_leader(self.name, learner)
        if count:
            pause = 0.0
        elif isinstance(learner, SharedLearner):
            pause = SHARED
        elif not self.leads:
            pause = STAND_BY if self._seen is None else math.inf
        else:
            pause = IDLE if self._seen is None else learner.rest()
        self.due = time.monotonic() + pause
        return count


def _log_leader(name: str, learner: Learning) -> None:
    if learner.leads():
        _log(logging.INFO, "this learner leads", name, holder=learner.holder, epoch=learner.epoch)
        return
    leader = learner.coordination.leader()
    shared = isinstance(learner, SharedLearner)
    message = "another learner merges the sums" if shared else "this learner is on standby"
    holder = None if leader is None else leader.holder
    _log(logging.INFO, message, name, holder=learner.holder, leader=holder)


def _log(level: int, message: str, name: str, **fields: object) -> None:
    log.log(level, message, extra={"bandit": name, **fields})


def learner_of(
    definition: Definition,
    store: Store,
    *,
    lease: float = SECONDS,
    sessions: LearnerSessions | None = None,
    bandits: int = 1,
) -> Learning:
    """Create the learner of a bandit: a shared learner if ``definition.learners`` is ``many``.

    Args:
        definition: Definition of the bandit.
        store: Store that contains the journal.
        lease: Duration of the lease in seconds.
        sessions: Shared connections and threads; None to create separate ones.
        bandits: Number of learners that share ``sessions``.
    """
    name, policy, rewards = definition.name, definition.policy, definition.rewards
    reading: Store | StoreSession = store
    coordinating: Store | StoreSession = store
    saving: Store | StoreSession = store
    settings: dict[str, Any] = {"features": definition.features, "lease": lease}
    if definition.holdout is not None:
        settings["holdout"] = definition.holdout.baseline
    if sessions is not None:
        reading, coordinating, saving = sessions.reading, sessions.coordinating, sessions.saving
        settings |= {"runtime": sessions.threads, "renewal": sessions.renewal}
        settings["holder"] = sessions.holder
    if definition.learners == "many":
        check_mergeable(policy, rewards)
    journal = reading.journal(name, partitions=definition.partitions)
    definition.identify(journal)
    coordination, settings["shelf"] = coordinating.coordination(name), saving.journal(name)
    sizes: dict[str, Any] = {
        "features": definition.features,
        "partitions": journal.partitions,
        "retention": definition.retention,
    }
    if definition.outcomes:
        if not isinstance(journal, OutcomeLog):
            message = f"{store.place} cannot store outcomes: remove outcomes = true"
            raise InvalidInput(message, name)
        sizes["outcomes"] = journal
    if definition.learners == "one":
        fold = partial(Fold, policy, rewards, **sizes)
        return LearningService(journal, coordination, fold, bandits=bandits, **settings)
    return SharedLearner(
        journal,
        coordination,
        lambda partition: PartitionFold(policy, rewards, partition=partition, **sizes),
        **settings,
    )


def learners_of(
    definitions: Sequence[Definition], store: Store, *, lease: float = SECONDS
) -> Learners:
    """Create the learners of several bandits, with shared connections and threads."""
    sessions = LearnerSessions(store, lease)
    make = partial(
        learner_of, store=store, lease=lease, sessions=sessions, bandits=len(definitions)
    )
    return Learners(
        {definition.name: partial(make, definition) for definition in definitions}, sessions
    )
