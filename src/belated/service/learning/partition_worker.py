"""A worker: owns some partitions of a bandit, folds them, and sends what they come to."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from belated.core.events import Settled
from belated.exceptions import (
    BelatedError,
    CorruptJournal,
    HistoryChanged,
    JournalError,
    JournalUnavailable,
    OwnerFenced,
    SnapshotConflict,
    UnsupportedFormat,
)
from belated.fold.columns import kernels_for
from belated.fold.partitioned import PartitionFold
from belated.fold.published import PublishedModel
from belated.fold.saving import Saving
from belated.journals import CoordinationStore, Journal
from belated.journals.log import WatchedLog
from belated.journals.pages import ColumnPage
from belated.service.histogram import SECONDS, Histogram
from belated.service.learning.history_changes import HistoryChanges
from belated.service.learning.journal_clock import JournalClock
from belated.service.runtime import Runtime, ThreadRuntime

#: Seconds between two looks for a model, between sums that differ and sums that do not, and
#: between two snapshots of a partition. Also sums that do not differ tell who owns the partition.
LOOK, SEND, ALIVE, SNAPSHOT = 0.2, 0.1, 5.0, 30.0
#: Seconds for which a session lasts without being renewed: how long a dead worker is missed.
SESSION = 10.0
#: Records of a partition that are folded before anything else is looked at: while few come, and
#: while there are many to catch up with.
PAGE, MANY = 2_000, 10_000

log = logging.getLogger("belated.service")


class Owned:
    """A partition in the hands of a worker.

    Attributes:
        fold: what is known of it.
        epoch: in which it is owned.
    """

    def __init__(self, fold: PartitionFold, epoch: int, save_at: float) -> None:
        self.fold = fold
        self.epoch = epoch
        self.save_at = save_at
        self.sent: tuple[int, int] | None = None  # version and number of the center
        self.sent_at = -math.inf
        self.is_behind = True  # the last page was full


class PartitionWorker:
    """Folds, settles, saves and sends the sums of the partitions that it owns.

    Call :meth:`step` again and again. What it owns is claimed from the store, and acquired: a
    worker that was cut off, and is slow rather than dead, can neither save nor send any longer
    once another has acquired the partition. It then drops what it knows of it.

    Args:
        journal: of the bandit.
        coordination: where workers share the partitions, and sums are sent to.
        fold: makes an empty fold of a partition.
        name: of this worker; no other has it.
        session: seconds for which partitions are held without a sign of life.
        shelf: the same journal, opened once more: snapshots are written to it, beside all else. If
            None, the journal itself.
        runtime: time and threads; real ones if None.

    Attributes:
        owned: by partition, what this worker owns now.
        lost: how often a partition was another's before it was given back.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: Callable[[int], PartitionFold],
        *,
        name: str,
        session: float = SESSION,
        shelf: Journal | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        runtime = runtime or ThreadRuntime()
        self.journal, self.shelf = journal, shelf or journal
        self.coordination = coordination
        self.name = name
        self.membership = coordination.join_group(session)
        self.clock = JournalClock(journal, runtime)
        self.owned: dict[int, Owned] = {}
        self.lost = 0
        self.history_changes = HistoryChanges(bandit=journal.bandit, worker=name)
        #: How long ago the last record that was folded had been committed, in seconds; and of each
        #: page the first.
        self.lag = self._lag = 0.0
        self.lags = Histogram(SECONDS)
        self._make = fold
        self._monotonic = runtime.monotonic
        self._saver = runtime.start_background("belated save")
        self._saving: tuple[int, Saving, Future[None]] | None = None
        self._model: PublishedModel | None = None
        self._model_number = 0
        self._look_at = self._send_at = -math.inf

    def step(self) -> int:
        """Do what is due; returns how many records were folded or written, 0 if it can rest."""
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
                self.history_changes.tell(error)
                self._drop(partition)
                count += 1  # it is taken over anew
            except BelatedError as error:  # a record that cannot be read: others need not wait
                failed = error
        self.lag = self._lag  # 0 if there was nothing to fold, however late the last records came
        self._send()
        self._save()
        if failed is not None:
            raise failed
        return count

    def close(self, *, save: bool = True) -> None:
        """Save, leave the partitions to others, and let go of everything.

        Args:
            save: False if a fold may be half changed: an error came in the middle of a step.
        """
        self._end_saving()
        for one in self.owned.values() if save else ():
            try:
                one.fold.save(self.shelf)
            except JournalUnavailable:  # as it will be for the others: each would wait as long
                break
            except JournalError:
                continue
        self.owned.clear()
        self.membership.close()
        self._saver.stop()
        self.shelf.close()
        self.journal.close()

    # --- what is owned ---------------------------------------------------------------------------

    def _hold_claimed(self) -> tuple[int, BelatedError | None]:
        """Own what is claimed, and no more; returns how much there is to do, and what failed."""
        claim = self.membership.claim()
        for partition in self.owned.keys() - claim.partitions:
            self._lose(partition)
        if claim.surplus:
            self._give_back(claim.surplus)
            self.membership.give_back(claim.surplus)
        wanted = [one for one in claim.partitions if one not in {*self.owned, *claim.surplus}]
        failed: BelatedError | None = None
        for partition in wanted:
            try:
                self._take_over(partition)
            except JournalUnavailable:
                raise
            except BelatedError as error:  # what is stored cannot be read
                failed = error
            else:
                break  # one at a time: the others are folded meanwhile
        return len(wanted), failed

    def _take_over(self, partition: int) -> None:
        """Fence whoever owned it before, then begin where its last snapshot ends."""
        epoch = self.shelf.acquire(partition)
        fold = self._make(partition)
        self.history_changes.tell_loaded(fold.load(self.shelf))
        if self._model is not None:
            fold.load_model(self._model)
        self.owned[partition] = Owned(fold, epoch, self._monotonic() + SNAPSHOT)
        self._tell(logging.INFO, "this worker owns a partition", partition, epoch=epoch)

    def _give_back(self, partitions: Collection[int]) -> None:
        """In good order: what is known is saved first."""
        self._end_saving()  # which may find that one of them is another's by now
        for partition in [one for one in partitions if one in self.owned]:
            with suppress(OwnerFenced):
                self.owned[partition].fold.save(self.shelf)
            self._drop(partition)
            self._tell(logging.INFO, "this worker gives a partition back", partition)

    def _lose(self, partition: int) -> None:
        """Another owns it: what is known of it is dropped, and nothing of it saved."""
        self.lost += 1
        self._drop(partition)
        self.membership.doubt([partition])
        self._tell(logging.WARNING, "another worker owns a partition", partition)

    def _drop(self, partition: int) -> None:
        del self.owned[partition]
        if self._saving is not None and self._saving[0] == partition:
            _, _, written = self._saving
            self._saving = None
            if not written.cancel():
                wait([written])  # whatever comes of it

    # --- what is due -----------------------------------------------------------------------------

    def _grown(self) -> Collection[int]:
        """Return the partitions that are to be read."""
        if not isinstance(self.journal, WatchedLog):
            return self.owned
        behind = {partition for partition, one in self.owned.items() if one.is_behind}
        others = {p: one.fold.position for p, one in self.owned.items() if p not in behind}
        return behind | self.journal.grown(others) if others else behind

    def _work(self, partition: int, has_grown: bool) -> int:
        one = self.owned[partition]
        return (self._fold_some(one) if has_grown else 0) + self._settle(one)

    def _fold_some(self, one: Owned) -> int:
        fold, journal, partition = one.fold, self.journal, one.fold.partition
        kernels = kernels_for(fold, journal) if one.is_behind else None
        limit = min(PAGE if kernels is None else MANY, fold.tuning.page)
        page = fold.follow(journal, partition, limit, kernels=kernels)
        count = len(page)
        one.is_behind = count == limit
        if count:
            now, last = self.clock.now(), fold.chains[partition].last
            assert last is not None
            first = int(page.recorded[0]) if isinstance(page, ColumnPage) else page[0].recorded
            self.clock.last_stamp = max(self.clock.last_stamp, last.recorded)
            self._lag = max(self._lag, (now - last.recorded) / 1e6)
            self.lags.add((now - first) / 1e6)
        return count

    def _settle(self, one: Owned) -> int:
        now, partition = self.clock.now(), one.fold.partition
        if not one.fold.ledgers[partition].is_due(now):
            return 0
        self.journal.append([Settled(partition, now)])
        return 1

    def _look_for_model(self) -> None:
        """Where to expand is what the last model says."""
        now = self._monotonic()
        if now < self._look_at + LOOK:
            return
        self._look_at = now
        found = self.coordination.published(self._model_number)
        if found is None:
            return
        self._model_number, data = found
        try:
            self._model = PublishedModel.read(data)
        except (CorruptJournal, UnsupportedFormat):  # then deciders have no use for it either
            return
        for one in self.owned.values():
            one.fold.load_model(self._model)

    def _send(self) -> None:
        now = self._monotonic()
        if now < self._send_at + SEND:
            return
        self._send_at = now
        sums: dict[int, tuple[int, bytes]] = {}
        number = 0 if self._model is None else self._model.center_number
        for one in self.owned.values():
            state = one.fold.version, number
            if state != one.sent or now >= one.sent_at + ALIVE:
                made = one.fold.sums(one.epoch)
                one.sent, one.sent_at = state, now
                sums[made.partition] = one.epoch, made.write()
        if sums:
            try:
                fenced = self.coordination.send(sums)
            except JournalUnavailable:
                for one in self.owned.values():
                    one.sent = None
                raise
            for partition in fenced:
                self._lose(partition)

    def _save(self) -> None:
        """Beside the fold: what changes meanwhile is copied before it does."""
        if self._saving is not None:
            if self._saving[2].done():
                self._end_saving()
            return
        now = self._monotonic()
        for partition, one in self.owned.items():
            if now >= one.save_at and one.fold.save_pays():
                one.save_at = now + SNAPSHOT
                try:
                    saving = one.fold.begin_save(self.journal)
                except HistoryChanged as error:
                    self.history_changes.tell(error)
                    self._drop(partition)
                else:
                    written = self._saver.submit(partial(saving.write, self.shelf))
                    self._saving = partition, saving, written
                return

    def _end_saving(self) -> None:
        """Wait for what is being written; one that was refused has lost its partition."""
        if self._saving is None:
            return
        partition, saving, written = self._saving
        self._saving = None
        if not written.cancel():
            wait([written])
        self.owned[partition].fold.end_save(saving)
        if not written.cancelled():
            try:
                with suppress(SnapshotConflict):  # then all is written the next time
                    written.result()
            except OwnerFenced:
                self._lose(partition)

    def _tell(self, level: int, message: str, partition: int | None, **more: object) -> None:
        told = {"bandit": self.journal.bandit, "worker": self.name, "partition": partition}
        log.log(level, message, extra=told | more)
