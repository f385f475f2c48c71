"""The state of a bandit: a fold over its journal.

For each partition a ledger and an adapter to the learner, and one learner for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from hashlib import blake2b

import numpy as np

from belated.events import Decision, ModeChanged, Record, Reward
from belated.ids import key_of, partition_of
from belated.journals import Journal
from belated.journals.chain import Head
from belated.journals.columns import ColumnLog, ColumnPage
from belated.kernels import PageKernels
from belated.learner.columns import PageFolder, kernels_for
from belated.learner.fold_state import FoldState
from belated.ledger import DecisionStatus, State
from belated.models import Model
from belated.published import PublishedModel

#: Records, or their columns.
_Page = list[Record] | ColumnPage
#: This share of all observations, and at least ``Tuning.bulk``, are folded in bulk.
SHARE = 0.05


class Fold(FoldState):
    """Folds records, and says what they come to.

    Args:
        policy: whose model is learned.
        rewards: what silence means.
        partitions: of the journal.
        retention: for how long a decision takes rewards, in microseconds.
        until: records stamped later are not there; None for all.
        kernels: to use instead of the best available.
        tuning: sizes.

    Attributes:
        mode: how the bandit decides, by the last event that said so.
        frozen: the model of the moment the mode became ``freeze``; None in any other mode.
        positions: of the last record that was folded, for each partition.
        version: records folded so far, over all partitions: the version of the model.
        chains: of the records, for each partition.
    """

    @property
    def model(self) -> Model:
        """The model, up to date."""
        return self.learner.model

    def take(self, record: Record) -> str:
        """Fold one record; returns what it meant.

        Raises:
            HistoryUndone: it undoes what was folded; begin anew with :meth:`begin`.
        """
        partition = record.partition
        plain, kind, status = self.plain[partition], type(record.event), ""
        if plain is not None:
            if kind is Decision:
                status = plain.decided(record)
            elif kind is Reward:
                status = plain.rewarded(record)
        if not status:
            status = self.ledgers[partition].fold(record)
        self.positions[partition] = record.position
        self.chains[partition].add((record,))
        self.version += 1
        if status == "switched":
            self._change_mode(record)
        return status

    def take_few(self, partition: int, page: Sequence[Record]) -> list[str]:
        """Fold a few records of one partition, not in bulk; returns what each meant."""
        plain = self.plain[partition]
        meant: list[str] = []
        while (first := len(meant)) < len(page):
            count = 0 if plain is None else plain.decided_all(page, first)
            if count:
                self._note(partition, page[first : first + count])
                meant += ["decided"] * count
            else:
                meant.append(self.take(page[first]))
        return meant

    def is_much(self, new: int) -> bool:
        """Whether so many records are sooner folded in bulk, though it ends with a fit of all.

        Behind a full page there are more.
        """
        tuning = self.tuning
        is_full = new >= tuning.page >= tuning.bulk
        return is_full or new >= max(tuning.bulk, SHARE * self.learner.model.n)

    def catch_up(self, journal: Journal) -> int:
        """Fold all that is new in every partition; returns how many records that were."""
        start, size = self.version, self.tuning.page
        # Columns are for many records, as there were last time; a few are sooner read as records.
        kernels = kernels_for(self, journal) if self._was_bulk else None

        def read(partition: int) -> _Page:
            if kernels is None:
                return self.read(journal, partition, size)
            assert isinstance(journal, ColumnLog)
            return self.read_columns(journal, partition, size)

        # How many records are new is not known before they are read: positions may have gaps.
        pages: dict[int, _Page] = {}
        for partition in self.folded:
            pages[partition] = read(partition)
            if bulk := self.is_much(sum(map(len, pages.values()))):
                break
        self._was_bulk = bulk
        with self.learner.bulk() if bulk else nullcontext():  # one fit at the end for all
            for partition in self.folded:
                page = pages.pop(partition, None)
                page = read(partition) if page is None else page
                while len(page):
                    if isinstance(page, list):
                        self.take_all(partition, page)
                    elif bulk and kernels is not None:
                        self.take_columns(partition, page, kernels)
                    else:
                        self.take_all(partition, page.records(partition))
                    if len(page) < size:
                        break
                    kernels = kernels or kernels_for(self, journal)  # there is more
                    page = read(partition)
        return self.version - start

    def take_all(self, partition: int, page: list[Record]) -> None:
        """Fold records of one partition."""
        fold, count = self.ledgers[partition].fold, 0
        try:
            for record in page:
                status = fold(record)
                count += 1
                if status == "switched":
                    self._change_mode(record)
        finally:  # of a record that cannot be folded nothing was taken, and all before it was
            if count:
                self._note(partition, page[:count])

    def _note(self, partition: int, taken: Sequence[Record]) -> None:
        """These were folded."""
        self.positions[partition] = taken[-1].position
        self.chains[partition].add(taken)
        self.version += len(taken)

    def take_columns(self, partition: int, page: ColumnPage, kernels: PageKernels) -> None:
        """Fold columns, in bulk: what is plain by the kernel, and the rest by the rules."""
        ledger, count = self.ledgers[partition], 0
        folder = PageFolder(ledger, self.adapters[partition], page, kernels)
        try:
            while count < len(page):
                first, count = count, folder.take_plain(count)
                for _ in range(min(folder.burst(count - first), len(page) - count)):
                    record = page.record(count, partition)
                    status = ledger.fold(record)
                    count += 1
                    if status == "switched":
                        self._change_mode(record)
        finally:  # as above
            if count:
                self.positions[partition] = int(page.positions[count - 1])
                taken = page.part(0, count)
                self.chains[partition].add_columns(taken, page.record(count - 1, partition))
                self.version += count

    def _change_mode(self, record: Record) -> None:
        if not isinstance(record.event, ModeChanged):
            return
        self.mode = record.event.mode
        if self.mode != "freeze":
            self.frozen = None
        elif self.frozen is None:
            self.learner.refresh()
            self.frozen = self.publish(record.recorded)

    def publish(self, at: int) -> PublishedModel:
        """Return a copy of the model that travels.

        Args:
            at: the time, in microseconds since 1970.
        """
        return PublishedModel.of(
            self.model,
            self.learner.policy,
            positions=self.positions,
            version=self.version,
            at=at,
            head=str(head) if (head := self.head).digest else "",
            unmatched=self.unmatched,
        )

    def entry(self, id: str) -> DecisionStatus | None:
        """Return what a remembered decision has come to."""
        return self.ledgers[partition_of(key_of(id), self._partitions)].entry(id)

    # --- what it comes to ----------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Decisions by state, over all partitions."""
        return {
            state.name.lower(): sum(ledger.counts[state] for ledger in self.ledgers.values())
            for state in State
        }

    @property
    def counters(self) -> dict[str, int]:
        """Events by status, over all partitions."""
        total: dict[str, int] = {}
        for ledger in self.ledgers.values():
            for status, count in ledger.counters.items():
                if count:
                    total[status] = total.get(status, 0) + count
        return dict(sorted(total.items()))

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of ids whose decision is not known, by the reporter of their first event."""
        total: Counter[str] = Counter()
        for ledger in self.ledgers.values():
            total.update(ledger.unmatched)
        return dict(total)

    @property
    def head(self) -> Head:
        """Names all records that were folded."""
        return Head.of(self.chains)

    @property
    def digest(self) -> str:
        """Names the state of every decision: equal for equal sets of records, however split."""
        total = sum(ledger.digest for ledger in self.ledgers.values()) % (1 << 128)
        what = total.to_bytes(16) + repr(sorted(self.counts.items())).encode()
        return blake2b(what, digest_size=16).hexdigest()


def same_sums(one: Fold, other: Fold, tolerance: float = 1e-9) -> bool:
    """Whether two folds have learned from the same: counts exactly, sums to rounding."""
    first, second = one.learner.observed.moments(), other.learner.observed.moments()
    scale = max(1.0, float(np.abs(first.gram).max(initial=0.0)), first.square)
    return (
        one.counts == other.counts
        and first.n == second.n
        and bool(np.allclose(first.gram, second.gram, rtol=tolerance, atol=tolerance * scale))
        and bool(np.allclose(first.cross, second.cross, rtol=tolerance, atol=tolerance * scale))
        and abs(first.square - second.square) <= tolerance * scale
    )
