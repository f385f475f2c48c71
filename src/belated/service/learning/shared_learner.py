"""One of several learners of a bandit: it folds some partitions, and the leader merges all sums."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from contextlib import suppress
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

#: Seconds between two looks for a model, and between sums that differ. Those that do not are sent
#: every `ALIVE` seconds: they show who owns the partition.
LOOK, SEND = 0.2, 0.1
#: Records of a partition that are folded before anything else is looked at: while few come, and
#: while there are many to catch up with.
PAGE, MANY = 2_000, 10_000

log = logging.getLogger("belated.service")


@dataclass(eq=False)
class Owned:
    """A partition that a worker owns.

    Attributes:
        fold: what is known of it.
        epoch: in which it is owned.
        save_at: when its next snapshot is due.
        sent: version, and number of the center, of the sums that were last sent.
        sent_at: when they were sent.
        is_behind: whether the last page was full.
    """

    fold: PartitionFold
    epoch: int
    save_at: float
    sent: tuple[int, int] | None = None
    sent_at: float = -math.inf
    is_behind: bool = True


@dataclass(eq=False)
class PartitionWorker:
    """Folds, settles, saves and sends the sums of the partitions that it owns.

    What it owns is claimed from the store, and acquired: a worker that was cut off, and is slow
    rather than dead, can neither save nor send any longer once another has acquired the partition.
    It then drops what it knows of it.

    Args:
        journal: of the bandit.
        coordination: where workers share the partitions, and sums are sent to.
        fold: makes an empty fold of a partition.
        name: of this worker; no other has it.
        session: seconds for which partitions are held without a heartbeat.
        shelf: where snapshots are written.
        clock: of the journal.
        runtime: time and threads.

    Attributes:
        owned: by partition, what this worker owns now.
        lost: how often a partition was another's before it was given back.
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
        #: How long ago the last record that was folded had been committed, in seconds; and of each
        #: page the first.
        self.lag = self._lag = 0.0
        self.lags = Histogram(SECONDS)
        self._monotonic = self.runtime.monotonic
        self._saving = BackgroundSave(self.journal, self.shelf, self.runtime)
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
                self.history_changes.note(error)
                self._drop(partition)
                count += 1  # it is taken over again
            except BelatedError as error:  # a record that cannot be read: others need not wait
                failed = error
        self.lag = self._lag  # 0 if there was nothing to fold, however late the last records came
        self._send()
        self._save()
        if failed is not None:
            raise failed
        return count

    def close(self, *, save: bool = True) -> None:
        """Save, give the partitions back, and close the journal.

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
        self._saving.stop()
        self.shelf.close()
        self.journal.close()

    # --- what is owned ---------------------------------------------------------------------------

    def _hold_claimed(self) -> tuple[int, BelatedError | None]:
        """Follow the claim; returns how many partitions it adds, and an error if one failed."""
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
        """Fence the previous owner, then start from its last snapshot."""
        epoch = self.shelf.acquire(partition)
        fold = self.fold(partition)
        self.history_changes.note_loaded(fold.load(self.shelf))
        if self._model is not None:
            fold.load_model(self._model)
        self.owned[partition] = Owned(fold, epoch, self._monotonic() + SNAPSHOT)
        self._log(logging.INFO, "this worker owns a partition", partition, epoch=epoch)

    def _give_back(self, partitions: Collection[int]) -> None:
        """Save and drop these partitions."""
        self._end_saving()  # which may find that one of them is another's by now
        for partition in [one for one in partitions if one in self.owned]:
            with suppress(OwnerFenced):
                self.owned[partition].fold.save(self.shelf)
            self._drop(partition)
            self._log(logging.INFO, "this worker gives a partition back", partition)

    def _lose(self, partition: int) -> None:
        """Another owns it: what is known of it is dropped, and nothing of it saved."""
        self.lost += 1
        self._drop(partition)
        self.membership.doubt([partition])
        self._log(logging.WARNING, "another worker owns a partition", partition)

    def _drop(self, partition: int) -> None:
        if self.owned.pop(partition).fold is self._saving.fold:
            self._saving.abandon()

    # --- what is due -----------------------------------------------------------------------------

    def _grown(self) -> Collection[int]:
        """Return the partitions that are to be read."""
        if not isinstance(self.journal, WatchedLog):
            return self.owned
        behind = {partition for partition, one in self.owned.items() if one.is_behind}
        others = {p: one.fold.position for p, one in self.owned.items() if p not in behind}
        return behind | self.journal.grown(others) if others else behind

    def _work(self, partition: int, has_grown: bool) -> int:
        owned = self.owned[partition]
        count = self._fold_some(owned) if has_grown else 0
        return count + append_settled(self.journal, owned.fold, self.clock.now())

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

    def _look_for_model(self) -> None:
        """Load the last model: it says where to expand."""
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
                return

    def _end_saving(self) -> None:
        """Wait until the snapshot is written; one that was refused has lost its partition."""
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
    """Works on its share of the partitions; the leader also merges the sums of all of them.

    Call :meth:`step` repeatedly. Start one per available core: the partitions are divided among
    them, and those of a learner that dies go to the others.

    Of each partition one entry counts: that of the highest epoch, then position. Nothing is
    published before every partition has one, and nothing that knows less of a partition than the
    last model did.

    Args:
        journal: of the bandit.
        coordination: where learners share the work, and models are published.
        fold: makes an empty fold of a partition.
        settings: of a :class:`~belated.service.learning.leader.Leader`.

    Attributes:
        worker: for partitions.
        merging: the sums of all partitions while this learner leads.
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
        #: By partition, the version of the sums that were last read.
        self._versions: dict[int, int] = {}
        self._changed = False
        self._look_at = self._published_at = -math.inf

    def step(self) -> int:
        """Do what is due; returns how many records were folded or written, 0 if it can rest."""
        try:
            return self.worker.step()
        finally:  # sums of others are published even if this worker cannot read a record
            self.merge()

    def merge(self) -> int:
        """Merge and publish, if this learner leads; returns how many sums were new."""
        try:
            if not self._lead() or self._monotonic() < self._look_at + PUBLISH:
                return 0
            assert self.merging is not None
            self._look_at = self._monotonic()
            count = self._take(self.merging)
            self._publish(self.merging)
        except OwnerFenced:
            self._stand_by()
            return 0
        return count

    def close(self, *, save: bool = True) -> None:
        """Save, give up the partitions and the lead, and close the journal.

        Args:
            save: False if a fold may be half changed: an error came in the middle of a step.
        """
        self.lease.close()
        self._stand_by()
        self.worker.close(save=save)
        self.coordination.close()

    def _stand_by(self) -> None:
        super()._stand_by()
        self.merging = None

    def _take_over(self, epoch: int) -> None:
        """Start from the last model."""
        fold = self._make_fold(0)
        self._configure(fold)
        merging = Merging(fold.policy, self.journal.partitions, fold.fingerprint)
        self._floor, self._versions = [0] * self.journal.partitions, {}
        last = read_model(self.coordination.published())
        if last is not None:
            merging.go_on_from(last)
            self._floor = last.positions
        self.merging, self.epoch, self._changed = merging, epoch, False

    def _take(self, merging: Merging) -> int:
        count, sent = 0, self.coordination.sent(self.journal.partitions, self._versions)
        for partition, (version, data) in sent.items():
            self._versions[partition] = version
            try:
                entry = PartitionSums.read(data)
            except (CorruptJournal, UnsupportedFormat) as error:  # its owner sends others
                extra = {"bandit": self.journal.bandit, "partition": partition}
                log.error("sums that cannot be read: %s", error, extra=extra)
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
        """Whether the last model knew more, as far as the journal still goes.

        A new owner of a partition starts from its snapshot. Until it has read as far as the
        previous owner, deciders are better off with the last model.
        """
        behind = [n for n, floor in enumerate(self._floor) if positions[n] < floor]
        for partition in behind:
            self._floor[partition] = min(self._floor[partition], self.journal.end(partition))
        return any(positions[n] < self._floor[n] for n in behind)
