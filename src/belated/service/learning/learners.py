"""The learners of a process: a failure of one does not stop the others."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from belated.exceptions import BelatedError, JournalError, JournalUnavailable
from belated.fold.fold import Fold
from belated.fold.partitioned import PartitionFold, check_mergeable
from belated.journals import Store
from belated.journals.coordination import leaders
from belated.journals.store import StoreSession
from belated.service.learning.leader import PUBLISH
from belated.service.learning.learning_service import LearningService
from belated.service.learning.lease import SECONDS, LeaseRenewal, new_holder
from belated.service.learning.shared_learner import SharedLearner
from belated.service.runtime import SharedThreads, ThreadRuntime, Worker
from belated.service.serving.definition import Definition

#: Seconds between two polls of the journals: while records come, and at most.
IDLE, MAX_IDLE = 0.005, 0.1
#: Seconds between two polls while records trickle in: as often as models are published. A poll
#: costs as much as folding ten records. A turn that folded this many records is followed by the
#: next one at once.
PACE, MANY = PUBLISH, 500
#: Seconds to rest: where others share the work, while another leads, while the journal is
#: unavailable, and after an error that a retry will hardly mend.
SHARED, STAND_BY, AWAY, FAILED = 0.02, 0.2, 0.2, 5.0
#: Seconds in which all must have stopped: what could not be saved by then is folded again by the
#: next leader.
STOP = 15.0

#: A learner of either kind.
Learning = LearningService | SharedLearner

log = logging.getLogger("belated.service")


class LearnerSessions:
    """Three connections, each opened when it is first needed, for any number of learners.

    One reads and folds, one holds leases and publishes, and one writes snapshots: so that no lease
    ends while a large snapshot is written.

    Args:
        store: of the journals.
        lease: seconds for which a lead is held without being renewed.
    """

    def __init__(self, store: Store, lease: float) -> None:
        self._open = store.session
        self._lease = lease
        #: Name under which all learners of the process hold their leases.
        self.holder = new_holder()
        #: For leases, fits and snapshots of all learners.
        self.threads = SharedThreads()

    @cached_property
    def reading(self) -> StoreSession:
        """For the folds."""
        return self._open()

    @cached_property
    def coordinating(self) -> StoreSession:
        """For leases and models."""
        return self._open()

    @cached_property
    def renewal(self) -> LeaseRenewal:
        """Of all leases at once."""
        return LeaseRenewal(self.coordinating.cells, self._lease, self.threads)

    @cached_property
    def saving(self) -> StoreSession:
        """For snapshots."""
        return self._open()

    def close(self) -> None:
        """End the threads and the connections, once all learners have stopped."""
        self.threads.stop()
        for name in ("reading", "coordinating", "saving"):
            if name in vars(self):
                getattr(self, name).close()


class Look(NamedTuple):
    """The state of a bandit's journal.

    Attributes:
        ends: position of the last record of each partition.
        led: whether another learner leads, for a learner that stands by.
    """

    ends: tuple[int, ...]
    led: bool


class Learners:
    """The learners of several bandits, in one thread.

    One query finds the journals that have grown; the other learners rest until something is due
    without a new record. A learner that fails is logged and replaced. Changes of the leader are
    logged too.

    Args:
        make: by the name of a bandit, what makes its learner.
        sessions: what they share, closed in the end; None: each is called all the time.
    """

    def __init__(
        self,
        make: Mapping[str, Callable[[], Learning]],
        sessions: LearnerSessions | None = None,
    ) -> None:
        self._stopped = threading.Event()
        self._sessions = sessions
        self.names = list(make)
        #: The learners that run now, and how many have failed, by the name of their bandit.
        self.running: dict[str, Learning] = {}
        self.failures: Counter[str] = Counter()
        self._entries = [_Entry(name, factory) for name, factory in make.items()]
        self._away = False
        #: Bandits that others lead, and when that was seen.
        self._others: set[str] = set()
        self._led_at = -math.inf
        self._pause = IDLE
        self._ended = threading.Event()
        self._worker: Worker | None = None

    def start(self) -> None:
        """Start learning."""
        if self._entries:
            self._worker = ThreadRuntime().start_worker("belated learners", self._turn)

    def stop(self) -> None:
        """Have each save its state and give up the lead; returns when all have."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.wake()
            self._ended.wait(STOP)
            self._worker.stop(0.0)

    def _turn(self) -> float | None:
        """Have each learner do what is due; returns the seconds until the next turn."""
        if self._stopped.is_set():
            self._end_all()
            return None
        looks = self._look()
        if looks is None:
            return AWAY
        most = 0
        for entry in self._entries:
            if not self._stopped.is_set() and entry.is_due(looks.get(entry.name)):
                most = max(most, self._step(entry))
        if most:
            self._pause = IDLE
            return 0.0 if most >= MANY else PACE
        # Not when the first is due: of a hundred learners there is always one.
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
        """Return the state of the journals by bandit; None while the store is unavailable."""
        # Learners that share a bandit look for themselves at every step, and rest only briefly.
        names = [
            entry.name for entry in self._entries if not isinstance(entry.learner, SharedLearner)
        ]
        if self._sessions is None or not names:
            return {}
        try:
            ends, led = self._sessions.reading.ends(names), self._led(self._sessions)
        except JournalUnavailable as error:
            if not self._away:
                _log(logging.WARNING, "the journal is away", "*", error=str(error))
            self._away = True
            return None
        except JournalError:  # each learner meets it, and logs what is wrong
            return {}
        if self._away:
            _log(logging.INFO, "the journal is back", "*")
            for entry in self._entries:
                entry.due = -math.inf
        self._away = False
        return {name: Look(positions, name in led) for name, positions in ends.items()}

    def _led(self, sessions: LearnerSessions) -> Collection[str]:
        """Return the bandits that others lead, of those whose learner here stands by."""
        waiting = [entry.name for entry in self._entries if entry.stands_by()]
        now = time.monotonic()
        if not waiting:
            self._others = set()
        elif now >= self._led_at + STAND_BY:
            self._others, self._led_at = {*leaders(sessions.reading.cells, waiting)}, now
        return self._others

    def _step(self, entry: _Entry) -> int:
        """Have one learner do what is due; returns how many records it has folded or written."""
        try:
            if entry.learner is None:
                entry.learner = self.running[entry.name] = entry.make()
            count = entry.step(entry.learner)
        except JournalUnavailable as error:
            if not entry.away:
                _log(logging.WARNING, "the journal is away", entry.name, error=str(error))
            entry.away = entry.learner is not None
            entry.due = time.monotonic() + (AWAY if entry.away else FAILED)
            return 0
        except Exception as error:
            self.failures[entry.name] += 1
            log.exception("a learner failed and is made anew", extra={"bandit": entry.name})
            # The library raises its errors between two changes; any other may come at any point.
            self._end(entry, save=isinstance(error, BelatedError))
            entry.due = time.monotonic() + FAILED
            return 0
        if entry.away:
            _log(logging.INFO, "the journal is back", entry.name)
        entry.away = False
        return count

    def _end(self, entry: _Entry, *, save: bool = True) -> None:
        learner, entry.learner, entry.leads, entry.away = entry.learner, None, None, False
        if learner is not None:
            del self.running[entry.name]
            try:
                learner.close(save=save)
            except Exception:
                log.exception("a learner could not be closed", extra={"bandit": entry.name})


class _Entry:
    """The learner of one bandit, and when to call it.

    Attributes:
        due: when to call it even if no record comes.
    """

    def __init__(self, name: str, make: Callable[[], Learning]) -> None:
        self.name = name
        self.make = make
        self.learner: Learning | None = None
        self.leads: bool | None = None
        self.away = False
        self.due = -math.inf
        self._seen: Look | None = None
        self._next: Look | None = None

    def stands_by(self) -> bool:
        """Whether it waits for another learner to give up the lead."""
        return self.leads is False and not isinstance(self.learner, SharedLearner)

    def is_due(self, look: Look | None) -> bool:
        """Whether to call it, given the state of its journal."""
        self._next = look
        if time.monotonic() >= self.due:
            return True
        if look is None or self.learner is None or self.away:
            return False
        if self.stands_by():
            return not look.led
        return self._seen is None or look.ends != self._seen.ends

    def step(self, learner: Learning) -> int:
        """Call it; returns how many records it has folded or written."""
        count = learner.step()
        self._seen = self._next
        if self.leads is not learner.leads():
            self.leads = learner.leads()
            _log_leader(self.name, learner)
        if count:
            rest = 0.0
        elif isinstance(learner, SharedLearner):
            rest = SHARED
        elif not self.leads:
            rest = STAND_BY if self._seen is None else math.inf
        else:
            rest = IDLE if self._seen is None else learner.rest()
        self.due = time.monotonic() + rest
        return count


def _log_leader(name: str, learner: Learning) -> None:
    if learner.leads():
        _log(logging.INFO, "this learner leads", name, holder=learner.holder, epoch=learner.epoch)
        return
    leader = learner.coordination.leader()
    shared = isinstance(learner, SharedLearner)
    message = "another learner merges" if shared else "this learner stands by"
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
    """Return the learner of a bandit: one that learns all of it, or one of several.

    Args:
        definition: of the bandit.
        store: of its journal.
        lease: seconds for which the lead is held without being renewed.
        sessions: what it shares with others; None for connections and threads of its own.
        bandits: how many learners share them.
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
    """Return the learners of several bandits, which share their connections and threads."""
    sessions = LearnerSessions(store, lease)
    make = partial(
        learner_of, store=store, lease=lease, sessions=sessions, bandits=len(definitions)
    )
    return Learners(
        {definition.name: partial(make, definition) for definition in definitions}, sessions
    )
