"""Learners that share a bandit. Each one folds some partitions, and the leader merges all sums."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from belated.exceptions import (
    BelatedError,
    CorruptJournal,
    HistoryChanged,
    JournalError,
    JournalUnavailable,
    OwnerFenced,
    UnsupportedFormat,
)
from belated.fold.columns import kernels_for
from belated.fold.partitioned import Merging, PartitionFold, PartitionSums
from belated.fold.partitioned.aged import AgedLearner
from belated.fold.published import PublishedModel
from belated.journals import Journal
from belated.journals.coordination import CoordinationStore
from belated.journals.log import WatchedLog
from belated.journals.pages import ColumnPage
from belated.service.histogram import SECONDS, Histogram
from belated.service.learning.leader import (
    ALIVE,
    PUBLISH,
    SNAPSHOT,
    BackgroundSave,
    HistoryChanges,
    JournalClock,
    Leader,
    append_settled,
    read_model,
)
from belated.service.runtime import Runtime

#: Intervals for polling for a model and for sending changed sums, in seconds. Unchanged sums are
#: sent every `ALIVE` seconds, to show who owns the partition.
LOOK, SEND = 0.2, 0.1
#: Maximum number of records folded per step and partition, normally and while catching up.
PAGE, MANY = 2_000, 10_000

log = logging.getLogger("belated.service")


@dataclass(eq=False)
class Owned:
    """A partition that a worker owns.

    Attributes:
        fold: Fold of the partition.
        epoch: Epoch in which the worker owns the partition.
        save_at: When the next snapshot is due, by the monotonic clock.
        sent: Version and center number of the last sums that were sent.
        sent_at: When the last sums were sent, by the monotonic clock.
        is_behind: Whether the last page was full.
    """

    fold: PartitionFold
    epoch: int
    save_at: float
    sent: tuple[int, int] | None = None
    sent_at: float = -math.inf
    is_behind: bool = True


@dataclass(eq=False)
class PartitionWorker:
    """Folds and settles the partitions that it owns, saves snapshots, and sends their sums.

    A worker claims partitions from the store and then acquires them. If it was too slow and another
    worker has acquired a partition, the worker can no longer save snapshots or send sums for that
    partition, and drops its fold.

    Args:
        journal: Journal of the bandit.
        coordination: Assigns partitions and stores sums.
        fold: Creates an empty fold of a partition.
        name: Unique name of this worker.
        session: Session timeout in seconds.
        shelf: Journal that snapshots are written to.
        clock: Clock of the journal.
        runtime: Clocks and threads.

    Attributes:
        owned: Owned partitions.
        lost: Number of partitions that were taken over by another worker before this worker gave
            them back.
    """

    journal: Journal
    coordination: CoordinationStore
    fold: Callable[[int], PartitionFold]
    name: str
    session: float
    shelf: Journal
    clock: JournalClock
    runtime: Runtime

    def __post_init__(self) -> None:
        self.membership = self.coordination.join_group(self.session)
        self.owned: dict[int, Owned] = {}
        self.lost = 0
        self.history_changes = HistoryChanges(bandit=self.journal.bandit, worker=self.name)
        #: Time from commit to folding for the last folded record, in seconds.
        self.lag = self._lag = 0.0
        #: Times from commit to folding for the first record of each page, in seconds.
        self.lags = Histogram(SECONDS)
        self._monotonic = self.runtime.monotonic
        self._saving = BackgroundSave(self.journal, self.shelf, self.runtime)
        self._model: PublishedModel | None = None
        self._model_number = 0
        self._look_at = self._send_at = -math.inf
        self._warned = False

    def step(self) -> int:
        """Run one step of pending work; return 0 if there was none.

        Otherwise, the result is the number of records folded or appended, and partitions acquired.
        """
        self.clock.look()
        self._look_for_model()
        count, failed = self._hold_claimed()
        grown = self._grown()
        self._lag = 0.0
        for partition in list(self.owned):
            try:
                count += self._work(partition, partition in grown)
            except JournalUnavailable:
                raise
            except OwnerFenced:
                self._lose(partition)
            except HistoryChanged as error:
                self.history_changes.note(error)
                self._drop(partition)
                count += 1  # the partition will be acquired again
            except BelatedError as error:  # an unreadable record must not stop other partitions
                failed = error
        self.lag = self._lag  # 0 if there was nothing to fold
        self._send()
        self._save()
        if failed is not None:
            raise failed
        return count

    def close(self, *, save: bool = True) -> None:
        """Save snapshots, give the partitions back, and close the journal.

        Args:
            save: Whether to save; False if an error may have left a fold inconsistent.
        """
        self._end_saving()
        for owned in self.owned.values() if save else ():
            try:
                owned.fold.save(self.shelf)
            except JournalUnavailable:  # saving the remaining folds would time out, too
                break
            except JournalError:
                continue
        self.owned.clear()
        self.membership.close()
        self._saving.stop()
        self.shelf.close()
        self.journal.close()

    # --- ownership -------------------------------------------------------------------------------

    def _hold_claimed(self) -> tuple[int, BelatedError | None]:
        """Follow the assignment; return the number of new partitions and the last error."""
        claim = self.membership.claim()
        for partition in self.owned.keys() - claim.partitions:
            self._lose(partition)
        if claim.surplus:
            self._give_back(claim.surplus)
            self.membership.give_back(claim.surplus)
        new = [n for n in claim.partitions if n not in {*self.owned, *claim.surplus}]
        failed: BelatedError | None = None
        for partition in new:
            try:
                self._take_over(partition)
            except JournalUnavailable:
                raise
            except BelatedError as error:  # its stored state is unreadable
                failed = error
            else:
                break  # acquire one partition per step, so that others are not delayed
        return len(new), failed

    def _take_over(self, partition: int) -> None:
        """Fence the previous owner and start from its last snapshot."""
        epoch = self.shelf.acquire(partition)
        fold = self.fold(partition)
        self.history_changes.note_loaded(fold.load(self.shelf))
        if self._model is not None:
            fold.load_model(self._model)
        self.owned[partition] = Owned(fold, epoch, self._monotonic() + SNAPSHOT)
        self._log(logging.INFO, "this worker owns a partition", partition, epoch=epoch)

    def _give_back(self, partitions: Collection[int]) -> None:
        """Save snapshots of these partitions and drop them."""
        self._end_saving()  # may reveal that another worker owns a partition
        for partition in [n for n in partitions if n in self.owned]:
            with suppress(OwnerFenced):
                self.owned[partition].fold.save(self.shelf)
            self._drop(partition)
            self._log(logging.INFO, "this worker gives a partition back", partition)

    def _lose(self, partition: int) -> None:
        """Drop a partition without saving, because another worker owns it."""
        self.lost += 1
        self._drop(partition)
        self.membership.doubt([partition])
        self._log(logging.WARNING, "another worker owns a partition", partition)

    def _drop(self, partition: int) -> None:
        if self.owned.pop(partition).fold is self._saving.fold:
            self._saving.abandon()

    # --- steps -----------------------------------------------------------------------------------

    def _grown(self) -> Collection[int]:
        """Return the partitions that may have new records."""
        if not isinstance(self.journal, WatchedLog):
            return self.owned
        behind = {
            number
            for number, owned in self.owned.items()
            if owned.is_behind or not owned.fold.has_sent(number)
        }
        positions = {n: owned.fold.position for n, owned in self.owned.items() if n not in behind}
        return behind | self.journal.advanced(positions) if positions else behind

    def _work(self, partition: int, has_grown: bool) -> int:
        owned = self.owned[partition]
        count = self._fold_some(owned) if has_grown else 0
        return count + append_settled(self.journal, owned.fold, self.clock.now())

    def _fold_some(self, owned: Owned) -> int:
        fold, journal, partition = owned.fold, self.journal, owned.fold.partition
        kernels = kernels_for(fold, journal) if owned.is_behind else None
        limit = min(PAGE if kernels is None else MANY, fold.tuning.page)
        with nullcontext() if kernels is None else fold.learner.bulk():
            page = fold.follow(journal, partition, limit, kernels=kernels)
        count = len(page)
        owned.is_behind = count == limit
        if count:
            now, last = self.clock.now(), fold.chains[partition].last
            assert last is not None
            first = int(page.recorded[0]) if isinstance(page, ColumnPage) else page[0].recorded
            self.clock.last_stamp = max(self.clock.last_stamp, last.recorded)
            self._lag = max(self._lag, (now - last.recorded) / 1e6)
            self.lags.add((now - first) / 1e6)
        return count

    def _look_for_model(self) -> None:
        """Load the latest published model, whose coefficients are the center of the sums."""
        now = self._monotonic()
        if now < self._look_at + LOOK:
            return
        self._look_at = now
        published = self.coordination.published(self._model_number)
        if published is None:
            return
        self._model_number = published[0]
        if (model := read_model(published)) is not None:
            self._model = model
            for owned in self.owned.values():
                owned.fold.load_model(model)

    def _send(self) -> None:
        now = self._monotonic()
        if now < self._send_at + SEND:
            return
        self._send_at = now
        sums: dict[int, tuple[int, bytes]] = {}
        number = 0 if self._model is None else self._model.center_number
        for partition, owned in self.owned.items():
            state = owned.fold.version, number
            # Summing many decisions again after each page would slow down catching up.
            has_changed = state != owned.sent and not owned.is_behind
            if has_changed or now >= owned.sent_at + ALIVE:
                owned.sent, owned.sent_at = state, now
                data = owned.fold.sums(owned.epoch).write()
                sums[partition] = owned.epoch, data
                self._warn_of_batches(owned.fold)
        if sums:
            try:
                fenced = self.coordination.send(sums)
            except JournalUnavailable:
                for owned in self.owned.values():
                    owned.sent = None
                raise
            for partition in fenced:
                self._lose(partition)

    def _warn_of_batches(self, fold: PartitionFold) -> None:
        """Warn once if conversions arrive in batches, because no partition sees a whole batch."""
        if isinstance(fold.learner, AgedLearner) and fold.learner.in_batches and not self._warned:
            self._warned = True
            message = 'conversions arrive in batches: use learners = "one", which accounts for this'
            log.warning(message, extra={"bandit": self.journal.bandit})

    def _save(self) -> None:
        if self._saving.fold is not None:
            if self._saving.is_written:
                self._end_saving()
            return
        now = self._monotonic()
        for partition, owned in self.owned.items():
            if now >= owned.save_at and owned.fold.save_pays():
                owned.save_at = now + SNAPSHOT
                try:
                    self._saving.start(owned.fold)
                except HistoryChanged as error:
                    self.history_changes.note(error)
                    self._drop(partition)
                except OwnerFenced:
                    self._lose(partition)
                return

    def _end_saving(self) -> None:
        """Wait until the snapshot is written. Drop the partition if another worker owns it."""
        fold = self._saving.fold
        try:
            self._saving.end()
        except OwnerFenced:
            assert isinstance(fold, PartitionFold)
            self._lose(fold.partition)

    def _log(self, level: int, message: str, partition: int, **fields: object) -> None:
        where = {"bandit": self.journal.bandit, "worker": self.name, "partition": partition}
        log.log(level, message, extra=where | fields)


class SharedLearner(Leader[Callable[[int], PartitionFold]]):
    """Folds some of the partitions. The leader also merges the sums of all partitions.

    Call :meth:`step` repeatedly. Start one learner per core. The partitions are divided among the
    learners, and those of a dead learner are reassigned.

    If there are several sums for a partition, those with the highest epoch are used, and among
    these, those with the highest position. A model is published only if all partitions have sums,
    and none has fewer records than the last model includes.

    Args:
        journal: Journal of the bandit.
        coordination: Assigns partitions, and stores sums and models.
        fold: Creates an empty fold of a partition.
        settings: Arguments of :class:`~belated.service.learning.leader.Leader`.

    Attributes:
        worker: Folds the partitions assigned to this learner.
        merging: Sums of all partitions, while this learner leads; None while it stands by.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: Callable[[int], PartitionFold],
        **settings: Any,
    ) -> None:
        super().__init__(journal, coordination, fold, **settings)
        self.worker = PartitionWorker(
            journal,
            coordination,
            fold,
            name=self.holder,
            session=self.lease.seconds,
            shelf=self.shelf,
            clock=self.clock,
            runtime=self._runtime,
        )
        self.merging: Merging | None = None
        self._floor: list[int] = []
        #: Version of the last sums that were read, by partition.
        self._versions: dict[int, int] = {}
        self._changed = False
        self._look_at = self._published_at = -math.inf

    def step(self) -> int:
        """Run one step of pending work; return 0 if there was none in this learner's partitions."""
        try:
            return self.worker.step()
        finally:  # merge even if this worker cannot read a record
            self.merge()

    def merge(self) -> int:
        """Merge sums and publish a model if this learner leads; return the number of new sums."""
        try:
            if not self._lead() or self._monotonic() < self._look_at + PUBLISH:
                return 0
            assert self.merging is not None
            self._look_at = self._monotonic()
            count = self._take(self.merging)
            self._publish(self.merging)
        except OwnerFenced:
            self._step_down()
            return 0
        return count

    def close(self, *, save: bool = True) -> None:
        """Save snapshots, release the partitions and the lease, and close the journal.

        Args:
            save: Whether to save; False if an error may have left a fold inconsistent.
        """
        self.lease.close()
        self._stand_by()
        self.worker.close(save=save)
        self.coordination.close()

    def _stand_by(self) -> None:
        super()._stand_by()
        self.merging = None

    def _take_over(self, epoch: int) -> None:
        """Start from the published model."""
        fold = self._make_fold(0)
        self._configure(fold)
        merging = fold.new_merging()
        self._floor, self._versions = [0] * self.journal.partitions, {}
        last = read_model(self.coordination.published())
        if last is not None:
            merging.go_on_from(last)
            self._floor = last.positions
        self.merging, self.epoch, self._changed = merging, epoch, False

    def _take(self, merging: Merging) -> int:
        count, messages = 0, self.coordination.sent(self.journal.partitions, self._versions)
        for partition, (version, data) in messages.items():
            self._versions[partition] = version
            try:
                entry = PartitionSums.read(data)
            except (CorruptJournal, UnsupportedFormat) as error:  # the owner will send new sums
                extra = {"bandit": self.journal.bandit, "partition": partition}
                log.error("unreadable sums of a partition: %s", error, extra=extra)
                continue
            count += merging.take(entry)
        self._changed |= count > 0
        return count

    def _publish(self, merging: Merging) -> None:
        now = self._monotonic()
        if not merging.is_whole or (not self._changed and now < self._published_at + ALIVE):
            return
        if self._is_behind(merging.positions) or self._is_frozen():
            return
        model = merging.export_model(self.journal.now())
        self._publish_model(model)
        self._floor, self._changed, self._published_at = model.positions, False, now

    def _is_behind(self, positions: list[int]) -> bool:
        """Return whether the last model includes records that these sums lack.

        A new owner of a partition starts from a snapshot. No model is published until the new owner
        has read as far as the previous owner.
        """
        behind = [n for n, floor in enumerate(self._floor) if positions[n] < floor]
        for partition in behind:
            self._floor[partition] = min(self._floor[partition], self.journal.end(partition))
        return any(positions[n] < self._floor[n] for n in behind)
