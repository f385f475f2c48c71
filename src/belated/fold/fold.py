"""The state of a bandit: a fold over its journal.

For each partition a ledger and an adapter to the learner, and one learner for all. A snapshot is of
one partition, and only a shortcut: the same ledger, and the same estimate up to rounding, come from
reading the journal from its start, or from the base that stands for records that were trimmed.
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
from belated.fold.packing import VERSION, pack_head, unpack
from belated.fold.published import PublishedModel, readable_model
from belated.fold.rules import DecisionStatus, State
from belated.fold.saving import PartitionSaving, Saving, kept_at_load
from belated.fold.undone import Undone
from belated.fold.weighting import Outstanding
from belated.journals import Journal, UniqueLog
from belated.journals.chain import PIECE, Chain, Head, chain_behind
from belated.journals.log import EMPTY
from belated.journals.pages import ColumnLog, ColumnPage
from belated.journals.snapshots import Snapshot
from belated.model.kernels import Kernels, PageKernels
from belated.model.kernels.pages import BLOCK
from belated.model.model import Model
from belated.policies import Policy

#: Records, or their columns.
Page = list[Record] | ColumnPage
#: Folds a record; returns what it meant.
Take = Callable[[Record], str]
#: This share of all observations, and at least ``Tuning.bulk``, are folded in bulk.
SHARE = 0.05
#: Pieces of a snapshot, beside the chain: the mode, the model it froze, the model that was chosen,
#: and changes of actions.
_MODE, _FROZEN, _CHOSEN, _ACTIONS = "mode", "frozen model", "chosen model", "actions"
_read_actions = msgspec.msgpack.Decoder(list[ActionChanged]).decode
#: Bytes of a line, and about those of an event but for its row.
LINE, EVENT = 88, 100
#: A snapshot pays if it writes at most so many bytes, or so many times those of the new events.
LITTLE, PAYS = 1 << 23, 2
#: A snapshot or a base, and the chain of the records that are in it.
_Stored = tuple[Snapshot, Chain]


class Fold:
    """Folds records, and says what they come to.

    Args:
        policy: whose model is learned.
        rewards: what a missing reward means.
        features: that encode again what others have encoded; None if rows are what callers pass.
        partitions: of the journal.
        retention: for how long a decision takes rewards, in microseconds.
        until: records stamped later are not there; None for all.
        kernels: to use instead of the best available.
        tuning: sizes.
        background: whether fits that take long are made in a thread of their own.

    Attributes:
        mode: how the bandit decides, by the last event that said so.
        actions: the last change of each action that was paused, resumed or retired.
        frozen: the model of the moment the mode became ``freeze``; None in any other mode.
        chosen: the model that an operator chose to decide; None: the newest.
        positions: of the last record that was folded, for each partition.
        version: records folded so far, over all partitions: the version of the model.
        chains: of the records, for each partition.
    """

    mode: str
    actions: dict[str, ActionChanged]
    frozen: PublishedModel | None
    chosen: PublishedModel | None
    positions: list[int]
    version: int
    chains: list[Chain]
    #: Whether it knows what was undone and where to read on: since :meth:`begin` or :meth:`load`.
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
        self.min_reward, self.max_reward = rewards.range(policy.family.support)
        self._kernels = kernels
        self._partitions = partitions
        self.clear()

    def clear(self) -> None:
        """Forget everything: what was folded is no longer what the journal holds."""
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
                # No partition knows the order of decisions in another: each has its share.
                learn_after=0 if after is None else -(-after // partitions),
                tuning=tuning,
            )
            for partition, adapter in self.adapters.items()
        }
        self.learner.outstanding = self._outstanding
        self.positions = [0] * partitions
        self.chains = [Chain(tuning.link) for _ in range(partitions)]
        self.version = 0
        self.mode = "learn"
        self.actions = {}
        self.frozen = self.chosen = None
        self._early: dict[str, Noticed] = {}
        self._was_bulk = True  # at the start all is new
        # What the last snapshot of each partition holds: see PartitionSaving.before.
        self._saved: list[dict[str, bytes]] = [{} for _ in range(partitions)]
        self._saved_version = 0

    @property
    def folded(self) -> Sequence[int]:
        """The partitions that are folded here: all of them."""
        return range(self._partitions)

    def _outstanding(self) -> list[Outstanding]:
        """All pending decisions, by partition."""
        found = []
        for partition, ledger in self.ledgers.items():
            adapter = self.adapters[partition]
            numbers = adapter.with_rows(ledger.awaited())
            rows, weights = adapter.pending_rows(numbers)
            found.append((ledger.began_all(numbers), rows, weights))
        return found

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
        """Know what was undone, and begin behind what was trimmed; in a new fold only.

        Raises:
            InvalidInput: the fold is to end before that.
            JournalMismatch: what was trimmed had been learned with other settings.
        """
        self._read_undoing(journal)
        self._restore([self._base_of(journal, one) for one in self.folded])
        self.begun = True

    def _read_undoing(self, journal: UniqueLog) -> None:
        for partition in self.folded:
            records = journal.undone(partition)
            if self.until is not None:  # what was erased since is gone from every past
                records = [
                    record
                    for record in records
                    if record.recorded <= self.until or isinstance(record.event, Erased)
                ]
            self.ledgers[partition].undone = Undone.of(records)

    def read(
        self,
        journal: Journal,
        partition: int,
        limit: int,
        *,
        columns: bool = False,
        end: int | None = None,
    ) -> Page:
        """Return the next records of a partition, if the fold stands on what the journal holds.

        The last record that was folded is read again and compared: a journal can lose its tail (a
        failover, a restored backup) and grow beyond it again.

        Args:
            journal: that is folded.
            partition: of it.
            limit: how many records, at most.
            columns: whether to return their columns; the journal can.
            end: no record behind this position is returned; None: no limit.

        Raises:
            HistoryChanged: that record is gone, or another one.
        """
        last = self.chains[partition].last
        again = last is not None
        after = self.positions[partition] if last is None else last.position - 1
        page: Page
        if columns:
            assert isinstance(journal, ColumnLog)
            page = journal.read_columns(partition, after, limit + again)
        else:
            page = journal.read(partition, after, limit + again)
        if last is not None:
            if not len(page) or not _same(_stub(page, partition), last):
                raise HistoryChanged(partition, last.position)
            page = page[1:]
        if self.until is not None:
            stamps = page.recorded if isinstance(page, ColumnPage) else [r.recorded for r in page]
            page = page[: int(np.searchsorted(stamps, self.until, side="right"))]
        if end is not None:
            where = page.positions if isinstance(page, ColumnPage) else [r.position for r in page]
            page = page[: int(np.searchsorted(where, end, side="right"))]
        return page

    # --- folding ----------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The current model. If the learner defers, it is as of the last export."""
        return self.learner.model

    def take(self, record: Record) -> str:
        """Fold one record; returns what it meant.

        Raises:
            HistoryUndone: it undoes what was folded; begin anew with :meth:`begin`.
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
        """Whether so many records are sooner folded in bulk, though it ends with a fit of all.

        Behind a full page there are more.
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
        """Fold all that is new in every partition; returns how many records that were.

        Args:
            journal: that is folded.
            to: the last position to fold, for each partition; None: all.
            take: called for each record instead of :meth:`take`.
            progress: called with the number of records of each page.
        """
        new, size = 0, self.tuning.page
        # Columns are for many records, as there were last time; a few are sooner read as records.
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
                        stack.enter_context(self.learner.bulk())  # one fit at the end for all
                        kernels = kernels or (kernels_for(self, journal) if take is None else None)
                    self.take_all(partition, page, kernels if is_bulk else None, take)
                    progress(len(page))
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
        """Read the next records of a partition, and fold them; returns them.

        Args:
            journal: that is folded.
            partition: of it.
            limit: how many records, at most.
            kernels: to fold columns with, in bulk; None: record by record.
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
        """Fold records of one partition; ``kernels`` and ``take`` are those of :meth:`follow`."""
        if isinstance(page, ColumnPage) and kernels is not None:
            self.take_columns(partition, page, kernels)
            return
        take = take or self.take
        for n in range(len(page)):
            take(page.record(n, partition) if isinstance(page, ColumnPage) else page[n])

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
                        self._switch(record)
        finally:  # of a record that cannot be folded nothing was taken, and all before it was
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
        """Return the model with which a frozen bandit decides from now on."""
        self.learner.refresh()
        return self.export_model(at)

    def export_model(self, at: int) -> PublishedModel:
        """Apply the steps that are outstanding, and return a copy of the model for deciders.

        A fit that is due is not made here.

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
        """Return what a remembered decision has come to."""
        return self.ledgers[partition_of(key_of(id), self._partitions)].entry(id)

    def decided_at(self, id: str) -> int | None:
        """Return when a remembered decision was made, by the clock of whoever made it."""
        ledger = self.ledgers[partition_of(key_of(id), self._partitions)]
        return ledger.decided_at(id)

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
            for status, count in dict(ledger.counters).items():  # others count meanwhile
                if count:
                    total[status] = total.get(status, 0) + count
        return dict(sorted(total.items()))

    @property
    def noticed(self) -> dict[str, Noticed]:
        """The issues among the events of the journal."""
        ledgers = self.ledgers.values()
        return total_of(
            *[of_counters(ledger.counters, ledger.latest) for ledger in ledgers], self._early
        )

    def count_early(self) -> None:
        """Count the rewards that are dated before their decision; this reads all decisions."""
        self._early = total_of(*[{"early": ledger.early()} for ledger in self.ledgers.values()])

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

    # --- snapshots -----------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Of all that a snapshot depends on; one of another fold or format is of no use."""
        policy = self.learner.policy
        what: tuple[object, ...] = (
            VERSION,
            self.rewards,
            self.retention,
            policy.family,
            "" if policy.features else policy.shape,  # which then follows from the features
        )
        if policy.learns_after is not None:  # what is held back until then is in the snapshot too
            what += (policy.learns_after,)
        # All rows are kept then, with their times; as those of conversions always are.
        if policy.half_life is not None and not isinstance(self.rewards, ConversionsOnly):
            what += ("auto" if policy.half_life == "auto" else "half-life",)
        settings = blake2b(repr(what).encode(), digest_size=16).hexdigest()
        return settings + name_of(policy.features).hex()

    def snapshot_fingerprint(self, partition: int) -> str:
        """Return that of a snapshot of one partition.

        It begins with :attr:`fingerprint`, and ends with what is undone: a snapshot from before
        something was undone is of no use.
        """
        undone = self.ledgers[partition].undone
        return self.fingerprint + ("" if undone is None else undone.digest)

    def save(self, journal: Journal) -> None:
        """Store a snapshot of every partition; what is stored as it is now is not written again.

        Args:
            journal: to keep it.

        Raises:
            HistoryChanged: what was folded is no longer what the journal holds.
        """
        saving = self.begin_save(journal)
        try:
            saving.write(journal)
        except SnapshotConflict:  # another process saved since: what it left is not ours
            self.end_save(saving)
            saving = self.begin_save(journal)
            saving.write(journal)
        finally:
            self.end_save(saving)

    def begin_save(self, journal: Journal) -> Saving:
        """Take the state of now; :meth:`Saving.write` stores it, while this fold goes on.

        Args:
            journal: that was folded.

        Raises:
            HistoryChanged: what was folded is no longer what the journal holds.
        """
        for partition in self.folded:
            self.read(journal, partition, 0)
        self._saved_version = self.version
        return Saving([self._begin_save(partition) for partition in self.folded])

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
        """A saving has ended, one way or the other; no other was begun since."""
        for part in saving.parts:
            table = self.adapters[part.partition].table
            table.copies = None
            if part.sums is None:  # it was not written
                self._saved_version = 0
            if saving.conflicts:  # then nothing is known of what is stored
                self._saved[part.partition] = {}
            elif part.sums is not None:
                self._saved[part.partition] = part.sums
            else:
                table.changed |= part.copies.blocks

    def save_pays(self) -> bool:
        """Whether a snapshot would write little, or not much more than the events since the last.

        So the bytes written for an event are bounded, wherever rewards change older lines; and a
        journal that is idle is not written to.
        """
        if self.version == self._saved_version:
            return False
        row = 4 * self.policy.row_width
        lines = sum(len(self._changed_blocks(one)) for one in self.folded) << BLOCK
        size = lines * (LINE + row) + sum(one.subjects_size for one in self.ledgers.values())
        return size <= LITTLE or size <= PAYS * (self.version - self._saved_version) * (EVENT + row)

    def _changed_blocks(self, partition: int) -> set[int]:
        """The blocks of lines that the last snapshot does not hold as they are now."""
        table, saved = self.adapters[partition].table, self._saved[partition]
        return {
            block
            for block in table.blocks()
            if block in table.changed or block_names(block)[0] not in saved
        }

    def base(self, partition: int) -> Snapshot:
        """Return all that a partition has come to: what stands for its records once they are gone.

        What is undone later cannot be in it: so it is of use whatever that is.
        """
        pieces, adapter = self._pieces(partition), self.adapters[partition]
        for block, lines in adapter.table.blocks().items():
            pieces |= adapter.copy(lines).pieces(block)
        return Snapshot(partition, self.positions[partition], self.fingerprint, pieces)

    def _pieces(self, partition: int) -> dict[str, bytes]:
        """All but those of blocks of lines."""
        pieces = pack_head(self.ledgers[partition]) | self.adapters[partition].pack()
        pieces[PIECE] = self.chains[partition].pack()
        if partition == 0:  # where the events are that change the mode and actions
            pieces[_MODE] = self.mode.encode()
            pieces[_ACTIONS] = msgspec.msgpack.encode([*self.actions.values()])
            if self.frozen is not None:
                pieces[_FROZEN] = self.frozen.write()
            if self.chosen is not None:
                pieces[_CHOSEN] = self.chosen.write()
        return pieces

    def load(self, journal: Journal) -> list[HistoryChanged]:
        """Start from the snapshots of a journal, where it has some of use; in a new fold only.

        Returns:
            For each snapshot that was made of other records than the journal now has, where it
            ends. Those partitions are read from their beginning; whoever has learned from the
            records that are gone should be told.
        """
        self._read_undoing(journal)
        found: list[_Stored | None] = []
        changed: list[HistoryChanged] = []
        for partition in self.folded:
            stored = None
            try:
                stored = self._snapshot_of(journal, partition)
            except HistoryChanged as error:
                changed.append(error)
            found.append(stored or self._base_of(journal, partition))
        self._restore(found)
        self.begun = True
        return changed

    def _snapshot_of(self, journal: Journal, partition: int) -> _Stored | None:
        """A snapshot with the chain up to it; None if there is none of use.

        Raises:
            HistoryChanged: there is one, of other records than the journal now has.
        """
        snapshot, link = journal.load(partition), self.tuning.link
        if snapshot is None or snapshot.fingerprint != self.snapshot_fingerprint(partition):
            return None
        position = snapshot.position
        if position <= journal.start(partition).position:  # of one who was far behind
            return None
        chain = Chain.resume(snapshot.pieces[PIECE], journal, partition, position, link)
        if chain is None:
            raise HistoryChanged(partition, position)
        self._saved[partition] = kept_at_load(snapshot.pieces)
        return snapshot, chain

    def _base_of(self, journal: Journal, partition: int) -> _Stored | None:
        """What the records that were trimmed came to; None if none were."""
        start = journal.start(partition)
        if start == EMPTY:
            return None
        if self.until is not None and self.until < start.stamp:
            message = (
                f"the records of partition {partition} up to {as_datetime(start.stamp)} were "
                "trimmed: nothing before that can be seen any more"
            )
            raise InvalidInput(message, self.until)
        base = journal.base(partition)
        assert base is not None
        # What was stored without a half-life says when decisions were made, too.
        if base.fingerprint != self.fingerprint and base.fingerprint[:32] == self.fingerprint[:32]:
            message = (
                f"the records of partition {partition} up to {as_datetime(start.stamp)} were "
                "trimmed, with their contexts: what they came to cannot be encoded with other "
                "features. Open the bandit with the features it had then, or start a new journal"
            )
            raise JournalMismatch(message)
        if base.fingerprint != self.fingerprint:
            message = (
                f"the records of partition {partition} up to {as_datetime(start.stamp)} were "
                "trimmed, and what they came to was learned with another window, default, "
                "retention, reduction or family, or with a half-life where there is none now, or "
                "the other way round: open the bandit with those"
            )
            raise JournalMismatch(message)
        return base, chain_behind(base, self.tuning.link)

    def _restore(self, found: Sequence[_Stored | None]) -> None:
        stored = [one for one in found if one is not None]
        if stored:  # else nothing is to be fitted
            with self.learner.bulk():
                for snapshot, chain in stored:
                    self._unpack(snapshot, chain)

    def _unpack(self, snapshot: Snapshot, chain: Chain) -> None:
        partition = snapshot.partition
        ledger, adapter = self.ledgers[partition], self.adapters[partition]
        try:
            unpack(ledger, snapshot.pieces)
            adapter.unpack(snapshot.pieces)
        except (KeyError, ValueError) as error:
            message = "a snapshot with the right checksum could not be read"
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
        self.chains[partition] = chain
        self.version += sum(ledger.counters.values())
        self._saved_version = self.version


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


def _stub(page: Page, partition: int) -> Record:
    return page.stub(0, partition) if isinstance(page, ColumnPage) else page[0]


def _same(one: Record, other: Record) -> bool:
    """Whether two records are one: by their place, stamp and digest."""
    return one is other or (
        one.position == other.position
        and one.recorded == other.recorded
        and one.digest == other.digest
    )
