"""Learners in threads: each goes on whatever happens, until it is told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from belated.exceptions import JournalUnavailable
from belated.journals import Journal, Store
from belated.journals.identity import identify
from belated.learner import Fold
from belated.learner.partitioned import PartitionFold, check_mergeable
from belated.service.learning.learning_service import LearningService
from belated.service.learning.lease import SECONDS
from belated.service.learning.shared_learner import SharedLearner
from belated.service.serving.definition import Definition

#: Seconds to rest: with nothing to do, where others do as much, while another leads, while the
#: journal is away, and after an error that will hardly have gone by itself.
IDLE, SHARED, STAND_BY, AWAY, FAILED = 0.005, 0.02, 0.2, 0.2, 5.0
#: Seconds in which all must have stopped: what a database that hangs keeps from being saved is
#: folded again by whoever leads next.
STOP = 15.0

#: A learner of either kind.
Learning = LearningService | SharedLearner

log = logging.getLogger("belated.service")


class Learners:
    """The learners of some bandits, each in a thread of its own.

    One that fails is logged and made anew; the others do not notice. Who leads is logged too.

    Args:
        make: by the name of a bandit, what makes its learner.
    """

    def __init__(self, make: Mapping[str, Callable[[], Learning]]) -> None:
        self._stopped = threading.Event()
        self.names = list(make)
        #: Those that run now, by the name of their bandit; and how often one has failed.
        self.running: dict[str, Learning] = {}
        self.failures: Counter[str] = Counter()
        # Daemons: a process that ends without stopping them must not hang.
        self._threads = [
            threading.Thread(
                target=self._keep, args=(name, one), name=f"belated learner of {name}", daemon=True
            )
            for name, one in make.items()
        ]

    def start(self) -> None:
        """Begin to learn."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each save what it knows and leave the lead to others; returns when all have."""
        self._stopped.set()
        deadline = time.monotonic() + STOP
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _keep(self, name: str, make: Callable[[], Learning]) -> None:
        while not self._stopped.is_set():
            try:
                learner = self.running[name] = make()
                try:
                    self._learn(name, learner)
                finally:
                    del self.running[name]
                    learner.close()
            except JournalUnavailable as error:  # it was away before there was a learner
                _tell(logging.WARNING, "the journal is away", name, error=str(error))
                self._stopped.wait(FAILED)
            except Exception:
                self.failures[name] += 1
                log.exception("a learner failed and is made anew", extra={"bandit": name})
                self._stopped.wait(FAILED)

    def _learn(self, name: str, learner: Learning) -> None:
        away, leads = False, None
        while not self._stopped.is_set():
            try:
                busy = learner.step()
                if leads is not learner.leads():
                    leads = learner.leads()
                    _tell_who_leads(name, learner)
            except JournalUnavailable as error:
                if not away:
                    _tell(logging.WARNING, "the journal is away", name, error=str(error))
                away = True
                self._stopped.wait(AWAY)
                continue
            if away:
                _tell(logging.INFO, "the journal is back", name)
            away = False
            if not busy:
                shared = isinstance(learner, SharedLearner)
                self._stopped.wait(SHARED if shared else IDLE if leads else STAND_BY)


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


def learner_of(definition: Definition, store: Store, *, lease: float = SECONDS) -> Learning:
    """Return the learner of a bandit, as its definition says."""
    make = learning_service if definition.learners == "one" else shared_learner
    return make(definition, store, lease=lease)


def learning_service(
    definition: Definition, store: Store, *, lease: float = SECONDS
) -> LearningService:
    """Return the learner of a bandit: the only one that learns, or one that stands by."""
    journal = _journal_of(definition, store)

    def fold() -> Fold:
        return Fold(
            definition.policy,
            definition.rewards,
            partitions=journal.partitions,
            retention=definition.retention,
        )

    return LearningService(
        journal,
        store.coordination(definition.name),
        fold,
        shelf=store.journal(definition.name, partitions=definition.partitions),
        features=definition.features,
        lease=lease,
    )


def shared_learner(
    definition: Definition, store: Store, *, lease: float = SECONDS
) -> SharedLearner:
    """Return one of several learners of a bandit."""
    check_mergeable(definition.policy, definition.rewards)
    journal = _journal_of(definition, store)

    def fold(partition: int) -> PartitionFold:
        return PartitionFold(
            definition.policy,
            definition.rewards,
            partitions=journal.partitions,
            partition=partition,
            retention=definition.retention,
        )

    return SharedLearner(
        journal,
        store.coordination(definition.name),
        fold,
        shelf=store.journal(definition.name),
        features=definition.features,
        lease=lease,
    )


def _journal_of(definition: Definition, store: Store) -> Journal:
    journal = store.journal(definition.name, partitions=definition.partitions)
    policy = definition.policy
    identify(journal, family=repr(policy.family), dim=policy.dim, features=definition.features)
    return journal
