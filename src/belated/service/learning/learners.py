"""Learners of a process: each goes on whatever happens to the others, until it is told to stop."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from belated.exceptions import BelatedError, JournalError, JournalUnavailable
from belated.fold.fold import Fold
from belated.fold.partitioned import PartitionFold, check_mergeable
from belated.journals import CoordinationStore, Journal, Store, StoreSession
from belated.journals.identity import identify
from belated.service.learning.learning_service import LearningService
from belated.service.learning.lease import SECONDS, LeaseRenewal
from belated.service.learning.sessions import LearnerSessions
from belated.service.learning.shared_learner import SharedLearner
from belated.service.runtime import Runtime, ThreadRuntime, Worker
from belated.service.serving.definition import Definition

#: Seconds between two looks at the journals: while something comes, and at most.
IDLE, MAX_IDLE = 0.005, 0.1
#: Seconds between two polls while records trickle in; a turn that folded this many records is
#: followed by the next one at once. A poll costs as much as folding ten records, and models are
#: published less often than this.
PACE, MANY = 0.02, 500
#: Seconds to rest: where others do as much, while another leads, while the journal is away, and
#: after an error that will hardly have gone by itself.
SHARED, STAND_BY, AWAY, FAILED = 0.02, 0.2, 0.2, 5.0
#: Seconds in which all must have stopped: what a database that hangs keeps from being saved is
#: folded again by whoever leads next.
STOP = 15.0

#: A learner of either kind.
Learning = LearningService | SharedLearner

log = logging.getLogger("belated.service")


class Look(NamedTuple):
    """How a bandit stands.

    Attributes:
        ends: position of the last record of each partition.
        led: whether another learner leads, for one that stands by.
    """

    ends: tuple[int, ...]
    led: bool


class Learners:
    """The learners of some bandits, in one thread.

    One look tells which journals have grown; the learners of the others rest until something is due
    that takes no record. One that fails is logged and made anew; the others do not notice. Who
    leads is logged too.

    Args:
        make: by the name of a bandit, what makes its learner.
        sessions: what they share, closed in the end; None: each is called again and again.
    """

    def __init__(
        self,
        make: Mapping[str, Callable[[], Learning]],
        sessions: LearnerSessions | None = None,
    ) -> None:
        self._stopped = threading.Event()
        self._sessions = sessions
        self.names = list(make)
        #: Those that run now, by the name of their bandit; and how often one has failed.
        self.running: dict[str, Learning] = {}
        self.failures: Counter[str] = Counter()
        self._kept = [_Kept(name, one) for name, one in make.items()]
        self._away = False
        #: Bandits that others lead, and when that was seen.
        self._others: set[str] = set()
        self._led_at = -math.inf
        self._pause = IDLE
        self._ended = threading.Event()
        self._worker: Worker | None = None

    def start(self) -> None:
        """Begin to learn."""
        if self._kept:
            self._worker = ThreadRuntime().start_worker("belated learners", self._turn)

    def stop(self) -> None:
        """Let each save what it knows and leave the lead to others; returns when all have."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.wake()
            self._ended.wait(STOP)
            self._worker.stop(0.0)

    def _turn(self) -> float | None:
        """Let each learner do what is due; returns the seconds until the next turn."""
        if self._stopped.is_set():
            self._end_all()
            return None
        looks = self._look()
        if looks is None:
            return AWAY
        most = 0
        for one in self._kept:
            if not self._stopped.is_set() and one.is_due(looks.get(one.name)):
                most = max(most, self._step(one))
        if most:
            self._pause = IDLE
            return 0.0 if most >= MANY else PACE
        # Not when the first is due: of a hundred learners there is always one.
        pause, self._pause = self._pause, min(2 * self._pause, MAX_IDLE)
        return IDLE if self._sessions is None else pause

    def _end_all(self) -> None:
        try:
            for one in self._kept:
                self._end(one)
            if self._sessions is not None:
                self._sessions.close()
        finally:
            self._ended.set()

    def _look(self) -> Mapping[str, Look] | None:
        """Return how the bandits stand; None while the journal is away."""
        # Those that share a bandit look for themselves at every step, and rest only for a moment.
        names = [one.name for one in self._kept if not isinstance(one.learner, SharedLearner)]
        if self._sessions is None or not names:
            return {}
        try:
            ends, led = self._sessions.ends(names), self._led()
        except JournalUnavailable as error:
            if not self._away:
                _tell(logging.WARNING, "the journal is away", "*", error=str(error))
            self._away = True
            return None
        except JournalError:  # each learner meets it, and says what is wrong
            return {}
        if self._away:
            _tell(logging.INFO, "the journal is back", "*")
            for one in self._kept:
                one.due = -math.inf
        self._away = False
        return {name: Look(found, name in led) for name, found in ends.items()}

    def _led(self) -> Collection[str]:
        """Return the bandits that others lead, as far as learners here stand by."""
        assert self._sessions is not None
        waiting = [one.name for one in self._kept if one.stands_by()]
        now = time.monotonic()
        if not waiting:
            self._others = set()
        elif now >= self._led_at + STAND_BY:
            self._others, self._led_at = self._sessions.led(waiting), now
        return self._others

    def _step(self, one: _Kept) -> int:
        """Let one learner do what is due; returns how many records it has folded or written."""
        try:
            if one.learner is None:
                one.learner = self.running[one.name] = one.make()
            count = one.step(one.learner)
        except JournalUnavailable as error:
            if not one.away:
                _tell(logging.WARNING, "the journal is away", one.name, error=str(error))
            one.away = one.learner is not None
            one.due = time.monotonic() + (AWAY if one.away else FAILED)
            return 0
        except Exception as error:
            self.failures[one.name] += 1
            log.exception("a learner failed and is made anew", extra={"bandit": one.name})
            # The library raises its errors between two changes; any other may come at any point.
            self._end(one, save=isinstance(error, BelatedError))
            one.due = time.monotonic() + FAILED
            return 0
        if one.away:
            _tell(logging.INFO, "the journal is back", one.name)
        one.away = False
        return count

    def _end(self, one: _Kept, *, save: bool = True) -> None:
        learner, one.learner, one.leads, one.away = one.learner, None, None, False
        if learner is not None:
            del self.running[one.name]
            try:
                learner.close(save=save)
            except Exception:
                log.exception("a learner could not be closed", extra={"bandit": one.name})


class _Kept:
    """A learner, and when to call it.

    Attributes:
        due: when something is to be done though no record comes.
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
        """Whether it is to be called, given how its bandit stands."""
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
            _tell_who_leads(self.name, learner)
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


def _tell_who_leads(name: str, learner: Learning) -> None:
    if learner.leads():
        _tell(logging.INFO, "this learner leads", name, holder=learner.holder, epoch=learner.epoch)
        return
    leader = learner.coordination.leader()
    who = None if leader is None else leader.holder
    shared = isinstance(learner, SharedLearner)
    message = "another learner merges" if shared else "this learner stands by"
    _tell(logging.INFO, message, name, holder=learner.holder, leader=who)


def _tell(level: int, message: str, name: str, **fields: object) -> None:
    log.log(level, message, extra={"bandit": name, **fields})


def learner_of(
    definition: Definition,
    store: Store,
    *,
    lease: float = SECONDS,
    sessions: LearnerSessions | None = None,
    bandits: int = 1,
) -> Learning:
    """Return the learner of a bandit, as its definition says."""
    if definition.learners == "one":
        return learning_service(definition, store, lease=lease, sessions=sessions, bandits=bandits)
    return shared_learner(definition, store, lease=lease, sessions=sessions)


def learning_service(
    definition: Definition,
    store: Store,
    *,
    lease: float = SECONDS,
    sessions: LearnerSessions | None = None,
    bandits: int = 1,
) -> LearningService:
    """Return the learner of a bandit: the only one that learns, or one that stands by.

    Args:
        definition: of the bandit.
        store: of its journal.
        lease: seconds for which the lead is held without being renewed.
        sessions: what it shares with others; None for connections and threads of its own.
        bandits: how many learners share them.
    """
    opened = _open(definition, store, sessions)

    def fold() -> Fold:
        return Fold(
            definition.policy,
            definition.rewards,
            partitions=opened.journal.partitions,
            retention=definition.retention,
        )

    return LearningService(
        opened.journal,
        opened.coordination,
        fold,
        shelf=opened.shelf,
        features=definition.features,
        holder=opened.holder,
        lease=lease,
        runtime=opened.runtime,
        renewal=opened.renewal,
        bandits=bandits,
    )


def shared_learner(
    definition: Definition,
    store: Store,
    *,
    lease: float = SECONDS,
    sessions: LearnerSessions | None = None,
) -> SharedLearner:
    """Return one of several learners of a bandit; for its arguments see the other kind."""
    check_mergeable(definition.policy, definition.rewards)
    opened = _open(definition, store, sessions)

    def fold(partition: int) -> PartitionFold:
        return PartitionFold(
            definition.policy,
            definition.rewards,
            partitions=opened.journal.partitions,
            partition=partition,
            retention=definition.retention,
        )

    return SharedLearner(
        opened.journal,
        opened.coordination,
        fold,
        shelf=opened.shelf,
        features=definition.features,
        holder=opened.holder,
        lease=lease,
        runtime=opened.runtime,
        renewal=opened.renewal,
    )


def learners_of(
    definitions: Sequence[Definition], store: Store, *, lease: float = SECONDS
) -> Learners:
    """Return the learners of some bandits, which share their connections and threads."""
    sessions = LearnerSessions(store, lease)
    make = partial(
        learner_of, store=store, lease=lease, sessions=sessions, bandits=len(definitions)
    )
    return Learners({one.name: partial(make, one) for one in definitions}, sessions)


class _Opened(NamedTuple):
    """What a learner needs of a store, whichever kind it is."""

    journal: Journal
    coordination: CoordinationStore
    shelf: Journal
    runtime: Runtime | None
    renewal: LeaseRenewal | None
    holder: str | None


def _open(definition: Definition, store: Store, sessions: LearnerSessions | None) -> _Opened:
    reading: Store | StoreSession = store
    coordinating: Store | StoreSession = store
    saving: Store | StoreSession = store
    if sessions is not None:
        reading, coordinating, saving = sessions.reading, sessions.coordinating, sessions.saving
    name, policy = definition.name, definition.policy
    journal = reading.journal(name, partitions=definition.partitions)
    identify(journal, family=repr(policy.family), dim=policy.dim, features=definition.features)
    runtime = None if sessions is None else sessions.threads
    renewal = None if sessions is None else sessions.renewal
    coordination = coordinating.coordination(name)
    holder = None if sessions is None else sessions.holder
    return _Opened(journal, coordination, saving.journal(name), runtime, renewal, holder)
