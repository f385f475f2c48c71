"""The bandits of a store: registered by name, each with what it is, in one cell."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from belated.core.ids import check_id, check_partitions
from belated.exceptions import InvalidInput, JournalError, JournalMismatch
from belated.journals.cells import NO_CELL, NO_VERSIONS, Cell, Cells, cell_name

#: Its version counts the bandits that were ever registered.
_COUNTER = "bandits"
_NOTHING: Mapping[str, bytes] = {}
#: What the name of a bandit begins with while it is imported.
_UNFINISHED = "unfinished import "
#: The cells of the acts of operators, which are imported with their records.
_IMPORTED = ("mode", "action", "actions", "chosen", "configured", "undone")


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bandit, as its store knows it.

    Attributes:
        name: Name of the bandit.
        number: That its records have; no other bandit of the store has it.
        partitions: Number of partitions, fixed.
        secret: Key of the hash by which records are indexed: whoever chooses ids cannot make them
            collide.
        topic: Of Kafka, with the records; None if they are in the store itself.
        identity: What the bandit is; None if none has used the journal yet.
    """

    name: str
    number: int
    partitions: int
    secret: bytes = msgspec.field(default_factory=lambda: secrets.token_bytes(16))
    topic: str | None = None
    identity: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(Registration)


def find_bandit(cells: Cells, bandit: str) -> tuple[int, Registration | None]:
    """Return the version of the cell of a bandit, and what is in it; None if there is none."""
    name = _cell_of(bandit)
    cell = cells.get([name]).get(name)
    return (0, None) if cell is None else (cell.version, _read(cell))


def all_bandits(found: Mapping[str, Cell]) -> list[Registration]:
    """Return all bandits, by name, given the cells that begin with ``bandit/``.

    Those that are being imported, or whose import has failed, are left out.
    """
    bandits = [one for one in map(_read, found.values()) if not one.name.startswith(_UNFINISHED)]
    return sorted(bandits, key=lambda one: one.name)


def open_bandit(
    cells: Cells,
    bandit: str,
    partitions: int | None,
    place: str,
    check: Callable[[int], None] = lambda number: None,
) -> Registration:
    """Return a bandit as it is registered; register it if it is new.

    Args:
        cells: Cells of its store.
        bandit: Name of the bandit.
        partitions: A power of two; None for as many as there are, and 1 for a new one.
        place: Where the store is, for messages.
        check: Checks the number that a new one gets.
    """
    check_id(bandit, "the bandit's name")
    wanted = None if partitions is None else check_partitions(partitions)
    _, found = find_bandit(cells, bandit)
    while found is None:
        count = cells.get([_COUNTER]).get(_COUNTER, NO_CELL).version
        check(count + 1)
        new = Registration(bandit, count + 1, wanted or 1)
        found = register_as(cells, new, {_COUNTER: count}, {_COUNTER: b""})
    check_wanted(bandit, place, wanted, found.partitions)
    return found


def register_as(
    cells: Cells,
    new: Registration,
    expected: Mapping[str, int] = NO_VERSIONS,
    puts: Mapping[str, bytes] = _NOTHING,
) -> Registration | None:
    """Register a bandit, unless it is; returns what is registered, None if another cell differs."""
    name = _cell_of(new.name)
    if cells.transact({**expected, name: 0}, {**puts, name: msgspec.json.encode(new)}).ok:
        return new
    return find_bandit(cells, new.name)[1]


def update(
    cells: Cells, bandit: str, change: Callable[[Registration], Registration]
) -> Registration | None:
    """Change what a bandit is; returns what it then is, None if there is no such bandit."""
    while True:
        version, found = find_bandit(cells, bandit)
        if found is None:
            return None
        new = change(found)
        name = _cell_of(bandit)
        if new == found or cells.transact({name: version}, {name: msgspec.json.encode(new)}).ok:
            return new


@contextmanager
def renaming(cells: Cells, bandit: str, place: str) -> Iterator[str]:
    """Give a name for a journal that has another one once the block has ended.

    Args:
        cells: Cells of the store.
        bandit: Name of the bandit, which must be new.
        place: Where the journal is, for messages.
    """
    check_id(bandit, "the bandit's name")
    if find_bandit(cells, bandit)[1] is not None:
        raise _already_there(bandit, place)
    unfinished = _UNFINISHED + secrets.token_hex(4)
    yield unfinished
    version, made = find_bandit(cells, unfinished)
    assert made is not None
    old, new = _cell_of(unfinished), _cell_of(bandit)
    puts = {new: msgspec.json.encode(msgspec.structs.replace(made, name=bandit))}
    moved = [old]
    for kind in _IMPORTED:
        prefix, target = cell_name(kind, unfinished), cell_name(kind, bandit)
        for name, cell in cells.scan(prefix).items():
            puts[target + name.removeprefix(prefix)] = cell.value
            moved.append(name)
    if not cells.transact({old: version, new: 0}, puts, moved).ok:
        raise _already_there(bandit, place)


def check_wanted(bandit: str, place: str, wanted: int | None, partitions: int) -> None:
    """Refuse another number of partitions than there are."""
    if wanted not in (None, partitions):
        message = (
            f"bandit {bandit!r} in {place} has {partitions} partitions, not {wanted}: open it with "
            f"partitions={partitions} or None; their number is changed only by importing the "
            "records into a new journal"
        )
        raise JournalMismatch(message)


def check_there(cells: Cells, bandit: str, place: str) -> None:
    """Refuse a bandit for which no journal was opened yet."""
    if find_bandit(cells, check_id(bandit, "the bandit's name"))[1] is None:
        raise JournalError(f"there is no bandit {bandit!r} in {place} yet: open its journal first")


def _already_there(bandit: str, place: str) -> InvalidInput:
    message = f"{place} holds a bandit {bandit!r} already: choose another name with `?bandit=`"
    return InvalidInput(message, bandit)


def _cell_of(bandit: str) -> str:
    return cell_name("bandit", bandit)


def _read(cell: Cell) -> Registration:
    return _decoder.decode(cell.value)
