"""Serialize ledgers for snapshots, without pickle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from belated.exceptions import InvalidInput
from belated.fold.ledger import Ledger
from belated.fold.rules import Facts
from belated.fold.subjects import SubjectHistory
from belated.fold.table import EntryTable, packed
from belated.fold.unmatched import Unmatched
from belated.model.kernels.pages import FORGOTTEN

#: Version of the snapshot format. Snapshots of other versions are ignored, and the journal is
#: folded instead.
VERSION = 7


class _Head(msgspec.Struct, array_like=True):
    version: int
    base: int
    watermark: int
    counts: list[int]
    counters: dict[str, int]
    due: int
    dues: list[tuple[int, int]]
    forgotten: int
    stragglers: list[int]
    forgotten_digest: bytes
    facts: dict[int, Facts]
    unmatched: dict[bytes, Unmatched]


_read_head = msgspec.msgpack.Decoder(_Head).decode
_read_subjects = msgspec.msgpack.Decoder(list[SubjectHistory]).decode


def pack(ledger: Ledger) -> dict[str, bytes]:
    """Serialize the complete state of a ledger as named pieces."""
    return pack_head(ledger) | pack_lines(ledger._table)


def pack_head(ledger: Ledger) -> dict[str, bytes]:
    """Serialize the state of a ledger, excluding the rows of its table."""
    head = _Head(
        VERSION,
        ledger._table.base,
        ledger.watermark,
        ledger.counts,
        dict(ledger.counters),
        ledger._first_open,
        ledger._moved_windows,
        ledger._forgotten,
        sorted(ledger._stragglers),
        (ledger._forgotten_digest % (1 << 128)).to_bytes(16),
        ledger._facts,
        dict(ledger._unmatched.ids),
    )
    pieces = {"ledger": msgspec.msgpack.encode(head)}
    if ledger._subjects.histories:
        pieces["subjects"] = msgspec.msgpack.encode([*ledger._subjects.histories.values()])
    return pieces


def pack_lines(table: EntryTable) -> dict[str, bytes]:
    """Serialize the entries of a table, one piece per block."""
    blocks = table.blocks().items()
    return {f"lines {block}": packed(table.cells[lines]) for block, lines in blocks}


def numbered(pieces: Mapping[str, bytes], name: str) -> list[bytes]:
    """Return the pieces named ``name`` followed by a number, ordered by number."""
    words = (key.partition(" ")[::2] for key in pieces)
    numbers = sorted(int(number) for first, number in words if first == name)
    return [pieces[f"{name} {number}"] for number in numbers]


def unpack(ledger: Ledger, pieces: dict[str, bytes]) -> None:
    """Restore the state of a new ledger from pieces."""
    head = _read_head(pieces["ledger"])
    if head.version != VERSION:
        raise InvalidInput(f"a ledger of version {head.version} cannot be read", head.version)
    ledger.watermark = head.watermark
    ledger.counts = head.counts
    ledger.counters = Counter(head.counters)
    ledger._first_open = head.due
    ledger._moved_windows = head.dues
    ledger._forgotten = head.forgotten
    ledger._stragglers = set(head.stragglers)
    ledger._forgotten_digest = int.from_bytes(head.forgotten_digest)
    ledger._facts = head.facts
    ledger._unmatched.restore(head.unmatched)
    ledger._table.restore(numbered(pieces, "lines"), head.base)
    if "subjects" in pieces:
        ledger._subjects.restore(_read_subjects(pieces["subjects"]))
    ledger._index.restore(ledger._table.column("flags") & FORGOTTEN == 0)
