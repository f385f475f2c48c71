"""The learner of the service: one at a time folds a bandit's journal, and publishes its model."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from itertools import islice

from belated.advice import Adviser
from belated.core.events import Record, Reward, Settled
from belated.exceptions import (
    CorruptJournal,
    HistoryChanged,
    JournalError,
    OwnerFenced,
    SnapshotConflict,
    UnsupportedFormat,
)
from belated.features import Features
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.fold.ledger import Ledger
from belated.fold.published import PublishedModel
from belated.fold.saving import Saving
from belated.journals import CoordinationStore, Journal
from belated.journals.identity import configure, settings_of
from belated.model.estimators import Estimate
from belated.service.histogram import DELAYS, SECONDS, Histogram
from belated.service.learning.history_changes import HistoryChanges
from belated.service.learning.journal_clock import JournalClock
from belated.service.learning.lease import SECONDS as LEASE
from belated.service.learning.lease import Lease, LeaseRenewal, new_holder
from belated.service.learning.refold import PAUSE, Refold
from belated.service.runtime import Runtime, ThreadRuntime

#: Seconds between two models that differ, between two that do not, and between two snapshots.
PUBLISH, ALIVE, SNAPSHOT = 0.1, 5.0, 30.0
#: Seconds between two heads of the journal that are told: often enough to be kept elsewhere, and
#: not so often that those who keep metrics have a new series at every look.
HEAD = 3600.0
#: Seconds between two looks for what may hurt users.
ADVISE = 10.0
#: Records in full pages, one after the other, after which a learner is far behind: it folds all
#: that is there at once.
FAR = 20_000
#: Seconds for which a learner that has nothing to do need not be called, at most.
REST = 60.0
#: Seconds by which each bandit of a process puts off the others' models: those that differ, and
#: those that do not.
PUBLISH_SHARE, ALIVE_SHARE = 0.01, 0.2
#: Records folded before anything else is looked at.
PAGE = 2_000
#: Rewards of a page whose delays are noted.
SAMPLED = 32

log = logging.getLogger("belated.service")


class LearningService:
    """Folds, settles, fits, saves and publishes while it leads; stands by while another does.

    Call :meth:`step` again and again. A leader that was cut off, and is slow rather than dead, can
    neither save nor publish any longer once another leads: it starts anew from the snapshot.

    Args:
        journal: of the bandit.
        coordination: where learners agree on who leads, and models are published.
        fold: makes an empty fold: of the policy and the rewards' semantics.
        features: what makes rows, if anything does: the journal is told.
        holder: the name of this learner; one that no other has if None.
        lease: seconds for which the lead is held without being renewed.
        shelf: the same journal, opened once more: snapshots are written to it, beside all else. If
            None, the journal itself.
        runtime: time and threads; real ones if None.
        renewal: renews the leases of all learners of the process; if None, that of this one.
        bandits: how many are learned by this process: what can wait is done less often.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: Callable[[], Fold],
        *,
        shelf: Journal | None = None,
        features: Features | None = None,
        holder: str | None = None,
        lease: float = LEASE,
        runtime: Runtime | None = None,
        renewal: LeaseRenewal | None = None,
        bandits: int = 1,
    ) -> None:
        runtime = runtime or ThreadRuntime()
        self.journal, self.shelf = journal, shelf or journal
        self.coordination = coordination
        self._monotonic = runtime.monotonic
        self.holder = holder or new_holder()
        self._make = fold
        self._features = features
        renewal = renewal or LeaseRenewal(coordination.cells, lease, runtime)
        self.lease = Lease(coordination, journal.bandit, self.holder, renewal)
        #: The fold while this learner leads; None while it stands by.
        self.fold: Fold | None = None
        self.epoch = 0
        #: How long ago the last record that was folded had been committed, in seconds.
        self.lag = 0.0
        #: The same of the oldest record of each page; and how long fits took, in seconds.
        self.lags = Histogram(SECONDS)
        self.fits = Histogram(SECONDS)
        #: How long rewards took, in seconds by the journal's stamps; of a crowd only some.
        self.delays = Histogram(DELAYS)
        self.history_changes = HistoryChanges(bandit=journal.bandit)
        #: When the journal took the oldest pending decision; None if there is none.
        self.oldest: int | None = None
        #: That stamps records: the one of this machine may be wrong, and jump.
        self.clock = JournalClock(journal, runtime)
        self._publish_at = self._save_at = 0.0
        self._in_full_pages = 0
        #: Folds the journal again beside it, and compares.
        self.refold = Refold(journal, runtime.monotonic, bandits * PAUSE)
        self._publish_seconds = max(PUBLISH, bandits * PUBLISH_SHARE)
        self._alive_seconds = max(ALIVE, bandits * ALIVE_SHARE)
        #: Says what may hurt users, once each in the log; which of it holds now is a metric.
        self.adviser = Adviser()
        self._advised, self._advise_at = 0, -math.inf
        #: A head of the journal, taken once an hour; empty before the first.
        self.head = ""
        self._head_at = -math.inf
        self._published = -1
        self._floor: list[int] = []
        self._fitter = runtime.start_background("belated fit")
        self._fit: Future[Estimate] | None = None
        self._fit_at = 0.0
        self._saver = runtime.start_background("belated save")
        self._saving: tuple[Saving, Future[None]] | None = None

    def leads(self) -> bool:
        """Whether it is this one that learns."""
        return self.fold is not None

    def oldest_age(self) -> float:
        """For how long the oldest pending decision has been so, in seconds; 0 if there is none."""
        oldest = self.oldest
        return 0.0 if oldest is None else max(0.0, (self.clock.now() - oldest) / 1e6)

    def step(self) -> int:
        """Do what is due; returns how many records were folded or written, 0 if it can rest."""
        try:
            if not self._lead():
                return 0
            assert self.fold is not None
            self.clock.look()
            count = self._fold_some(self.fold) + self._settle(self.fold)
            self._refit(self.fold)
            self._publish(self.fold)
            self._advise(self.fold)
            self._save(self.fold)
            self._refold(self.fold)
        except OwnerFenced:
            self._stand_by()
            return 0
        except HistoryChanged as error:
            self._start_anew(error)
            return 1
        return count

    def rest(self) -> float:
        """Return for how many seconds there is nothing to do if no record comes."""
        fold = self.fold
        if fold is None or self._fit is not None or self._saving is not None:
            return 0.0
        now, until = self._monotonic(), [REST, (self._next_settled(fold) - self.clock.now()) / 1e6]
        until += [one - now for one in (self._publish_due(fold), self.refold.due)]
        if fold.version != self._advised:
            until.append(self._advise_at + ADVISE - now)
        if fold.save_pays():
            until.append(self._save_at - now)
        return 0.0 if fold.learner.fit_is_due() else max(0.0, min(until))

    def _next_settled(self, fold: Fold) -> float:
        return min(ledger.next_settlement() for ledger in fold.ledgers.values())

    def close(self, *, save: bool = True) -> None:
        """Save, leave the lead to others, and let go of everything.

        Args:
            save: False if the fold may be half changed: an error came in the middle of a step.
        """
        if self.fold is not None:
            self._end_saving()
            if save:
                with suppress(JournalError):
                    self.fold.save(self.shelf)
        self.lease.close()
        self._stand_by()
        self._fitter.stop()
        self._saver.stop()
        self.shelf.close()
        self.journal.close()
        self.coordination.close()

    # --- what is due -----------------------------------------------------------------------------

    def _lead(self) -> bool:
        epoch = self.lease.renew_or_acquire()
        if epoch is None or epoch != self.epoch:
            self._stand_by()
        if epoch is not None and self.fold is None:
            self._take_over(epoch)
        return self.leads()

    def _take_over(self, epoch: int) -> None:
        """Fence whoever led before, then begin where its last snapshot ends."""
        for partition in range(self.journal.partitions):
            self.shelf.acquire(partition)
        self.refold.start_anew()
        fold = self._make()
        self.history_changes.tell_loaded(fold.load(self.shelf))
        fold.learner.defers = True
        # By whoever leads, and not by every process: one at a time writes it.
        policy = fold.learner.policy
        settings = settings_of(policy, fold.rewards, fold.retention, self._features)
        configure(self.journal, settings, self.journal.now())
        self._floor = self._last_published()
        self.clock.last_stamp = max(map(self.journal.last_stamp, range(self.journal.partitions)))
        self.fold, self.epoch, self._published = fold, epoch, -1
        self._save_at = self._monotonic() + SNAPSHOT

    def _start_anew(self, error: HistoryChanged) -> None:
        """Discard the fold before it publishes: it is of a history the journal no longer has."""
        self.history_changes.tell(error)
        epoch = self.epoch
        self._stand_by()
        self._take_over(epoch)

    def _last_published(self) -> list[int]:
        """Return how far the last model had read, as far as the journal still goes.

        Until this learner has come as far, deciders are better off with that model.
        """
        found = self.coordination.published(0)
        try:
            positions = [] if found is None else PublishedModel.read(found[1]).positions
        except (CorruptJournal, UnsupportedFormat):  # then it is of no use to deciders either
            return []
        ends = [self.journal.end(partition) for partition in range(self.journal.partitions)]
        return [min(one, end) for one, end in zip(positions, ends, strict=False)]

    def _stand_by(self) -> None:
        if self._fit is not None:
            self._fit.cancel()
        self._end_saving()
        self.fold = self._fit = None
        self.epoch = 0

    def _fold_some(self, fold: Fold) -> int:
        if self._in_full_pages >= FAR:
            return self._catch_up(fold)
        count, size = 0, min(PAGE, fold.tuning.page)
        full, lag = False, 0.0
        for partition in range(len(fold.positions)):
            page = fold.follow(self.journal, partition, size)
            assert isinstance(page, list)
            full |= len(page) == size
            self._note_delays(fold.ledgers[partition], page)
            if page:
                now = self.clock.now()
                self.clock.last_stamp = max(self.clock.last_stamp, page[-1].recorded)
                lag = max(lag, (now - page[-1].recorded) / 1e6)
                self.lags.add((now - page[0].recorded) / 1e6)
            count += len(page)
        self.lag = lag  # 0 if there is nothing to fold, however late the last records came
        self._in_full_pages = self._in_full_pages + count if full else 0
        return count

    def _catch_up(self, fold: Fold) -> int:
        """Fold all that is there at once, as columns where they can be read, and fit at the end."""
        if self._fit is not None:  # the fit at the end is of more
            self._fit.cancel()
            self._fit = None
        self._in_full_pages = 0
        count = fold.catch_up(self.journal)
        stamps = map(self.journal.last_stamp, range(self.journal.partitions))
        self.clock.last_stamp = max(self.clock.last_stamp, *stamps)
        extra = {"bandit": self.journal.bandit, "records": count}
        log.info("this learner was far behind, and has caught up", extra=extra)
        return count

    def _note_delays(self, ledger: Ledger, page: list[Record]) -> None:
        rewards = (record for record in page if isinstance(record.event, Reward))
        for record in islice(rewards, SAMPLED):
            assert isinstance(record.event, Reward)
            entry = ledger.entry(record.event.id)
            if entry is not None and entry.recorded_us is not None:
                self.delays.add((record.recorded - entry.recorded_us) / 1e6)

    def _settle(self, fold: Fold) -> int:
        now = self.clock.now()
        due = [
            Settled(partition, now)
            for partition, ledger in fold.ledgers.items()
            if ledger.is_due(now)
        ]
        if due:
            self.journal.append(due)
        return len(due)

    def _refit(self, fold: Fold) -> None:
        """Beside the fold: rewards that come meanwhile are learned by steps, and added after it."""
        learner = fold.learner
        if self._fit is not None:
            if self._fit.done():
                learner.finish_fit(self._fit.result())
                self.fits.add(self._monotonic() - self._fit_at)
                self._fit = None
                self._published = -1
        elif learner.fit_is_due():
            self._fit_at = self._monotonic()
            self._fit = self._fitter.submit(learner.begin_fit())

    def _publish(self, fold: Fold) -> None:
        if any(mine < floor for mine, floor in zip(fold.positions, self._floor, strict=False)):
            return
        now = self._monotonic()
        if now < self._publish_due(fold):
            return
        self.oldest = min(
            (t for ledger in fold.ledgers.values() if (t := ledger.oldest)), default=None
        )
        mode = self.journal.mode()
        if mode is not None and mode.mode == "freeze":  # the last model stays
            self._published, self._publish_at = -1, now + self._publish_seconds
            return
        model = fold.export_model(self.clock.now())
        self.coordination.publish(model.write(), self.epoch)
        self._published = fold.version
        self._publish_at = now + self._publish_seconds
        if model.head and now >= self._head_at + HEAD:
            self.head, self._head_at = model.head, now
            extra = {"bandit": self.journal.bandit, "head": model.head}
            log.info("the journal has this head", extra=extra)

    def _publish_due(self, fold: Fold) -> float:
        same = fold.version == self._published
        return self._publish_at + same * (self._alive_seconds - self._publish_seconds)

    def _advise(self, fold: Fold) -> None:
        now = self._monotonic()
        if now < self._advise_at + ADVISE or fold.version == self._advised:
            return
        self._advised, self._advise_at = fold.version, now
        for advice in self.adviser.look(evidence_of(fold)):
            extra = {"bandit": self.journal.bandit, "advice": advice.message}
            log.warning(f"advice: {advice.name}", extra=extra)

    def _save(self, fold: Fold) -> None:
        """Beside the fold: what changes meanwhile is copied before it does."""
        if self._saving is not None:
            saving, written = self._saving
            if written.done():
                self._saving = None
                fold.end_save(saving)
                with suppress(SnapshotConflict):  # then all is written the next time
                    written.result()
            return
        now = self._monotonic()
        if now >= self._save_at and fold.save_pays():
            saving = fold.begin_save(self.journal)
            self._saving = saving, self._saver.submit(partial(saving.write, self.shelf))
            self._save_at = now + SNAPSHOT

    def _end_saving(self) -> None:
        """Wait for what is being written, whatever comes of it."""
        if self._saving is not None:
            saving, written = self._saving
            self._saving = None
            if not written.cancel():
                wait([written])
            if self.fold is not None:
                self.fold.end_save(saving)

    def _refold(self, fold: Fold) -> None:
        if found := self.refold.step(fold):
            log.error("refold disagrees: %s", found, extra={"bandit": self.journal.bandit})
