"""The base class of learners, with helpers for clocks, history checks and snapshots."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from belated.core.events import Settled
from belated.exceptions import HistoryChanged, HistoryTrimmed, HistoryUndone, SnapshotConflict
from belated.features import Features
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel, readable_model
from belated.fold.saving import Saving
from belated.journals import Journal
from belated.journals.coordination import HOUR, CoordinationStore, KeptModel
from belated.journals.identity import configure, settings_of
from belated.service.learning.lease import SECONDS, Lease, LeaseRenewal, new_holder
from belated.service.runtime import Runtime, ThreadRuntime

#: Intervals in seconds for publishing changed models, publishing unchanged models, and snapshots.
PUBLISH, ALIVE, SNAPSHOT = 0.1, 5.0, 30.0
#: Interval for updating the exposed head of the journal, in seconds. The head is the label of a
#: metric, so each new head starts a new time series.
HEAD = 3600.0
#: Interval between queries of the journal's clock, in seconds.
LOOK = 1.0

log = logging.getLogger("belated.service")

MakeFold = TypeVar("MakeFold", bound=Callable[..., Fold])


class Leader(Generic[MakeFold]):
    """A learner that publishes models while it holds the lease, and stands by otherwise.

    Args:
        journal: Journal of the bandit.
        coordination: Store of the bandit's lease and published model.
        fold: Creates an empty fold. If learners share the partitions, its argument is a partition.
        shelf: The same journal on another connection, for writing snapshots concurrently; None to
            use ``journal``.
        features: Features of the bandit, recorded in the journal; None if requests contain rows.
        holdout: Baseline of the holdout, recorded in the journal; None if there is no holdout.
        holder: Unique name of this learner; None to generate a name.
        lease: Duration of the lease in seconds.
        runtime: Clocks and threads; None for those of the machine.
        renewal: Renews the leases of all learners in the process; None to renew only this
            learner's lease.

    Attributes:
        epoch: Epoch in which this learner leads; 0 while it stands by.
        head: Head of the journal, updated once an hour; empty before the first update.
        clock: The clock that timestamps records. This machine's clock may differ from it, or jump.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: MakeFold,
        *,
        shelf: Journal | None = None,
        features: Features | None = None,
        holdout: int | str | None = None,
        holder: str | None = None,
        lease: float = SECONDS,
        runtime: Runtime | None = None,
        renewal: LeaseRenewal | None = None,
    ) -> None:
        self._runtime = runtime = runtime or ThreadRuntime()
        self.journal, self.shelf = journal, shelf or journal
        self.bandit = journal.bandit
        self.coordination = coordination
        self.holder = holder or new_holder()
        renewal = renewal or LeaseRenewal(coordination.cells, lease, runtime)
        self.lease = Lease(coordination, self.bandit, self.holder, renewal)
        self.clock = JournalClock(journal, runtime)
        self.epoch = 0
        self.head = ""
        self._head_at = -math.inf
        self._kept_hour = -1
        self._make_fold = fold
        self._features, self._holdout = features, holdout
        self._monotonic = runtime.monotonic

    def leads(self) -> bool:
        """Return whether this learner publishes the models."""
        return self.epoch != 0

    def _lead(self) -> bool:
        """Renew or acquire the lease, and return whether this learner leads."""
        epoch = self.lease.renew_or_acquire()
        if epoch is None or epoch != self.epoch:
            self._stand_by()
        if epoch is not None and not self.epoch:
            self._take_over(epoch)
        return self.leads()

    def _take_over(self, epoch: int) -> None:
        raise NotImplementedError

    def _stand_by(self) -> None:
        self.epoch = 0

    def _step_down(self) -> None:
        """Stand by until the store has confirmed the lease.

        Another learner may already lead, although the lease is still valid according to this
        machine's clock. Taking over again would fence that learner.
        """
        self.lease.doubt()
        self._stand_by()

    def _configure(self, fold: Fold) -> None:
        """Record the settings in the journal. Only the leader does this: one writer is enough."""
        settings = settings_of(
            fold.policy, fold.rewards, fold.retention, self._features, self._holdout
        )
        configure(self.journal, settings, self.journal.now())

    def _is_frozen(self) -> bool:
        mode = self.journal.mode()
        return mode is not None and mode.mode == "freeze"

    def _publish_model(self, model: PublishedModel) -> None:
        data, hour = model.write(), model.at // HOUR
        self.coordination.publish(data, self.epoch)
        if model.n and hour != self._kept_hour:
            entry = KeptModel(model.version, model.at, model.n, len(data))
            self.coordination.keep(entry, data, self.epoch)
            self._kept_hour = hour
        now = self._monotonic()
        if model.head and now >= self._head_at + HEAD:
            self.head, self._head_at = model.head, now
            extra = {"bandit": self.bandit, "head": model.head}
            log.info("new head of the journal", extra=extra)


def read_model(published: tuple[int, bytes] | None) -> PublishedModel | None:
    """Decode a published model. Return None if there is none or this release cannot read it."""
    return None if published is None else readable_model(published[1])


def append_settled(journal: Journal, fold: Fold, now: int) -> int:
    """Append settlements for reward windows that have ended; return the number of records."""
    due = [Settled(number, now) for number in fold.folded if fold.ledgers[number].is_due(now)]
    if due:
        journal.append(due)
    return len(due)


class JournalClock:
    """Estimates the current time of the clock that timestamps records, and detects jumps.

    Args:
        journal: Journal that timestamps records.
        runtime: Clocks of this machine.

    Attributes:
        offset: Seconds by which the journal's clock is ahead of this machine's clock.
        last_stamp: Latest timestamp seen.
    """

    def __init__(self, journal: Journal, runtime: Runtime) -> None:
        self._journal = journal
        self._clock, self._monotonic = runtime.clock, runtime.monotonic
        self._queried, self._queried_at = 0, -math.inf
        self.offset = 0.0
        self.last_stamp = 0

    def look(self) -> None:
        """Query the journal's clock if the last query was more than a second ago."""
        if self._monotonic() >= self._queried_at + LOOK:
            self._queried = self._journal.now()
            self._queried_at = self._monotonic()  # after the response, so that `now` is not ahead
            self.offset = (self._queried - self._clock()) / 1e6

    def now(self) -> int:
        """Return the journal's time, or this machine's if unknown, in microseconds since 1970."""
        if not self._queried:
            return self._clock()
        return self._queried + int(1e6 * (self._monotonic() - self._queried_at))

    def ahead(self) -> float:
        """Return the number of seconds by which the last timestamp is ahead of the clock.

        The result is positive after the clock has jumped back. Until the clock has caught up,
        journal time does not advance, and no reward window ends.
        """
        return max(0.0, (self.last_stamp - self.now()) / 1e6)


class HistoryChanges:
    """Counts and logs changes to records that have already been folded.

    Args:
        extra: Fields for each log line, such as the name of the bandit.
    """

    def __init__(self, **extra: object) -> None:
        self.count = 0
        self._extra = extra
        #: Highest position of a logged change, by partition.
        self._logged: dict[int, int] = {}

    def note(self, error: HistoryChanged) -> None:
        """Log a change, and count it unless it was intended (an erasure, retraction or trim)."""
        message, level = f"history changed: {error}", logging.ERROR
        if isinstance(error, HistoryUndone):
            message, level = "records were erased or retracted: folding again", logging.WARNING
        elif isinstance(error, HistoryTrimmed):
            message, level = "the journal was trimmed while being read", logging.WARNING
        else:
            self.count += 1
            logged = self._logged.get(error.partition, 0)
            self._logged[error.partition] = max(logged, error.position)
        where = {"partition": error.partition, "position": error.position}
        log.log(level, message, extra=self._extra | where)

    def note_loaded(self, errors: Iterable[HistoryChanged]) -> None:
        """Log changes found while loading snapshots, unless they have already been logged."""
        for error in errors:
            if error.position > self._logged.get(error.partition, 0):
                self.note(error)


class BackgroundSave:
    """Writes one snapshot at a time in a thread, while the fold continues.

    Args:
        journal: Journal that is being folded.
        shelf: Journal that snapshots are written to.
        runtime: Starts the thread.
    """

    def __init__(self, journal: Journal, shelf: Journal, runtime: Runtime) -> None:
        self._journal, self._shelf = journal, shelf
        self._thread = runtime.start_background("belated save")
        self._running: tuple[Fold, Saving, Future[None]] | None = None

    @property
    def fold(self) -> Fold | None:
        """The fold whose snapshot is being written, or None."""
        return None if self._running is None else self._running[0]

    @property
    def is_written(self) -> bool:
        """Whether writing the snapshot has finished or failed."""
        return self._running is not None and self._running[2].done()

    def start(self, fold: Fold) -> None:
        """Start writing a snapshot. Until it is written, the fold copies data before changing it.

        Raises:
            HistoryChanged: the journal no longer contains the records that were folded.
        """
        saving = fold.begin_save(self._journal)
        self._running = fold, saving, self._thread.submit(partial(saving.write, self._shelf))

    def end(self) -> None:
        """Wait until the snapshot is written.

        Raises:
            OwnerFenced: another learner owns the partition.
            JournalUnavailable: the store cannot be reached.
        """
        future = self.abandon()
        if future is not None and not future.cancelled():
            with suppress(SnapshotConflict):  # the next snapshot will be complete
                future.result()

    def abandon(self) -> Future[None] | None:
        """Stop saving, waiting for a write that has already begun; return its future."""
        if self._running is None:
            return None
        (fold, saving, future), self._running = self._running, None
        if not future.cancel():
            wait([future])
        fold.end_save(saving)
        return future

    def stop(self) -> None:
        """Stop the thread."""
        self._thread.stop()
