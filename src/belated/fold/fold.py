"""The state of a bandit: a fold over its journal.

A fold has a ledger and an adapter for each partition, and one learner for all partitions. A
snapshot contains the state of one partition and only saves time: folding the journal from its
start, or from the base that replaces trimmed records, produces the same ledger, and the same
estimate up to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from hashlib import blake2b

import msgspec
import numpy as np

from belated.advice.issues import Noticed, of_counters, total_of
from belated.core.events import ActionChanged, Erased, ModeChanged, ModelChosen, Record
from belated.core.ids import key_of, partition_of
from belated.core.rewards import ConversionsOnly, Rewards
from belated.core.times import as_datetime
from belated.core.tuning import USUAL, Tuning
from belated.exceptions import (
    BelatedError,
    HistoryChanged,
    InvalidInput,
    JournalMismatch,
    SnapshotConflict,
)
from belated.features import Features
from belated.fold.adapter import LearnerAdapter, block_names
from belated.fold.columns import PageFolder, kernels_for
from belated.fold.contexts import RowEncoder, name_of
from belated.fold.learner import Learner
from belated.fold.ledger import Ledger
from belated.fold.outcomes import OutcomeChanges, send_outcomes
from belated.fold.packing import VERSION, pack_head, unpack
from belated.fold.published import PublishedModel, readable_model
from belated.fold.rules import DecisionStatus, State
from belated.fold.saving import PartitionSaving, Saving, kept_at_load
from belated.fold.undone import Undone
from belated.fold.weighting import Outstanding
from belated.journals import Journal, UniqueLog
from belated.journals.chain import PIECE, Chain, Head, chain_behind
from belated.journals.log import EMPTY
from belated.journals.outcomes import OutcomeLog
from belated.journals.pages import ColumnLog, ColumnPage
from belated.journals.snapshots import Snapshot
from belated.model.kernels import Kernels, PageKernels
from belated.model.kernels.pages import BLOCK
from belated.model.model import Model
from belated.policies import Policy

#: Records, or their columns.
Page = list[Record] | ColumnPage
#: A function that folds a record and returns its status.
Take = Callable[[Record], str]
#: Records are folded in bulk if their number is at least ``Tuning.bulk`` and at least this fraction
#: of the number of observations.
SHARE = 0.05
#: Names of snapshot pieces for the mode, the model in use when the mode became ``freeze``, the
#: model that an operator chose, and the changes to actions.
_MODE, _FROZEN, _CHOSEN, _ACTIONS = "mode", "frozen model", "chosen model", "actions"
#: Name of the piece that marks snapshots of folds that have sent all outcomes.
_OUTCOMES = "outcomes"
_read_actions = msgspec.msgpack.Decoder(list[ActionChanged]).decode
#: Size of an entry, and approximate size of an event without its row, in bytes.
LINE, EVENT = 88, 100
#: A snapshot is worthwhile if it writes at most ``LITTLE`` bytes, or at most ``PAYS`` times the
#: size of the new events.
LITTLE, PAYS = 1 << 23, 2
#: A snapshot or a base, and the chain of the records that are included in it.
_Stored = tuple[Snapshot, Chain]


class Fold:
    """Folds records into the state of a bandit.

    Args:
        policy: the policy whose model is trained.
        rewards: what a missing reward means.
        features: features for recomputing rows that were computed with other features; None if
            callers pass rows.
        partitions: number of partitions of the journal.
        retention: how long a decision accepts rewards, in microseconds.
        until: ignore records with a later timestamp, in microseconds since 1970; None means no
            limit.
        outcomes: where to send outcomes of decisions as they change; None if they are not sent.
        kernels: kernels to use instead of the fastest available.
        tuning: internal sizes.
        background: whether long fits run in a separate thread.

    Attributes:
        mode: the mode of the bandit, according to the last event that changed it.
        actions: the last change of each action that was paused, resumed or retired.
        frozen: the model in use when the mode became ``freeze``; None in any other mode.
        chosen: the model that an operator chose for decisions; None for the newest.
        positions: the position of the last folded record of each partition.
        version: number of records folded so far in all partitions, which is the model's version.
        chains: the chain of each partition's records.
    """

    mode: str
    actions: dict[str, ActionChanged]
    frozen: PublishedModel | None
    chosen: PublishedModel | None
    positions: list[int]
    version: int
    chains: list[Chain]
    #: Whether :meth:`begin` or :meth:`load` was called since the fold was last cleared.
    begun: bool

    def __init__(
        self,
        policy: Policy,
        rewards: Rewards,
        *,
        features: Features | None = None,
        partitions: int = 1,
        retention: int | None = None,
        until: int | None = None,
        outcomes: OutcomeLog | None = None,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
        background: bool = False,
    ) -> None:
        self.policy = policy
        self.background = background
        self.tuning = tuning
        self.rewards = rewards
        self.features = features
        self.retention = retention
        self.until = until
        self.outcomes = outcomes
        self.min_reward, self.max_reward = rewards.range(policy.family.support)
        self._kernels = kernels
        self._partitions = partitions
        self.clear()

    def clear(self) -> None:
        """Discard all state, so that the journal can be folded again."""
        self.begun = False
        partitions, tuning = self._partitions, self.tuning
        self.learner = self._new_learner()
        self.encoder = RowEncoder(self.features, self.policy.features)
        self.adapters = {
            partition: LearnerAdapter(self.learner, at, self.encoder)
            for at, partition in enumerate(self.folded)
        }
        after = self.policy.learns_after
        self.ledgers = {
            partition: Ledger(
                self.rewards,
                adapter,
                min_reward=self.min_reward,
                max_reward=self.max_reward,
                retention=self.retention,
                # The order of decisions across partitions is unknown, so each partition waits for
                # its share of decisions.
                learn_after=0 if after is None else -(-after // partitions),
                tuning=tuning,
            )
            for partition, adapter in self.adapters.items()
        }
        for ledger in self.ledgers.values():
            ledger.outcomes = None if self.outcomes is None else OutcomeChanges()
        self.learner.outstanding = self._outstanding
        self.positions = [0] * partitions
        self.chains = [Chain(tuning.link) for _ in range(partitions)]
        self.version = 0
        self.mode = "learn"
        self.actions = {}
        self.frozen = self.chosen = None
        self._early: dict[str, Noticed] = {}
        self._was_bulk = True  # the first catch-up is in bulk
        # Pieces of the last snapshot of each partition; see PartitionSaving.before.
        self._saved: list[dict[str, bytes]] = [{} for _ in range(partitions)]
        self._saved_version = 0

    @property
    def folded(self) -> Sequence[int]:
        """The numbers of all partitions."""
        return range(self._partitions)

    def _outstanding(self) -> list[Outstanding]:
        """Return all pending decisions, by partition."""
        outstanding = []
        for partition, ledger in self.ledgers.items():
            adapter = self.adapters[partition]
            numbers = adapter.with_rows(ledger.awaited())
            rows, weights = adapter.pending_rows(numbers)
            outstanding.append((ledger.began_all(numbers), rows, weights))
        return outstanding

    def _new_learner(self) -> Learner:
        return Learner(
            self.policy,
            self.rewards,
            partitions=self._partitions,
            kernels=self._kernels,
            tuning=self.tuning,
            background=self.background,
        )

    def begin(self, journal: Journal) -> None:
        """Prepare a new fold by reading erasures, retractions and the bases of trimmed records.

        Raises:
            InvalidInput: ``until`` is before the end of the trimmed records.
            JournalMismatch: the trimmed records were folded with other settings.
        """
        self._read_undoing(journal)
        self._restore([self._base_of(journal, partition) for partition in self.folded])
        self.begun = True

    def _read_undoing(self, journal: UniqueLog) -> None:
        for partition in self.folded:
            records = journal.undone(partition)
            if self.until is not None:  # erasures apply regardless of their time
                records = [
                    record
                    for record in records
                    if record.recorded <= self.until or isinstance(record.event, Erased)
                ]
            ledger = self.ledgers[partition]
            ledger.undone = undone = Undone.of(records)
            if ledger.outcomes is not None and undone is not None:
                ledger.outcomes.undone_at = undone.last

    def read(
        self,
        journal: Journal,
        partition: int,
        limit: int,
        *,
        columns: bool = False,
        end: int | None = None,
    ) -> Page:
        """Check the last folded record of a partition, and return the records that follow it.

        The last folded record is read again and compared, because a journal can lose its tail (in a
        failover, or when a backup is restored) and then grow beyond the same position.

        Args:
            journal: the journal.
            partition: the partition.
            limit: maximum number of records.
            columns: whether to return columns, which the journal must support.
            end: the last position to read; None for no limit.

        Raises:
            HistoryChanged: the last folded record is missing or different.
        """
        last = self.chains[partition].last
        overlap = last is not None
        after = self.positions[partition] if last is None else last.position - 1
        page: Page
        if columns:
            assert isinstance(journal, ColumnLog)
            page = journal.read_columns(partition, after, limit + overlap)
        else:
            page = journal.read(partition, after, limit + overlap)
        if last is not None:
            if not len(page) or not _same(_stub(page, partition), last):
                raise HistoryChanged(partition, last.position)
            page = page[1:]
        if self.until is not None:
            stamps = page.recorded if isinstance(page, ColumnPage) else [r.recorded for r in page]
            page = page[: int(np.searchsorted(stamps, self.until, side="right"))]
        if end is not None:
            positions = (
                page.positions if isinstance(page, ColumnPage) else [r.position for r in page]
            )
            page = page[: int(np.searchsorted(positions, end, side="right"))]
        return page

    # --- folding ----------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The current model; if updates are deferred, the model as of the last export."""
        return self.learner.model

    def take(self, record: Record) -> str:
        """Fold one record; return its status.

        Raises:
            HistoryUndone: the record undoes others; call :meth:`clear` and fold again.
        """
        partition = record.partition
        status = self.ledgers[partition].fold(record)
        self.positions[partition] = record.position
        self.chains[partition].add((record,))
        self.version += 1
        if status == "switched":
            self._switch(record)
        return status

    def is_much(self, new: int) -> bool:
        """Return whether this many records should be folded in bulk, with one fit at the end.

        A full page is always folded in bulk, because more records are likely to follow.
        """
        tuning = self.tuning
        is_full = new >= tuning.page >= tuning.bulk
        return is_full or new >= max(tuning.bulk, SHARE * self.learner.model.n)

    def catch_up(
        self,
        journal: Journal,
        *,
        to: Sequence[int] | None = None,
        take: Take | None = None,
        progress: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Fold all new records of every partition; return how many there were.

        Args:
            journal: the journal.
            to: the last position to fold in each partition; None to fold all records.
            take: called for each record instead of :meth:`take`.
            progress: called with the number of records in each page.
        """
        new, size = 0, self.tuning.page
        # Columns are faster for many records. Assume many new records if there were many last time.
        kernels = kernels_for(self, journal) if self._was_bulk and take is None else None
        with ExitStack() as stack:
            is_bulk = False
            for partition in self.folded:
                end = None if to is None else to[partition]
                has_more = end is None or self.positions[partition] < end
                while has_more:
                    columns = kernels is not None
                    page = self.read(journal, partition, size, columns=columns, end=end)
                    has_more = len(page) == size
                    new += len(page)
                    if not is_bulk and self.is_much(new):
                        is_bulk = True
                        stack.enter_context(self.learner.bulk())  # a single fit at the end
                        kernels = kernels or (kernels_for(self, journal) if take is None else None)
                    self.take_all(partition, page, kernels if is_bulk else None, take)
                    progress(len(page))
                self._send_outcomes(partition)
        self._was_bulk = is_bulk
        return new

    def follow(
        self,
        journal: Journal,
        partition: int,
        limit: int,
        *,
        kernels: PageKernels | None = None,
        take: Take | None = None,
    ) -> Page:
        """Read the next records of a partition, fold them and return them.

        Args:
            journal: the journal.
            partition: the partition.
            limit: maximum number of records.
            kernels: kernels for folding columns in bulk mode; None to fold record by record.
            take: called for each record instead of :meth:`take`.
        """
        page = self.read(journal, partition, limit, columns=kernels is not None)
        self.take_all(partition, page, kernels, take)
        return page

    def take_all(
        self,
        partition: int,
        page: Page,
        kernels: PageKernels | None = None,
        take: Take | None = None,
    ) -> None:
        """Fold records of one partition, and send the outcomes that have changed.

        See :meth:`follow` for ``kernels`` and ``take``.
        """
        changes = self.ledgers[partition].outcomes
        if changes is not None and (not len(page) or changes.are_due):
            self._send_outcomes(partition)  # including outcomes that could not be sent before
        if isinstance(page, ColumnPage) and kernels is not None:
            self.take_columns(partition, page, kernels)
            return
        take = take or self.take
        for n in range(len(page)):
            take(page.record(n, partition) if isinstance(page, ColumnPage) else page[n])

    def _send_outcomes(self, partition: int) -> None:
        changes = self.ledgers[partition].outcomes
        if self.outcomes is not None and changes is not None:
            send_outcomes(self.outcomes, partition, changes)

    def has_sent(self, partition: int) -> bool:
        """Return whether all outcomes of the folded records were sent."""
        changes = self.ledgers[partition].outcomes
        return changes is None or changes.are_sent

    def take_columns(self, partition: int, page: ColumnPage, kernels: PageKernels) -> None:
        """Fold columns in bulk mode: common records with the kernel, others with the ledger."""
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
                        self._switch(record)
        finally:  # a record that raises changes nothing, and all earlier records are folded
            if count:
                self.positions[partition] = int(page.positions[count - 1])
                last = page.record(count - 1, partition)
                self.chains[partition].add_columns(page[:count], last)
                self.version += count

    def _switch(self, record: Record) -> None:
        event = record.event
        if isinstance(event, ActionChanged):
            self.actions[event.action] = event
        elif isinstance(event, ModelChosen):
            self.chosen = readable_model(event.model)
        elif isinstance(event, ModeChanged):
            self.mode = event.mode
            if self.mode != "freeze":
                self.frozen = None
            elif self.frozen is None:
                self.frozen = self._freeze(record.recorded)

    def _freeze(self, at: int) -> PublishedModel | None:
        """Return the model that a frozen bandit uses from now on."""
        self.learner.refresh()
        return self.export_model(at)

    def export_model(self, at: int) -> PublishedModel:
        """Apply deferred updates and return a copy of the model for deciders.

        The model is not fitted, even if a fit is due.

        Args:
            at: the time, in microseconds since 1970.
        """
        self.learner.weighting.refresh()
        return PublishedModel.of(
            self.model,
            self.learner.policy,
            positions=self.positions,
            version=self.version,
            at=at,
            head=str(head) if (head := self.head).digest else "",
            unmatched=self.unmatched,
            issues=self.noticed,
        )

    def entry(self, id: str) -> DecisionStatus | None:
        """Return the status of a remembered decision; None if the id is unknown."""
        return self.ledgers[partition_of(key_of(id), self._partitions)].entry(id)

    def decided_at(self, id: str) -> int | None:
        """Return when a remembered decision was made, by the decider's clock."""
        ledger = self.ledgers[partition_of(key_of(id), self._partitions)]
        return ledger.decided_at(id)

    # --- totals over all partitions ------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Number of decisions by state, over all partitions."""
        return {
            state.name.lower(): sum(ledger.counts[state] for ledger in self.ledgers.values())
            for state in State
        }

    @property
    def counters(self) -> dict[str, int]:
        """Number of events by status, over all partitions."""
        total: dict[str, int] = {}
        for ledger in self.ledgers.values():
            # Copy the counters, because another thread may be folding.
            for status, count in dict(ledger.counters).items():
                if count:
                    total[status] = total.get(status, 0) + count
        return dict(sorted(total.items()))

    @property
    def noticed(self) -> dict[str, Noticed]:
        """Issues with the events in the journal."""
        ledgers = self.ledgers.values()
        return total_of(
            *[of_counters(ledger.counters, ledger.latest) for ledger in ledgers], self._early
        )

    def count_early(self) -> None:
        """Count rewards that are dated before their decision; this scans all decisions."""
        self._early = total_of(*[{"early": ledger.early()} for ledger in self.ledgers.values()])

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of unknown decision ids that events refer to, by reporter of the first event."""
        total: Counter[str] = Counter()
        for ledger in self.ledgers.values():
            total.update(ledger.unmatched)
        return dict(total)

    @property
    def head(self) -> Head:
        """The digest of all folded records, with their positions."""
        return Head.of(self.chains)

    @property
    def digest(self) -> str:
        """A digest of the state of every decision, independent of the partitioning."""
        total = sum(ledger.digest for ledger in self.ledgers.values()) % (1 << 128)
        data = total.to_bytes(16) + repr(sorted(self.counts.items())).encode()
        return blake2b(data, digest_size=16).hexdigest()

    # --- snapshots -----------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the snapshot format and all settings that a snapshot depends on."""
        policy = self.learner.policy
        parts: tuple[object, ...] = (
            VERSION,
            self.rewards,
            self.retention,
            policy.family,
            "" if policy.features else policy.shape,  # features determine the shape
        )
        if policy.learns_after is not None:  # determines which values are withheld in the snapshot
            parts += (policy.learns_after,)
        # With a half-life, all rows are stored with their times; under ConversionsOnly, always.
        if policy.half_life is not None and not isinstance(self.rewards, ConversionsOnly):
            parts += ("auto" if policy.half_life == "auto" else "half-life",)
        settings = blake2b(repr(parts).encode(), digest_size=16).hexdigest()
        return settings + name_of(policy.features).hex()

    def snapshot_fingerprint(self, partition: int) -> str:
        """Return the fingerprint of a snapshot of one partition.

        It consists of :attr:`fingerprint` and a digest of erasures and retractions, because a
        snapshot cannot be used after a new erasure or retraction.
        """
        undone = self.ledgers[partition].undone
        return self.fingerprint + ("" if undone is None else undone.digest)

    def save(self, journal: Journal) -> None:
        """Save a snapshot of every partition; unchanged pieces are not written again.

        Args:
            journal: the journal.

        Raises:
            HistoryChanged: the journal no longer contains the folded records.
        """
        saving = self.begin_save(journal)
        try:
            saving.write(journal)
        except SnapshotConflict:  # another process saved a snapshot, so write all pieces again
            self.end_save(saving)
            saving = self.begin_save(journal)
            saving.write(journal)
        finally:
            self.end_save(saving)

    def begin_save(self, journal: Journal) -> Saving:
        """Capture the current state, which :meth:`Saving.write` stores while this fold continues.

        Args:
            journal: the journal.

        Raises:
            HistoryChanged: the journal no longer contains the folded records.
        """
        for partition in self.folded:
            self.read(journal, partition, 0)
            self._send_outcomes(partition)
        self._saved_version = self.version
        # Outcomes that are held back would be lost, because later folds begin at the snapshot.
        return Saving([self._begin_save(n) for n in self.folded if self.has_sent(n)])

    def _begin_save(self, partition: int) -> PartitionSaving:
        adapter, before = self.adapters[partition], self._saved[partition]
        blocks, changed = adapter.table.blocks(), self._changed_blocks(partition)
        unchanged = [
            name for block in blocks if block not in changed for name in block_names(block)
        ]
        copies = adapter.begin_copies({block: blocks[block] for block in changed})
        adapter.table.changed = set()
        return PartitionSaving(
            partition,
            self.positions[partition],
            self.snapshot_fingerprint(partition),
            self._pieces(partition),
            copies,
            unchanged,
            before,
        )

    def end_save(self, saving: Saving) -> None:
        """Finish a save, whether or not it succeeded; required before the next save begins."""
        for part in saving.parts:
            table = self.adapters[part.partition].table
            table.copies = None
            if part.sums is None:  # the snapshot was not written
                self._saved_version = 0
            if saving.conflicts:  # the stored pieces belong to another process
                self._saved[part.partition] = {}
            elif part.sums is not None:
                self._saved[part.partition] = part.sums
            else:
                table.changed |= part.copies.blocks

    def save_pays(self) -> bool:
        """Return whether a snapshot would be small, in total or relative to the new events.

        This limits the bytes written per event, even if rewards change many old entries. The result
        is False if there are no new events.
        """
        if self.version == self._saved_version:
            return False
        row = 4 * self.policy.row_width
        lines = sum(len(self._changed_blocks(partition)) for partition in self.folded) << BLOCK
        subjects = sum(ledger.subjects_size for ledger in self.ledgers.values())
        size = lines * (LINE + row) + subjects
        return size <= LITTLE or size <= PAYS * (self.version - self._saved_version) * (EVENT + row)

    def _changed_blocks(self, partition: int) -> set[int]:
        """Return the numbers of the blocks that have changed since the last snapshot."""
        table, saved = self.adapters[partition].table, self._saved[partition]
        return {
            block
            for block in table.blocks()
            if block in table.changed or block_names(block)[0] not in saved
        }

    def base(self, partition: int) -> Snapshot:
        """Return the complete state of a partition, which replaces its records when it is trimmed.

        Trimmed records cannot be undone later, so the fingerprint omits erasures and retractions.
        """
        pieces, adapter = self._pieces(partition), self.adapters[partition]
        for block, lines in adapter.table.blocks().items():
            pieces |= adapter.copy(lines).pieces(block)
        return Snapshot(partition, self.positions[partition], self.fingerprint, pieces)

    def _pieces(self, partition: int) -> dict[str, bytes]:
        """Return all snapshot pieces except blocks of entries."""
        pieces = pack_head(self.ledgers[partition]) | self.adapters[partition].pack()
        pieces[PIECE] = self.chains[partition].pack()
        if self.outcomes is not None:
            pieces[_OUTCOMES] = b"sent"
        if partition == 0:  # partition 0 has all events that change the mode or actions
            pieces[_MODE] = self.mode.encode()
            pieces[_ACTIONS] = msgspec.msgpack.encode([*self.actions.values()])
            if self.frozen is not None:
                pieces[_FROZEN] = self.frozen.write()
            if self.chosen is not None:
                pieces[_CHOSEN] = self.chosen.write()
        return pieces

    def load(self, journal: Journal) -> list[HistoryChanged]:
        """Prepare a new fold from the journal's usable snapshots, or otherwise from its bases.

        Returns:
            An error for each snapshot whose records the journal no longer contains. These
            partitions are folded from the beginning; the caller should report that the history has
            changed.
        """
        self._read_undoing(journal)
        stored: list[_Stored | None] = []
        changed: list[HistoryChanged] = []
        for partition in self.folded:
            snapshot = None
            try:
                snapshot = self._snapshot_of(journal, partition)
            except HistoryChanged as error:
                changed.append(error)
            stored.append(snapshot or self._base_of(journal, partition))
        self._restore(stored)
        self.begun = True
        return changed

    def _snapshot_of(self, journal: Journal, partition: int) -> _Stored | None:
        """Return a snapshot with its chain; None if there is no usable snapshot.

        Raises:
            HistoryChanged: the journal no longer contains the records of the snapshot.
        """
        snapshot, link = journal.load(partition), self.tuning.link
        if snapshot is None or snapshot.fingerprint != self.snapshot_fingerprint(partition):
            return None
        position = snapshot.position
        if position <= journal.start(partition).position:  # the snapshot is older than the base
            return None
        if self.outcomes is not None:
            undone = self.ledgers[partition].undone
            if _OUTCOMES not in snapshot.pieces or (undone is not None and position < undone.last):
                return None  # outcomes of earlier records must be sent
        chain = Chain.resume(snapshot.pieces[PIECE], journal, partition, position, link)
        if chain is None:
            raise HistoryChanged(partition, position)
        self._saved[partition] = kept_at_load(snapshot.pieces)
        return snapshot, chain

    def _base_of(self, journal: Journal, partition: int) -> _Stored | None:
        """Return the base of trimmed records; None if no records were trimmed."""
        start = journal.start(partition)
        if start == EMPTY:
            return None
        if self.until is not None and self.until < start.stamp:
            message = (
                f"the records of partition {partition} up to {as_datetime(start.stamp)} were "
                "trimmed: choose a later time"
            )
            raise InvalidInput(message, self.until)
        base = journal.base(partition)
        assert base is not None
        if base.fingerprint != self.fingerprint and base.fingerprint[:32] == self.fingerprint[:32]:
            message = (
                f"the records of partition {partition} up to {as_datetime(start.stamp)} were "
                "trimmed with their contexts, so they cannot be encoded with other features: open "
                "the bandit with the features it had then, or start a new journal"
            )
            raise JournalMismatch(message)
        if base.fingerprint != self.fingerprint:
            message = (
                f"the records of partition {partition} up to {as_datetime(start.stamp)} were "
                "trimmed with a different window, default, retention, reduction or family, or "
                "before a half-life was added or removed: open the bandit with the settings it had "
                "then, or start a new journal"
            )
            raise JournalMismatch(message)
        return base, chain_behind(base, self.tuning.link)

    def _restore(self, stored: Sequence[_Stored | None]) -> None:
        snapshots = [pair for pair in stored if pair is not None]
        if snapshots:  # otherwise there is nothing to fit
            with self.learner.bulk():
                for snapshot, chain in snapshots:
                    self._unpack(snapshot, chain)

    def _unpack(self, snapshot: Snapshot, chain: Chain) -> None:
        partition = snapshot.partition
        ledger, adapter = self.ledgers[partition], self.adapters[partition]
        try:
            unpack(ledger, snapshot.pieces)
            adapter.unpack(snapshot.pieces)
        except (KeyError, ValueError) as error:
            message = "a snapshot could not be read although its checksum is correct"
            raise BelatedError(f"{message}: {error}") from error
        adapter.add_all_pending(adapter.with_rows(ledger.awaited()))
        if _MODE in snapshot.pieces:
            self.mode = snapshot.pieces[_MODE].decode()
        if _ACTIONS in snapshot.pieces:
            changes = _read_actions(snapshot.pieces[_ACTIONS])
            self.actions = {change.action: change for change in changes}
        if _FROZEN in snapshot.pieces:
            self.frozen = PublishedModel.read(snapshot.pieces[_FROZEN])
        if _CHOSEN in snapshot.pieces:
            self.chosen = PublishedModel.read(snapshot.pieces[_CHOSEN])
        self.positions[partition] = snapshot.position
        if ledger.outcomes is not None:
            ledger.outcomes.reach(snapshot.position, 0)
        self.chains[partition] = chain
        self.version += sum(ledger.counters.values())
        self._saved_version = self.version


def same_sums(one: Fold, other: Fold, tolerance: float = 1e-9) -> bool:
    """Return whether two folds agree: counts exactly, sums up to rounding."""
    first, second = one.learner.observed.moments(), other.learner.observed.moments()
    scale = max(1.0, float(np.abs(first.gram).max(initial=0.0)), first.square)
    return (
        one.counts == other.counts
        and first.n == second.n
        and bool(np.allclose(first.gram, second.gram, rtol=tolerance, atol=tolerance * scale))
        and bool(np.allclose(first.cross, second.cross, rtol=tolerance, atol=tolerance * scale))
        and abs(first.square - second.square) <= tolerance * scale
    )


def _stub(page: Page, partition: int) -> Record:
    return page.stub(0, partition) if isinstance(page, ColumnPage) else page[0]


def _same(one: Record, other: Record) -> bool:
    """Return whether two records are the same, by position, timestamp and digest."""
    return one is other or (
        one.position == other.position
        and one.recorded == other.recorded
        and one.digest == other.digest
    )
