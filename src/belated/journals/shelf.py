"""The state of a bandit outside its log, stored in cells.

Operator actions are copied to cells, where they can be found quickly and survive trimming. Deciders
poll the mode, paused actions and the chosen model four times per second, and a fold needs all
erasures before it reads the first record. The cells hold the last mode change, the last chosen
model, the last configuration, the last change of each action, and all records that erase or retract
other records.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from belated.core.events import (
    ActionChanged,
    Configured,
    Event,
    ModeChanged,
    ModelChosen,
    Record,
    Trimmed,
    digest_of,
    encode,
    read_event,
)
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryChanged,
    InvalidInput,
    JournalUnavailable,
    OwnerFenced,
    SnapshotConflict,
    SnapshotWarning,
)
from belated.journals.arrivals import Subject, check_partition, subject_of
from belated.journals.bandits import find_bandit, replace
from belated.journals.cells import NO_CELL, Cell, Cells, cell_name
from belated.journals.coordination import owner_cell
from belated.journals.log import EMPTY, Tail
from belated.journals.snapshots import Pieces, Snapshot, check_base, checksums_of, damage

#: Kinds of operator actions for which only the last action counts.
_LAST: frozenset[Subject] = frozenset({"mode", "chosen", "configured"})
#: Kinds of events that are copied to cells.
ACTS: frozenset[Subject | None] = _LAST | {"action", "undone"}
#: A version and the last change of each action, by bandit.
ActionChanges = dict[str, tuple[int, dict[str, ActionChanged]]]
#: A version and the last event that chose a model, by bandit.
ChosenModels = dict[str, tuple[int, ModelChosen]]


class _Stored(NamedTuple):
    partition: int
    position: int
    recorded: int
    digest: bytes
    event: bytes


_decoder = msgspec.msgpack.Decoder(_Stored)
_tail = msgspec.json.Decoder(Tail)


class CellShelf:
    """Stores a bandit's identity, operator actions, owners, snapshots and bases in cells.

    This is a base class of journals. Several processes may have the same journal open, and save
    snapshots or acquire partitions between two calls.
    """

    cells: Cells
    #: Name of the file or database, for error messages.
    _place: str
    _bandit: str
    _partitions: int
    _snapshots: Pieces
    _bases: Pieces
    # Checksums of the pieces of the snapshot last saved or loaded by this object, by partition.
    _known: dict[int, dict[str, bytes]]
    # Epochs by process and partition, because a forked child does not own its parent's partitions.
    _epochs: dict[tuple[int, int], int]
    # Operator actions known to be in their cells, as pairs of cell name and position.
    _saved_acts: set[tuple[str, int]]

    def _open_shelf(self, cells: Cells) -> None:
        self.cells = cells
        self._snapshots = Pieces(cells, "snapshot", self._bandit)
        self._bases = Pieces(cells, "base", self._bandit)
        self._known, self._epochs, self._saved_acts = {}, {}, set()

    def append(self, events: Sequence[Event]) -> list[int]:
        """Append events; see :meth:`Log.append`."""
        raise NotImplementedError

    def _tail_of(self, partition: int) -> Tail:
        """Return the position and timestamp of the last record of a partition."""
        raise NotImplementedError

    def end(self, partition: int) -> int:
        """Return the position of the last record; 0 if there is none."""
        return self._tail_of(partition).position

    def last_stamp(self, partition: int) -> int:
        """Return the timestamp of the last record; 0 if there is none."""
        return self._tail_of(partition).stamp

    def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""
        return self.cells.transact({}, {}).now

    def close(self) -> None:
        """Close the journal; any later call raises :class:`JournalClosed`."""
        self.cells.close()

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store the identity of the bandit if it has none.

        Returns:
            The stored identity; all concurrent callers get the first one.
        """
        return self._update_identity(lambda stored: identity if stored is None else stored)

    def reidentify(self, identity: dict[str, str]) -> None:
        """Replace the stored identity of the bandit."""
        self._update_identity(lambda stored: identity)

    def _update_identity(
        self, change: Callable[[dict[str, str] | None], dict[str, str]]
    ) -> dict[str, str]:
        while True:
            version, old = find_bandit(self.cells, self._bandit)
            if old is None:
                raise JournalUnavailable(f"{self._place} has lost the bandit {self._bandit!r}")
            identity = change(old.identity)
            new = msgspec.structs.replace(old, identity=identity)
            if new == old or replace(self.cells, version, new):
                return dict(identity)

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition, and fence its previous owner.

        A learner that was replaced because it was slow must not overwrite the state of its
        successor. An object that has not acquired a partition may save without a check.

        Returns:
            The epoch, which increases with each call.
        """
        check_partition(partition, self._partitions)
        name = owner_cell(self._bandit, partition)
        while True:
            epoch = self.cells.get([name]).get(name, NO_CELL).version
            if self.cells.transact({name: epoch}, {name: b""}).ok:
                self._epochs[os.getpid(), partition] = epoch + 1
                return epoch + 1

    def save(self, snapshot: Snapshot) -> None:
        """Replace the snapshot of a partition atomically.

        A snapshot older than the stored one is ignored.

        Raises:
            OwnerFenced: another process has acquired the partition since this object did.
            SnapshotConflict: a kept piece is missing or has changed; save all pieces.
            InvalidInput: the position is after the end of the partition.
        """
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        end = self.end(partition)
        if not 0 <= snapshot.position <= end:
            # If this snapshot were stored, folds would skip the records appended next.
            message = (
                f"the snapshot is at position {snapshot.position}, but partition {partition} ends "
                f"at {end}: save a fold of this journal"
            )
            raise InvalidInput(message, snapshot.position)
        owner = owner_cell(self._bandit, partition)
        epoch = self._epoch(partition)
        expected = {} if epoch is None else {owner: epoch}
        while True:
            if epoch is not None and self.cells.get([owner]).get(owner, NO_CELL).version != epoch:
                raise OwnerFenced(partition)
            stored = self._snapshots.stored(partition)
            before = stored.contents
            if before is not None and snapshot.position < before.position:
                break
            # Another process may have saved different pieces with the same names.
            previous = {} if before is None else before.checksums
            changed = [name for name in snapshot.kept if previous.get(name) != checksums[name]]
            if changed:
                raise SnapshotConflict(changed)
            if self._snapshots.save(snapshot, checksums, stored, expected, {}):
                break
        # Update this even if the snapshot was ignored, because the next snapshot's `kept` is
        # compared with the stored checksums.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot with all its pieces, or None.

        A damaged snapshot is removed with a :class:`SnapshotWarning`; the partition is then folded
        from its beginning.

        Raises:
            HistoryChanged: the partition ends before the snapshot's position, so it has lost
                records; the snapshot is removed.
        """
        check_partition(partition, self._partitions)
        self._known.pop(partition, None)
        stored = self._snapshots.load(partition)
        if stored is None:
            return None
        version, contents, snapshot = stored
        reason = damage(snapshot, contents)
        if reason is None and snapshot.position <= self.end(partition):
            self._known[partition] = contents.checksums
            return snapshot
        self._snapshots.discard(partition, version)
        if reason is None:  # the journal has lost records
            raise HistoryChanged(partition, snapshot.position)
        message = (
            f"the snapshot of partition {partition} is damaged and was discarded: {reason}. "
            "Nothing is lost: the partition is folded from its beginning, which takes longer"
        )
        warnings.warn(message, SnapshotWarning, stacklevel=2)
        return None

    def start(self, partition: int) -> Tail:
        """Return the position and timestamp of the last dropped record, or 0 and 0 if none was."""
        check_partition(partition, self._partitions)
        name = self._start_cell(partition)
        cell = self.cells.get([name]).get(name)
        return EMPTY if cell is None else _tail.decode(cell.value)

    def base(self, partition: int) -> Snapshot | None:
        """Return the state that replaces dropped records, or None if none were dropped.

        Raises:
            CorruptJournal: the base is damaged, and there is no other copy of its records.
        """
        check_partition(partition, self._partitions)
        stored = self._bases.load(partition)
        if stored is None:
            return None
        _, contents, base = stored
        reason, end = damage(base, contents), self.end(partition)
        if reason is None and base.position > end:
            reason = f"it is at position {base.position}, but the journal ends at {end}"
        if reason is not None:
            message = f"the base of partition {partition} in {self._place} is damaged: {reason}"
            raise CorruptJournal(f"{message}. Its records were trimmed: restore a backup")
        return base

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, so that :meth:`Log.drop` may drop the records up to its position.

        If this raises an error after appending ``trimmed``, that event has no effect.

        Args:
            base: The base with all its pieces; its position must be the end of a link.
            trimmed: Event to append.
            undone: Number of erasures and retractions that the base has applied.

        Raises:
            HistoryUndone: there are new erasures or retractions; compute the base again.
            InvalidInput: the base is not after the stored base, or not before the snapshot.
        """
        partition = base.partition
        check_partition(partition, self._partitions)
        checksums, appended = checksums_of(base, {}), False
        start = {
            self._start_cell(partition): msgspec.json.encode((base.position, trimmed.recorded))
        }
        while True:
            stored = self._bases.stored(partition)
            before = stored.contents
            saved_version, saved, _ = self._snapshots.stored(partition)
            check_base(
                base,
                undone,
                before=0 if before is None else before.position,
                saved=None if saved is None else saved.position,
                undone=len(self.undone(partition)),
            )
            if not appended:  # later erasures and retractions follow this record
                self.append([trimmed])
                appended = True
                continue
            expected = {self._snapshots.cell(partition): saved_version}
            if self._bases.save(base, checksums, stored, expected, start):
                return

    def _start_cell(self, partition: int) -> str:
        return cell_name("start", self._bandit, partition)

    def _epoch(self, partition: int) -> int | None:
        """Return the epoch in which this process acquired a partition; None if it never did."""
        return self._epochs.get((os.getpid(), partition))

    # --- operator actions -------------------------------------------------------------------------

    def mode(self) -> ModeChanged | None:
        """Return the last mode change, or None."""
        return modes(self.cells, [self._bandit]).get(self._bandit)

    def actions(self) -> dict[str, ActionChanged]:
        """Return the last change of each changed action, by action."""
        return actions(self.cells, {self._bandit: 0}).get(self._bandit, (0, {}))[1]

    def configured(self) -> Configured | None:
        """Return the last configuration event, or None."""
        name = cell_name("configured", self._bandit)
        cell = self.cells.get([name]).get(name)
        event = None if cell is None else _read(name, cell).event
        return event if isinstance(event, Configured) else None

    def undone(self, partition: int) -> list[Record]:
        """Return all erasures and retractions of a partition, in order."""
        check_partition(partition, self._partitions)
        cells = self.cells.scan(cell_name("undone", self._bandit, partition, ""))
        return [_read(name, cell) for name, cell in cells.items()]

    def _where(self, partition: int, position: int) -> str:
        return (
            f"the record at partition {partition}, position {position} of bandit "
            f"{self._bandit!r} in {self._place}"
        )

    def _keep_acts(self, records: Iterable[Record]) -> None:
        """Copy the operator actions among records to cells, unless cells have later actions."""
        for act in records:
            if subject_of(act.event) not in ACTS:
                continue
            puts = act_cells(self._bandit, act)
            name = next(iter(puts))
            while (name, act.position) not in self._saved_acts:
                stored = self.cells.get([name]).get(name)
                is_new = stored is None or _read(name, stored).position < act.position
                version = 0 if stored is None else stored.version
                if not is_new or self.cells.transact({name: version}, puts).ok:
                    self._saved_acts.add((name, act.position))


def modes(cells: Cells, bandits: Iterable[str]) -> dict[str, ModeChanged]:
    """Return the last mode change of each bandit that has one."""
    names = {cell_name("mode", bandit): bandit for bandit in bandits}
    events = {names[name]: _read(name, cell).event for name, cell in cells.get(names).items()}
    return {bandit: mode for bandit, mode in events.items() if isinstance(mode, ModeChanged)}


def actions(cells: Cells, after: Mapping[str, int]) -> ActionChanges:
    """Return the last change of each action, for bandits with changes since a version.

    Args:
        cells: Cells of the store.
        after: The version last returned for each bandit, or 0.
    """
    names = {cell_name("actions", bandit): bandit for bandit in after}
    changed = cells.get(names, {name: after[bandit] for name, bandit in names.items()})
    result: ActionChanges = {}
    for marker, (version, _, _) in changed.items():
        bandit = names[marker]
        acts = cells.scan(cell_name("action", bandit, ""))
        events = [_read(name, cell).event for name, cell in acts.items()]
        changes = {event.action: event for event in events if isinstance(event, ActionChanged)}
        result[bandit] = version, changes
    return result


def chosen_models(cells: Cells, after: Mapping[str, int]) -> ChosenModels:
    """Return the last event that chose a model, by bandit; see :func:`actions` for arguments."""
    names = {cell_name("chosen", bandit): bandit for bandit in after}
    changed = cells.get(names, {name: after[bandit] for name, bandit in names.items()})
    chosen: ChosenModels = {}
    for name, cell in changed.items():
        event = _read(name, cell).event
        if isinstance(event, ModelChosen):
            chosen[names[name]] = cell.version, event
    return chosen


def has_acts(events: Iterable[Event]) -> bool:
    """Return whether any of these events is an operator action that is copied to a cell."""
    return any(subject_of(event) in ACTS for event in events)


def act_cells(bandit: str, act: Record) -> dict[str, bytes]:
    """Return the cells to write for an operator action, starting with the cell for the action.

    The version of the cell ``actions`` increases with every change of an action, so that pollers
    need to read only this cell.
    """
    subject = subject_of(act.event)
    assert subject in ACTS
    data = encode(act.event)
    stored = _Stored(act.partition, act.position, act.recorded, act.digest, data)
    value = msgspec.msgpack.encode(stored)
    if isinstance(act.event, ActionChanged):
        own = cell_name("action", bandit, digest_of(act.event.action.encode()).hex())
        return {own: value, cell_name("actions", bandit): b""}
    if subject in _LAST:
        return {cell_name(subject, bandit): value}
    return {cell_name("undone", bandit, act.partition, f"{act.position:020}"): value}


def _read(name: str, cell: Cell) -> Record:
    try:
        act = _decoder.decode(cell.value)
        if act.digest and digest_of(act.event) != act.digest:
            raise CorruptEvent("its digest does not match")
        event = read_event(act.event)
        return Record(act.partition, act.position, act.recorded, event, act.digest)
    except (msgspec.DecodeError, UnicodeDecodeError, CorruptEvent) as error:
        message = f"the operator action in cell {name!r} was changed after it was written"
        remedy = "restore a backup, or delete the cell: it is written again when the log is read"
        raise CorruptEvent(f"{message} ({error}): {remedy}") from None
