"""The acts of operators, in cells beside the log: found at once, whatever was dropped.

A decider asks for the mode four times per second, and a fold must know what was undone before it
begins. So the last record of each kind that says what holds from now on, and all records that undo
others, are in cells as well, as they stand in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from belated.core.events import (
    Configured,
    Event,
    ModeChanged,
    Record,
    digest_of,
    encode,
    read_event,
)
from belated.exceptions import CorruptEvent
from belated.journals.arrivals import Subject, check_partition, subject_of
from belated.journals.cells import Cell, Cells, cell_name
from belated.journals.snapshots import CellShelf

#: Of these the last record counts, and of the other all of them.
_LAST: frozenset[Subject] = frozenset({"mode", "configured"})
#: What is in cells.
ACTS: frozenset[Subject | None] = _LAST | {"undone"}


class _Stored(NamedTuple):
    partition: int
    position: int
    recorded: int
    digest: bytes
    event: bytes


_decoder = msgspec.msgpack.Decoder(_Stored)


class CellActs(CellShelf):
    """Finds the acts of operators in the cells of a store; a journal inherits it."""

    #: Acts whose cells are known to be up to date: the name of the cell, and the position.
    _acts_known: set[tuple[str, int]]

    def _open_shelf(self, cells: Cells) -> None:
        super()._open_shelf(cells)
        self._acts_known = set()

    def mode(self) -> ModeChanged | None:
        """Return the last event that changed the mode, None if there is none."""
        return modes(self.cells, [self._bandit]).get(self._bandit)

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
            name = act_cell(self._bandit, act)
            while (name, act.position) not in self._acts_known:
                before = self.cells.get([name]).get(name)
                is_new = before is None or _read(name, before).position < act.position
                version = 0 if before is None else before.version
                if not is_new or self.cells.transact({name: version}, {name: packed(act)}).ok:
                    self._acts_known.add((name, act.position))


def modes(cells: Cells, bandits: Iterable[str]) -> dict[str, ModeChanged]:
    """Return the last event that changed the mode of each bandit, where there is one."""
    names = {cell_name("mode", bandit): bandit for bandit in bandits}
    events = {names[name]: _read(name, cell).event for name, cell in cells.get(names).items()}
    return {bandit: one for bandit, one in events.items() if isinstance(one, ModeChanged)}


def has_acts(events: Iterable[Event]) -> bool:
    """Whether one of these events goes to a cell, too."""
    return any(subject_of(event) in ACTS for event in events)


def act_cell(bandit: str, act: Record) -> str:
    """Return the name of the cell of an act."""
    subject = subject_of(act.event)
    assert subject in ACTS
    if subject in _LAST:
        return cell_name(subject, bandit)
    return cell_name("undone", bandit, act.partition, f"{act.position:020}")


def packed(act: Record) -> bytes:
    """Return what the cell of an act holds."""
    data = encode(act.event)
    stored = _Stored(act.partition, act.position, act.recorded, act.digest, data)
    return msgspec.msgpack.encode(stored)


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
