"""The learner that folds all partitions of a bandit."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any

from belated.advice import Adviser
from belated.core.events import Record, Reward
from belated.exceptions import HistoryChanged, JournalError, OwnerFenced
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.fold.ledger import Ledger
from belated.fold.refit import Fitted
from belated.journals import Journal
from belated.journals.coordination import CoordinationStore
from belated.service.histogram import DELAYS, SECONDS, Histogram
from belated.service.learning.leader import (
    ALIVE,
    PUBLISH,
    SNAPSHOT,
    BackgroundSave,
    HistoryChanges,
    Leader,
    append_settled,
    read_model,
)
from belated.service.learning.refold import PAUSE, Refold

#: Interval between checks for advice, in seconds.
ADVISE = 10.0
#: After this many records in consecutive full pages, a learner catches up in bulk.
FAR = 20_000
#: Maximum interval between calls of an idle learner, in seconds.
REST = 60.0
#: Minimum publishing intervals for changed and for unchanged models, in seconds per bandit of the
#: process.
PUBLISH_SHARE, ALIVE_SHARE = 0.01, 0.2
#: Maximum number of records to fold per step and partition.
PAGE = 2_000
#: Maximum number of rewards per page whose delays are recorded.
SAMPLED = 32

log = logging.getLogger("belated.service")


class LearningService(Leader[Callable[[], Fold]]):
    """Learns from the whole journal of a bandit while it leads, and stands by otherwise.

    Call :meth:`step` repeatedly. A leader that was too slow and has been replaced can neither save
    nor publish. When it leads again, it starts from the last snapshot.

    Args:
        journal: Journal of the bandit.
        coordination: Store of the bandit's lease and published model.
        fold: Creates an empty fold.
        bandits: Number of bandits that this process learns for. With more bandits, models are
            published less often.
        settings: Arguments of :class:`~belated.service.learning.leader.Leader`.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: Callable[[], Fold],
        *,
        bandits: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__(journal, coordination, fold, **settings)
        #: The fold, while this learner leads; None while it stands by.
        self.fold: Fold | None = None
        #: Time from commit to folding for the last folded record, in seconds.
        self.lag = 0.0
        #: Times from commit to folding for the first record of each page, in seconds.
        self.lags = Histogram(SECONDS)
        #: Durations of fits in seconds.
        self.fits = Histogram(SECONDS)
        #: Delays of a sample of rewards in seconds, according to the journal's timestamps.
        self.delays = Histogram(DELAYS)
        self.history_changes = HistoryChanges(bandit=self.bandit)
        #: Timestamp of the oldest pending decision; None if no decision is pending.
        self.oldest: int | None = None
        self._publish_at = self._save_at = 0.0
        self._in_full_pages = 0
        #: Folds the journal again in the background, and compares the results.
        self.refold = Refold(journal, self._monotonic, bandits * PAUSE)
        self._publish_seconds = max(PUBLISH, bandits * PUBLISH_SHARE)
        self._alive_seconds = max(ALIVE, bandits * ALIVE_SHARE)
        #: Finds advice to log. Each piece of advice is logged only once.
        self.adviser = Adviser()
        self._advised, self._advise_at = 0, -math.inf
        self._published = -1
        self._floor: list[int] = []
        self._fitter = self._runtime.start_background("belated fit")
        self._fit: Future[Fitted] | None = None
        self._fit_at = 0.0
        self._saving = BackgroundSave(journal, self.shelf, self._runtime)

    def step(self) -> int:
        """Run one step of pending work; return the number of records folded or appended."""
        try:
            if not self._lead():
                return 0
            assert self.fold is not None
            self.clock.look()
            count = self._fold_some(self.fold)
            count += append_settled(self.journal, self.fold, self.clock.now())
            self._refit(self.fold)
            self._publish(self.fold)
            self._advise(self.fold)
            self._save(self.fold)
            self._refold(self.fold)
        except OwnerFenced:
            self._step_down()
            return 0
        except HistoryChanged as error:
            self.history_changes.note(error)
            self._step_down()
            return 1
        return count

    def rest(self) -> float:
        """Return the number of seconds until the next call is needed if no records arrive."""
        fold = self.fold
        if fold is None or self._fit is not None or self._saving.fold is not None:
            return 0.0
        if not all(map(fold.has_sent, fold.folded)):
            return 0.0
        now, until = self._monotonic(), [REST, (self._next_settled(fold) - self.clock.now()) / 1e6]
        until += [due - now for due in (self._publish_due(fold), self.refold.due)]
        if fold.version != self._advised:
            until.append(self._advise_at + ADVISE - now)
        if fold.save_pays():
            until.append(self._save_at - now)
        return 0.0 if fold.learner.fit_is_due() else max(0.0, min(until))

    def _next_settled(self, fold: Fold) -> float:
        return min(ledger.next_settlement() for ledger in fold.ledgers.values())

    def close(self, *, save: bool = True) -> None:
        """Save a snapshot, release the lease, and close the journal.

        Args:
            save: Whether to save; False if an error may have left the fold inconsistent.
        """
        self._saving.abandon()
        if self.fold is not None and save:
            with suppress(JournalError):
                self.fold.save(self.shelf)
        self.lease.close()
        self._stand_by()
        self._fitter.stop()
        self._saving.stop()
        self.shelf.close()
        self.journal.close()
        self.coordination.close()

    # --- steps -----------------------------------------------------------------------------------

    def _take_over(self, epoch: int) -> None:
        """Fence the previous leader and start from its last snapshot."""
        for partition in range(self.journal.partitions):
            self.shelf.acquire(partition)
        self.refold.restart()
        fold = self._make_fold()
        self.history_changes.note_loaded(fold.load(self.shelf))
        fold.learner.defers = True
        self._configure(fold)
        self._floor = self._last_published()
        self.clock.last_stamp = max(map(self.journal.last_stamp, range(self.journal.partitions)))
        self.fold, self.epoch, self._published = fold, epoch, -1
        self._save_at = self._monotonic() + SNAPSHOT

    def _last_published(self) -> list[int]:
        """Return the positions of the published model, limited to the ends of the journal.

        This learner does not publish until it has read up to these positions, because its model
        would be older than the published one.
        """
        model = read_model(self.coordination.published())
        ends = map(self.journal.end, range(self.journal.partitions))
        return [] if model is None else list(map(min, model.positions, ends))

    def _stand_by(self) -> None:
        super()._stand_by()
        if self._fit is not None:
            self._fit.cancel()
        self._saving.abandon()
        self.fold = self._fit = None

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
        self.lag = lag  # 0 if there was nothing to fold
        self._in_full_pages = self._in_full_pages + count if full else 0
        return count

    def _catch_up(self, fold: Fold) -> int:
        """Fold all remaining records in bulk, then fit the model."""
        if self._fit is not None:  # superseded by the fit after catching up
            self._fit.cancel()
            self._fit = None
        self._in_full_pages = 0
        count = fold.catch_up(self.journal)
        stamps = map(self.journal.last_stamp, range(self.journal.partitions))
        self.clock.last_stamp = max(self.clock.last_stamp, *stamps)
        extra = {"bandit": self.bandit, "records": count}
        log.info("this learner was far behind and has caught up", extra=extra)
        return count

    def _note_delays(self, ledger: Ledger, page: list[Record]) -> None:
        rewards = (record for record in page if isinstance(record.event, Reward))
        for record in islice(rewards, SAMPLED):
            assert isinstance(record.event, Reward)
            entry = ledger.entry(record.event.id)
            if entry is not None and entry.recorded_us is not None:
                self.delays.add((record.recorded - entry.recorded_us) / 1e6)

    def _refit(self, fold: Fold) -> None:
        """Fit the model in a thread. Rewards that arrive during the fit are added to the result."""
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
        if any(at < floor for at, floor in zip(fold.positions, self._floor, strict=False)):
            return
        now = self._monotonic()
        if now < self._publish_due(fold):
            return
        self.oldest = min(
            (t for ledger in fold.ledgers.values() if (t := ledger.oldest)), default=None
        )
        if self._is_frozen():  # keep the published model
            self._published, self._publish_at = -1, now + self._publish_seconds
            return
        self._publish_model(fold.export_model(self.clock.now()))
        self._published = fold.version
        self._publish_at = now + self._publish_seconds

    def _publish_due(self, fold: Fold) -> float:
        is_same = fold.version == self._published
        return self._publish_at + is_same * (self._alive_seconds - self._publish_seconds)

    def _advise(self, fold: Fold) -> None:
        now = self._monotonic()
        if now < self._advise_at + ADVISE or fold.version == self._advised:
            return
        self._advised, self._advise_at = fold.version, now
        fold.count_early()
        for advice in self.adviser.look(evidence_of(fold)):
            extra = {"bandit": self.bandit, "advice": advice.message}
            log.warning(f"advice: {advice.name}", extra=extra)

    def _save(self, fold: Fold) -> None:
        now = self._monotonic()
        if self._saving.is_written:
            self._saving.end()
        elif self._saving.fold is None and now >= self._save_at and fold.save_pays():
            self._saving.start(fold)
            self._save_at = now + SNAPSHOT

    def _refold(self, fold: Fold) -> None:
        if difference := self.refold.step(fold):
            log.error("refold disagrees: %s", difference, extra={"bandit": self.bandit})
