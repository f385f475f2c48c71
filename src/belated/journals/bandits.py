"""The registry of bandits: one cell per bandit, by name."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from belated.core.ids import check_id, check_partitions
from belated.exceptions import InvalidInput, JournalError, JournalMismatch
from belated.journals.cells import NO_CELL, NO_VERSIONS, Cell, Cells, cell_name

#: Cell whose version is the number of bandits ever registered.
_COUNTER = "bandits"
_NOTHING: Mapping[str, bytes] = {}
#: Prefix of the temporary name of a bandit during an import.
_UNFINISHED = "unfinished import "
#: Kinds of cells with operator actions, which are renamed with an imported bandit.
_IMPORTED = ("mode", "action", "actions", "chosen", "configured", "undone")


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """The registry entry of a bandit.

    Attributes:
        name: Name of the bandit.
        number: Number that identifies the bandit's records, unique in the store.
        partitions: Number of partitions, which never changes.
        secret: Key of the hash that indexes records, so that callers cannot choose colliding ids.
        topic: Kafka topic of the records; None if the records are in the store itself.
        identity: Family, width and features of the bandit; None before its first use.
    """

    name: str
    number: int
    partitions: int
    secret: bytes = msgspec.field(default_factory=lambda: secrets.token_bytes(16))
    topic: str | None = None
    identity: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(Registration)


def find_bandit(cells: Cells, bandit: str) -> tuple[int, Registration | None]:
    """Return the version and content of a bandit's cell; 0 and None if it does not exist."""
    name = _cell_of(bandit)
    cell = cells.get([name]).get(name)
    return (0, None) if cell is None else (cell.version, _decoder.decode(cell.value))


def all_bandits(cells: Mapping[str, Cell]) -> list[Registration]:
    """Return all bandits sorted by name, given the cells that begin with ``bandit/``.

    Bandits with an unfinished import are omitted.
    """
    bandits = (_decoder.decode(cell.value) for cell in cells.values())
    finished = [bandit for bandit in bandits if not bandit.name.startswith(_UNFINISHED)]
    return sorted(finished, key=lambda bandit: bandit.name)


def open_bandit(
    cells: Cells,
    bandit: str,
    partitions: int | None,
    place: str,
    check: Callable[[int], None] = lambda number: None,
) -> Registration:
    """Return the registry entry of a bandit; register the bandit if it is new.

    Args:
        cells: Cells of the bandit's store.
        bandit: Name of the bandit.
        partitions: Number of partitions, a power of two. None means the existing number, or 1 for
            a new bandit.
        place: Location of the store, for messages.
        check: Called with the number of a new bandit; raises if the number is too large.
    """
    check_id(bandit, "the bandit's name")
    requested = None if partitions is None else check_partitions(partitions)
    _, registration = find_bandit(cells, bandit)
    while registration is None:
        count = cells.get([_COUNTER]).get(_COUNTER, NO_CELL).version
        check(count + 1)
        new = Registration(bandit, count + 1, requested or 1)
        registration = register(cells, new, {_COUNTER: count}, {_COUNTER: b""})
    check_partition_count(bandit, place, requested, registration.partitions)
    return registration


def register(
    cells: Cells,
    new: Registration,
    expected: Mapping[str, int] = NO_VERSIONS,
    puts: Mapping[str, bytes] = _NOTHING,
) -> Registration | None:
    """Register a bandit unless it exists; return the entry, or None if another cell has changed."""
    name = _cell_of(new.name)
    if cells.transact({**expected, name: 0}, {**puts, name: msgspec.json.encode(new)}).ok:
        return new
    return find_bandit(cells, new.name)[1]


def replace(cells: Cells, version: int, entry: Registration) -> bool:
    """Replace a bandit's entry; return False if the entry has a different version."""
    name = _cell_of(entry.name)
    return cells.transact({name: version}, {name: msgspec.json.encode(entry)}).ok


@contextmanager
def renaming(cells: Cells, bandit: str, place: str) -> Iterator[str]:
    """Yield a temporary name for a journal, and rename the journal when the block ends.

    Args:
        cells: Cells of the store.
        bandit: Final name of the bandit, which must be new.
        place: Location of the journal, for messages.
    """
    check_id(bandit, "the bandit's name")
    if find_bandit(cells, bandit)[1] is not None:
        raise _already_exists(bandit, place)
    unfinished = _UNFINISHED + secrets.token_hex(4)
    yield unfinished
    version, imported = find_bandit(cells, unfinished)
    assert imported is not None
    old, new = _cell_of(unfinished), _cell_of(bandit)
    puts = {new: msgspec.json.encode(msgspec.structs.replace(imported, name=bandit))}
    moved = [old]
    for kind in _IMPORTED:
        prefix, target = cell_name(kind, unfinished), cell_name(kind, bandit)
        for name, cell in cells.scan(prefix).items():
            puts[target + name.removeprefix(prefix)] = cell.value
            moved.append(name)
    if not cells.transact({old: version, new: 0}, puts, moved).ok:
        raise _already_exists(bandit, place)


def check_partition_count(bandit: str, place: str, requested: int | None, partitions: int) -> None:
    """Raise JournalMismatch if the requested number of partitions differs from the existing one."""
    if requested not in (None, partitions):
        message = (
            f"bandit {bandit!r} in {place} has {partitions} partitions, not {requested}: open it "
            f"with partitions={partitions} or None; to change the number, import the records into "
            "a new journal"
        )
        raise JournalMismatch(message)


def check_exists(cells: Cells, bandit: str, place: str) -> None:
    """Raise JournalError if a bandit does not exist."""
    if find_bandit(cells, check_id(bandit, "the bandit's name"))[1] is None:
        message = f"bandit {bandit!r} does not exist in {place}"
        raise JournalError(f"{message}: check the name, or create it by opening its journal")


def _already_exists(bandit: str, place: str) -> InvalidInput:
    message = f"{place} already has a bandit {bandit!r}: choose another name with `?bandit=`"
    return InvalidInput(message, bandit)


def _cell_of(bandit: str) -> str:
    return cell_name("bandit", bandit)
