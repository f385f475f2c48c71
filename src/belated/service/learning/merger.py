"""The merger: takes the sums of all partitions, and publishes the model they come to."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from belated.exceptions import CorruptJournal, OwnerFenced, UnsupportedFormat
from belated.features import Features
from belated.fold.partitioned import Merging, PartitionFold, PartitionSums
from belated.fold.published import PublishedModel
from belated.journals import CoordinationStore, Journal
from belated.journals.identity import configure, settings_of
from belated.service.learning.lease import SECONDS as LEASE
from belated.service.learning.lease import Lease, LeaseRenewal
from belated.service.runtime import Runtime, ThreadRuntime

#: Seconds between two looks for sums, and between two models that do not differ.
PUBLISH, ALIVE = 0.1, 5.0
#: Seconds between two heads of the journal that are told.
HEAD = 3600.0

log = logging.getLogger("belated.service")


class Merger:
    """Merges and publishes while it holds the lease; stands by while another does.

    Call :meth:`step` again and again. Of each partition one entry counts: that of the highest
    epoch, then position. Nothing is published before every partition has one, and nothing that
    knows less of a partition than the last model did.

    Args:
        journal: of the bandit.
        coordination: where sums are, and models are published.
        fold: makes an empty fold of a partition: of the policy and the rewards' semantics.
        name: of this process; no other has it.
        features: what makes rows, if anything does: the journal is told.
        lease: seconds for which the lead is held without being renewed.
        runtime: time and threads; real ones if None.
        renewal: renews the leases of all learners of the process; if None, that of this one.

    Attributes:
        merging: the sums of all partitions, while this one leads.
        epoch: in which it does.
        head: of the journal, taken once an hour; empty before the first.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: Callable[[int], PartitionFold],
        *,
        name: str,
        features: Features | None = None,
        lease: float = LEASE,
        runtime: Runtime | None = None,
        renewal: LeaseRenewal | None = None,
    ) -> None:
        runtime = runtime or ThreadRuntime()
        self.journal = journal
        self.coordination = coordination
        self.name = name
        renewal = renewal or LeaseRenewal(coordination.cells, lease, runtime)
        self.lease = Lease(coordination, journal.bandit, name, renewal)
        self.merging: Merging | None = None
        self.epoch = 0
        self.head = ""
        self._make = fold
        self._features = features
        self._monotonic = runtime.monotonic
        self._floor: list[int] = []
        #: By partition, the version of the sums that were last taken.
        self._versions: dict[int, int] = {}
        self._changed = False
        self._look_at = self._published_at = self._head_at = -math.inf

    def leads(self) -> bool:
        """Whether it is this one that publishes."""
        return self.merging is not None

    def step(self) -> int:
        """Do what is due; returns how many entries were taken, 0 if it can rest."""
        try:
            if not self._lead():
                return 0
            assert self.merging is not None
            if self._monotonic() < self._look_at + PUBLISH:
                return 0
            self._look_at = self._monotonic()
            count = self._take(self.merging)
            self._publish(self.merging)
        except OwnerFenced:
            self._stand_by()
            return 0
        return count

    def close(self) -> None:
        """Leave the lead to others."""
        self.lease.close()
        self._stand_by()

    def _lead(self) -> bool:
        epoch = self.lease.renew_or_acquire()
        if epoch is None or epoch != self.epoch:
            self._stand_by()
        if epoch is not None and self.merging is None:
            self._take_over(epoch)
        return self.leads()

    def _stand_by(self) -> None:
        self.merging = None
        self.epoch = 0

    def _take_over(self, epoch: int) -> None:
        """Begin where the last model ends."""
        fold = self._make(0)
        policy = fold.learner.policy
        settings = settings_of(policy, fold.rewards, fold.retention, self._features)
        configure(self.journal, settings, self.journal.now())
        merging = Merging(policy, self.journal.partitions, fold.fingerprint)
        found = self.coordination.published(0)
        self._floor, self._versions = [0] * self.journal.partitions, {}
        if found is not None:
            try:
                last = PublishedModel.read(found[1])
            except (CorruptJournal, UnsupportedFormat):  # then deciders have no use for it either
                pass
            else:
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
        if self._is_behind(merging.positions):
            return
        mode = self.journal.mode()
        if mode is not None and mode.mode == "freeze":  # the last model stays
            return
        model = merging.export_model(self.journal.now())
        self.coordination.publish(model.write(), self.epoch)
        self._floor, self._changed, self._published_at = model.positions, False, now
        if model.head and now >= self._head_at + HEAD:
            self.head, self._head_at = model.head, now
            extra = {"bandit": self.journal.bandit, "head": model.head}
            log.info("the journal has this head", extra=extra)

    def _is_behind(self, positions: list[int]) -> bool:
        """Whether the last model knew more, as far as the journal still goes.

        A new owner of a partition begins with its snapshot. Until it has come as far as the one
        before it, deciders are better off with the last model.
        """
        behind = [n for n, floor in enumerate(self._floor) if positions[n] < floor]
        for partition in behind:
            self._floor[partition] = min(self._floor[partition], self.journal.end(partition))
        return any(positions[n] < self._floor[n] for n in behind)
