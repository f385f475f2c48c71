"""What is stored beside the log of a bandit, in the cells of its store.

Acts of operators are in cells, too: found at once, whatever was dropped. A decider asks for the
mode, for paused actions and for the chosen model four times per second, and a fold must know what
was undone before it begins. So the last record of each kind that says what holds from now on, the
last one of each action, and all records that undo others, are in cells as they are in the log.
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
from belated.journals.bandits import Registration, update
from belated.journals.cells import NO_CELL, Cell, Cells, cell_name
from belated.journals.coordination import owner_cell
from belated.journals.log import EMPTY, Tail
from belated.journals.snapshots import Pieces, Snapshot, check_base, checksums_of, damage

#: Of these the last record counts.
_LAST: frozenset[Subject] = frozenset({"mode", "chosen", "configured"})
#: What is in cells.
ACTS: frozenset[Subject | None] = _LAST | {"action", "undone"}
#: By bandit, a version, and the last change of each action by its name.
ActionChanges = dict[str, tuple[int, dict[str, ActionChanged]]]
#: By bandit, a version, and the last event that chose a model.
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
    """What a bandit is, the acts of its operators, and its owners, snapshots and bases, in cells.

    A journal inherits it. Several processes may have the same journal open: between two calls
    others may save and acquire.
    """

    cells: Cells
    #: The file or database, for messages.
    _place: str
    _bandit: str
    _partitions: int
    _snapshots: Pieces
    _bases: Pieces
    # By partition, the checksums of the pieces of the snapshot last saved or loaded here.
    _known: dict[int, dict[str, bytes]]
    # What is owned, by process too: what a fork inherits, it does not own.
    _epochs: dict[tuple[int, int], int]
    # Acts whose cells are known to be up to date: the name of the cell, and the position.
    _acts_known: set[tuple[str, int]]

    def _open_shelf(self, cells: Cells) -> None:
        self.cells = cells
        self._snapshots = Pieces(cells, "snapshot", self._bandit)
        self._bases = Pieces(cells, "base", self._bandit)
        self._known, self._epochs, self._acts_known = {}, {}, set()

    def append(self, events: Sequence[Event]) -> list[int]:
        """Append events; see :meth:`Log.append`."""
        raise NotImplementedError

    def _tail_of(self, partition: int) -> Tail:
        """Return the last record of a partition."""
        raise NotImplementedError

    def end(self, partition: int) -> int:
        """Return the position of the last record, 0 if there is none."""
        return self._tail_of(partition).position

    def last_stamp(self, partition: int) -> int:
        """Return the stamp of the last record, 0 if there is none."""
        return self._tail_of(partition).stamp

    def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""
        return self.cells.transact({}, {}).now

    def close(self) -> None:
        """Close the journal; any later call raises :class:`JournalClosed`."""
        self.cells.close()

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet.

        Returns:
            What is stored now: of several processes at once, all get that of the first.
        """
        return self._update_identity(lambda stored: identity if stored is None else stored)

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, in place of what was stored."""
        self._update_identity(lambda stored: identity)

    def _update_identity(
        self, change: Callable[[dict[str, str] | None], dict[str, str]]
    ) -> dict[str, str]:
        def changed(one: Registration) -> Registration:
            return msgspec.structs.replace(one, identity=change(one.identity))

        found = update(self.cells, self._bandit, changed)
        if found is None:
            raise JournalUnavailable(f"{self._place} has lost the bandit {self._bandit!r}")
        return dict(found.identity or {})

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition: from now on the previous owner cannot save.

        For learners that take over from each other: one that is slow, and not dead, must not
        overwrite the state of its successor. An object that has acquired nothing saves as it likes.

        Returns:
            The epoch, which grows each time the partition is acquired.
        """
        check_partition(partition, self._partitions)
        name = owner_cell(self._bandit, partition)
        while True:
            epoch = self.cells.get([name]).get(name, NO_CELL).version
            if self.cells.transact({name: epoch}, {name: b""}).ok:
                self._epochs[os.getpid(), partition] = epoch + 1
                return epoch + 1

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in place of the last one of its partition, in one step.

        One that is behind the stored one is ignored: another process was further.

        Raises:
            OwnerFenced: another has acquired the partition since this object did.
            SnapshotConflict: a piece to be kept is not stored as it was; save them all.
            InvalidInput: its position is beyond the end of the partition.
        """
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        end = self.end(partition)
        if not 0 <= snapshot.position <= end:
            # The fold would pass over the records to come.
            message = (
                f"the snapshot is of position {snapshot.position}, but partition {partition} ends "
                f"at {end}: save only what was read from this journal"
            )
            raise InvalidInput(message, snapshot.position)
        owner, mine = owner_cell(self._bandit, partition), self._epoch(partition)
        expected = {} if mine is None else {owner: mine}
        while True:
            if mine is not None and self.cells.get([owner]).get(owner, NO_CELL).version != mine:
                raise OwnerFenced(partition)
            stored = self._snapshots.stored(partition)
            before = stored.contents
            if before is not None and snapshot.position < before.position:
                break
            # Another process may have saved pieces with the same names and other bytes.
            known = {} if before is None else before.checksums
            changed = [name for name in snapshot.kept if known.get(name) != checksums[name]]
            if changed:
                raise SnapshotConflict(changed)
            if self._snapshots.save(snapshot, checksums, stored, expected, {}):
                break
        # Also where it was ignored: what may be kept next time is compared with what is stored.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot with all its pieces, None if there is none.

        A damaged one is removed, with a :class:`SnapshotWarning`: the fold then starts from the
        beginning.

        Raises:
            HistoryChanged: the partition ends before it, so records are gone; it is removed, too.
        """
        check_partition(partition, self._partitions)
        self._known.pop(partition, None)
        found = self._snapshots.load(partition)
        if found is None:
            return None
        version, contents, snapshot = found
        reason = damage(snapshot, contents)
        if reason is None and snapshot.position <= self.end(partition):
            self._known[partition] = contents.checksums
            return snapshot
        self._snapshots.discard(partition, version)
        if reason is None:  # so the journal has lost records
            raise HistoryChanged(partition, snapshot.position)
        message = (
            f"the snapshot of partition {partition} is damaged and was discarded: {reason}. "
            "Nothing is lost: the partition is read from its beginning, which takes longer"
        )
        warnings.warn(message, SnapshotWarning, stacklevel=2)
        return None

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped: its position and stamp, 0 if none was."""
        check_partition(partition, self._partitions)
        name = self._start_cell(partition)
        cell = self.cells.get([name]).get(name)
        return EMPTY if cell is None else _tail.decode(cell.value)

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to, None if none were.

        Raises:
            CorruptJournal: it is damaged; nothing else has what was in those records.
        """
        check_partition(partition, self._partitions)
        found = self._bases.load(partition)
        if found is None:
            return None
        _, contents, base = found
        reason, end = damage(base, contents), self.end(partition)
        if reason is None and base.position > end:
            reason = f"it is of position {base.position}, and the journal ends at {end}"
        if reason is not None:
            message = f"the base of partition {partition} in {self._place} is damaged: {reason}"
            what_to_do = "The records it was made of were trimmed: restore a backup"
            raise CorruptJournal(f"{message}. {what_to_do}")
        return base

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so: what is up to its position may then be dropped.

        :meth:`Log.drop` then drops the records. If this raises after the record was appended, that
        record says more than was done; nothing depends on it.

        Args:
            base: all its pieces are given; its position is at the end of a link.
            trimmed: the record.
            undone: how many records of the partition undo others, as far as the base knows.

        Raises:
            HistoryUndone: there are more by now; make the base anew.
            InvalidInput: it is behind the base that is stored, or not behind the snapshot's links.
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
            if not appended:  # what is undone from now on stands behind this record
                self.append([trimmed])
                appended = True
                continue
            expected = {self._snapshots.cell(partition): saved_version}
            if self._bases.save(base, checksums, stored, expected, start):
                return

    def _start_cell(self, partition: int) -> str:
        return cell_name("start", self._bandit, partition)

    def _epoch(self, partition: int) -> int | None:
        """Return the epoch in which this process owns a partition; None if it never did."""
        return self._epochs.get((os.getpid(), partition))

    # --- acts of operators ------------------------------------------------------------------------

    def mode(self) -> ModeChanged | None:
        """Return the last event that changed the mode, None if there is none."""
        return modes(self.cells, [self._bandit]).get(self._bandit)

    def actions(self) -> dict[str, ActionChanged]:
        """Return the last change of each action that was paused, resumed or retired."""
        return actions(self.cells, {self._bandit: 0}).get(self._bandit, (0, {}))[1]

    def configured(self) -> Configured | None:
        """Return the last event that says what the bandit is, None if there is none."""
        name = cell_name("configured", self._bandit)
        cell = self.cells.get([name]).get(name)
        event = None if cell is None else _read(name, cell).event
        return event if isinstance(event, Configured) else None

    def undone(self, partition: int) -> list[Record]:
        """Return all records of a partition that undo others, in order."""
        check_partition(partition, self._partitions)
        found = self.cells.scan(cell_name("undone", self._bandit, partition, ""))
        return [_read(name, cell) for name, cell in found.items()]

    def _where(self, partition: int, position: int) -> str:
        return (
            f"the record at partition {partition}, position {position} of bandit "
            f"{self._bandit!r} in {self._place}"
        )

    def _keep_acts(self, records: Iterable[Record]) -> None:
        """Write acts among records to their cells, unless those have them, or later ones."""
        for act in records:
            if subject_of(act.event) not in ACTS:
                continue
            puts = act_cells(self._bandit, act)
            name = next(iter(puts))
            while (name, act.position) not in self._acts_known:
                before = self.cells.get([name]).get(name)
                is_new = before is None or _read(name, before).position < act.position
                version = 0 if before is None else before.version
                if not is_new or self.cells.transact({name: version}, puts).ok:
                    self._acts_known.add((name, act.position))


def modes(cells: Cells, bandits: Iterable[str]) -> dict[str, ModeChanged]:
    """Return the last event that changed the mode of each bandit, where there is one."""
    names = {cell_name("mode", bandit): bandit for bandit in bandits}
    events = {names[name]: _read(name, cell).event for name, cell in cells.get(names).items()}
    return {bandit: one for bandit, one in events.items() if isinstance(one, ModeChanged)}


def actions(cells: Cells, after: Mapping[str, int]) -> ActionChanges:
    """Return the last change of each action, by bandit, if there are any since a version.

    Args:
        cells: of the store.
        after: by bandit, the version of the last answer; 0 for whatever there is.

    Returns:
        By bandit, the version, and the last change by action.
    """
    names = {cell_name("actions", bandit): bandit for bandit in after}
    changed = cells.get(names, {name: after[bandit] for name, bandit in names.items()})
    found: ActionChanges = {}
    for marker, (version, _, _) in changed.items():
        bandit = names[marker]
        acts = cells.scan(cell_name("action", bandit, ""))
        events = [_read(name, cell).event for name, cell in acts.items()]
        changes = {one.action: one for one in events if isinstance(one, ActionChanged)}
        found[bandit] = version, changes
    return found


def chosen_models(cells: Cells, after: Mapping[str, int]) -> ChosenModels:
    """Return the last event that chose a model, by bandit; arguments as of :func:`actions`."""
    names = {cell_name("chosen", bandit): bandit for bandit in after}
    changed = cells.get(names, {name: after[bandit] for name, bandit in names.items()})
    found: ChosenModels = {}
    for name, cell in changed.items():
        event = _read(name, cell).event
        if isinstance(event, ModelChosen):
            found[names[name]] = cell.version, event
    return found


def has_acts(events: Iterable[Event]) -> bool:
    """Whether one of these events goes to a cell, too."""
    return any(subject_of(event) in ACTS for event in events)


def act_cells(bandit: str, act: Record) -> dict[str, bytes]:
    """Return the cells that an act is written to, its own first.

    The version of ``actions`` grows with every change of an action: who polls reads no others.
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
            raise CorruptEvent("its digest is of another event")
        event = read_event(act.event)
        return Record(act.partition, act.position, act.recorded, event, act.digest)
    except (msgspec.DecodeError, UnicodeDecodeError, CorruptEvent) as error:
        message = f"the act of an operator in cell {name!r} was changed after it was written"
        cure = "restore a backup, or delete the cell: it is written again when the log is read"
        raise CorruptEvent(f"{message} ({error}): {cure}") from None
