"""What a fold holds, what it begins with, and what is stored of it.

A snapshot is of one partition, and only a shortcut: the same state comes from reading the journal
from its start, or from the base that stands for records that were trimmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from belated.events import Erased, Record
from belated.exceptions import (
    BelatedError,
    HistoryChanged,
    InvalidInput,
    JournalMismatch,
    SnapshotConflict,
)
from belated.journals import Journal, Snapshot, UniqueLog
from belated.journals.chain import PIECE, Chain, chain_behind
from belated.journals.columns import ColumnLog, ColumnPage
from belated.journals.log import EMPTY
from belated.kernels import Kernels
from belated.kernels.pages import BLOCK
from belated.learner.adapter import block_names
from belated.learner.learner import Learner
from belated.learner.parts import ledger_of, new_adapters, new_learner
from belated.learner.plain import PlainFolder
from belated.learner.saving import PartitionSaving, Saving, kept_at_load
from belated.ledger import State
from belated.ledger.packing import VERSION, pack_head, unpack
from belated.ledger.undone import Undone
from belated.policies import Policy
from belated.published import PublishedModel
from belated.rewards import ConversionsOnly, Rewards
from belated.times import as_datetime
from belated.tuning import USUAL, Tuning

#: Pieces of a snapshot, beside the chain: the mode, and the model it froze.
_MODE, _FROZEN = "mode", "frozen model"
#: Bytes of a line, and about those of an event but for its row.
LINE, EVENT = 88, 100
#: A snapshot pays if it writes at most so many bytes, or so many times those of the new events.
LITTLE, PAYS = 1 << 23, 2
#: A snapshot or a base, and the chain of the records that are in it.
_Stored = tuple[Snapshot, Chain]


class FoldState:
    """The learner, and ledgers by the partitions that are folded; see :class:`Fold`."""

    mode: str
    frozen: PublishedModel | None
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
        partitions: int = 1,
        retention: int | None = None,
        until: int | None = None,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        self.policy = policy
        self.tuning = tuning
        self.rewards = rewards
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
        adapters = new_adapters(self.learner, self.rewards)
        self.adapters = dict(zip(self.folded, adapters, strict=True))
        kind = ledger_of(self.policy, self.rewards)
        self.ledgers = {
            partition: kind(
                self.rewards,
                adapter,
                min_reward=self.min_reward,
                max_reward=self.max_reward,
                retention=self.retention,
                tuning=tuning,
            )
            for partition, adapter in self.adapters.items()
        }
        #: Of each partition; None where no record is plain.
        self.plain = {
            partition: PlainFolder.of(ledger, self.adapters[partition])
            for partition, ledger in self.ledgers.items()
        }
        self.positions = [0] * partitions
        self.chains = [Chain(tuning.link) for _ in range(partitions)]
        self.version = 0
        self.mode = "learn"
        self.frozen = None
        self._was_bulk = True  # at the start all is new
        # What the last snapshot of each partition holds: see PartitionSaving.before.
        self._saved: list[dict[str, bytes]] = [{} for _ in range(partitions)]
        self._saved_version = 0

    @property
    def folded(self) -> Sequence[int]:
        """The partitions that are folded here: all of them."""
        return range(self._partitions)

    def _new_learner(self) -> Learner:
        return new_learner(
            self.policy,
            self.rewards,
            partitions=self._partitions,
            kernels=self._kernels,
            tuning=self.tuning,
        )

    def begin(self, journal: Journal) -> None:
        """Know what was undone, and begin behind what was trimmed; in a new fold only.

        Raises:
            InvalidInput: the fold is to end before that.
            JournalMismatch: what was trimmed had been learned with other settings.
        """
        self._know_undone(journal)
        self._restore([self._base_of(journal, one) for one in self.folded])
        self.begun = True

    def _know_undone(self, journal: UniqueLog) -> None:
        for partition in self.folded:
            records = journal.undone(partition)
            if self.until is not None:  # what was erased since is gone from every past
                records = [
                    record
                    for record in records
                    if record.recorded <= self.until or isinstance(record.event, Erased)
                ]
            self.ledgers[partition].undone = Undone.of(records)

    def read(self, journal: Journal, partition: int, limit: int) -> list[Record]:
        """Return the next records of a partition, if the fold stands on what the journal holds.

        The last record that was folded is read again and compared: a journal can lose its tail (a
        failover, a restored backup) and grow beyond it again.

        Raises:
            HistoryChanged: that record is gone, or another one.
        """
        after, again = self._behind(partition)
        page = journal.read(partition, after, limit + again)
        if again:
            self._check_last(page[0] if page else None, partition)
            del page[0]
        if self.until is not None and page and page[-1].recorded > self.until:
            page = [record for record in page if record.recorded <= self.until]
        return page

    def read_columns(self, journal: ColumnLog, partition: int, limit: int) -> ColumnPage:
        """Return what :meth:`read` returns, as columns."""
        after, again = self._behind(partition)
        page = journal.read_columns(partition, after, limit + again)
        if again:
            self._check_last(page.stub(0, partition) if len(page) else None, partition)
            page = page.part(1, len(page))
        if self.until is not None:
            page = page.part(0, int(np.searchsorted(page.recorded, self.until, side="right")))
        return page

    def _behind(self, partition: int) -> tuple[int, bool]:
        """Where to read on, and whether the last record that was folded is read again."""
        last = self.chains[partition].last
        return (self.positions[partition], False) if last is None else (last.position - 1, True)

    def _check_last(self, found: Record | None, partition: int) -> None:
        last = self.chains[partition].last
        assert last is not None
        if found is None or not _same(found, last):
            raise HistoryChanged(partition, last.position)

    # --- snapshots -----------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Of all that a snapshot depends on; one of another fold or format is of no use."""
        policy = self.learner.policy
        what: tuple[object, ...] = VERSION, self.rewards, self.retention, policy.family, policy.dim
        if policy.learns_after is not None:  # what is held back until then is in the snapshot too
            what += (policy.learns_after, *(["late"] if policy.learns_late else []))
        # All rows are kept then, with their times; as those of conversions always are.
        if policy.half_life is not None and not isinstance(self.rewards, ConversionsOnly):
            what += ("auto" if policy.half_life == "auto" else "half-life",)
        return blake2b(repr(what).encode(), digest_size=16).hexdigest()

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
        row = 4 * self.policy.dim
        lines = sum(len(self._changed_blocks(one)) for one in self.folded) << BLOCK
        size = lines * (LINE + row)
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
        if partition == 0:  # where the events are that change the mode
            pieces[_MODE] = self.mode.encode()
            if self.frozen is not None:
                pieces[_FROZEN] = self.frozen.write()
        return pieces

    def load(self, journal: Journal) -> list[HistoryChanged]:
        """Start from the snapshots of a journal, where it has some of use; in a new fold only.

        Returns:
            For each snapshot that was made of other records than the journal now has, where it
            ends. Those partitions are read from their beginning; whoever has learned from the
            records that are gone should be told.
        """
        self._know_undone(journal)
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
        adapter.add_all_pending(ledger.numbers(State.PENDING))
        if _MODE in snapshot.pieces:
            self.mode = snapshot.pieces[_MODE].decode()
        if _FROZEN in snapshot.pieces:
            self.frozen = PublishedModel.read(snapshot.pieces[_FROZEN])
        self.positions[partition] = snapshot.position
        self.chains[partition] = chain
        self.version += sum(ledger.counters.values())
        self._saved_version = self.version


def _same(one: Record, other: Record) -> bool:
    """Whether two records are one: by their place, stamp and digest."""
    return one is other or (
        one.position == other.position
        and one.recorded == other.recorded
        and one.digest == other.digest
    )
