"""Hash chains, which make changes to a journal's history detectable.

The *head* of a partition is a hash of the positions, timestamps and digests of all its records up
to a position. It is computed from the last complete link and the records since then; a *link* is
the head after each 1,024 positions. The chain is computed as records are read; writers store
nothing. A head that was saved elsewhere reveals whether records were changed, removed, reordered or
truncated, even if checksums and digests were recomputed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter
from struct import Struct
from typing import Self

import msgspec
import numpy as np

from belated.core.events import Record
from belated.core.tuning import USUAL
from belated.exceptions import InvalidInput
from belated.journals.log import Log
from belated.journals.pages import ColumnPage
from belated.journals.snapshots import Snapshot

#: Number of positions per link; checking a head reads at most this many records.
LINK = USUAL.link
#: Name of the piece of a snapshot or a base that holds the chain.
PIECE = "chain"

# Size in bytes of a link, and of the digest in a `Head`, whose text should fit on one line.
_SIZE, _HEAD_SIZE = 32, 24
_NOTHING = bytes(_SIZE)
_ENTRY = 8 + _SIZE
_entry = Struct(f"<q{_SIZE}s").pack
_position = attrgetter("position")


class _Ended:
    """The final hash of a link whose records were dropped."""

    __slots__ = ("_head",)

    def __init__(self, head: bytes) -> None:
        self._head = head

    def digest(self) -> bytes:
        """Return the hash."""
        return self._head

    def update(self, data: bytes | memoryview) -> None:
        """Accept only empty data, because no records can be added to the link."""
        assert not data


class Chain:
    """Computes the hash chain of one partition from its records, in order.

    If a journal stores no digests (as in memory), the head is empty.

    Args:
        size: Positions per link.

    Attributes:
        last: The last record added; None before the first.
        position: Position of the last record; 0 before the first.

    >>> from belated.core.events import Void, digest_of, encode
    >>> records = [
    ...     Record(0, n, 7, event, digest_of(encode(event)))
    ...     for n, event in enumerate([Void("a", 5), Void("b", 5)], start=1)
    ... ]
    >>> chain, other = Chain(), Chain()
    >>> chain.add(records)
    >>> other.add(records[:1])
    >>> chain.head == other.head
    False
    >>> other.add(records[1:])
    >>> chain.head == other.head
    True
    """

    __slots__ = ("_end", "_hash", "_link", "_next", "_silent", "_size", "last", "position")
    _link: bytes
    _next: int
    _end: int
    _hash: blake2b | _Ended

    def __init__(self, size: int = LINK) -> None:
        self.last: Record | None = None
        self.position = 0
        self._size = size
        self._silent = False
        self._begin(0, _NOTHING)

    @property
    def head(self) -> bytes:
        """The hash of all records so far; empty if they have no digests."""
        return b"" if self._silent else self._hash.digest()

    def add(self, records: Sequence[Record]) -> None:
        """Add the next records; adding many at once is faster."""
        if not records:
            return
        self.last = last = records[-1]
        self.position = last.position
        if not last.digest:
            self._silent = True
            return
        if last.position - self._next + 1 != len(records):
            self._add_with_gaps(records)
            return
        data = memoryview(b"".join([_entry(record.recorded, record.digest) for record in records]))
        self._add_entries(data)

    def _add_entries(self, data: memoryview) -> None:
        """Add the records up to ``position``, packed as timestamps and digests."""
        while self.position > self._end:
            size = _ENTRY * (self._end + 1 - self._next)
            self._hash.update(data[:size])
            self._begin(self._end // self._size)
            data = data[size:]
        self._hash.update(data)
        self._next = self.position + 1

    def add_columns(self, page: ColumnPage, last: Record) -> None:
        """Add the records of a page; ``last`` is its last record."""
        if not page.digests.shape[1]:
            self.add([last])
            return
        if last.position - self._next + 1 != len(page):
            self.add(page.records(last.partition))
            return
        self.last, self.position = last, last.position
        entries = np.empty((len(page), _ENTRY), dtype=np.uint8)
        entries[:, :8] = page.recorded.astype("<i8").view(np.uint8).reshape(-1, 8)
        entries[:, 8:] = page.digests
        self._add_entries(entries.data.cast("B"))

    def _add_with_gaps(self, records: Sequence[Record]) -> None:
        """Add records; hash the position after each gap, negated to differ from timestamps."""
        for record in records:
            if record.position > self._end:
                self._begin((record.position - 1) // self._size)
            if record.position != self._next:
                self._hash.update(_entry(-record.position, b""))
            self._hash.update(_entry(record.recorded, record.digest))
            self._next = record.position + 1

    def _begin(self, number: int, link: bytes | None = None) -> None:
        """Begin link ``number``; ``link`` is the preceding link, by default the current head."""
        self._link = self._hash.digest() if link is None else link
        self._next, self._end = number * self._size + 1, (number + 1) * self._size
        self._hash = blake2b(number.to_bytes(8) + self._link, digest_size=_SIZE)

    # --- in a snapshot ---------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Return the state that :meth:`resume` needs in addition to the position."""
        return b"" if self._silent else self._link + self.head

    @classmethod
    def resume(
        cls, data: bytes, log: Log, partition: int, position: int, size: int = LINK
    ) -> Self | None:
        """Return the chain at a position, given the result of :meth:`pack` there.

        The records since the last link are read again.

        Returns:
            The chain; None if the log now has different records there, or no records.
        """
        chain = cls(size)
        if not position:
            return chain
        start = position - 1
        if data:
            start -= start % size
            chain._begin(start // size, data[:_SIZE])
        page = log.read(partition, start, position - start)
        chain.add(page[: bisect_right(page, position, key=_position)])
        is_same = chain.position == position and chain.pack() == data
        return chain if is_same else None

    @classmethod
    def behind(cls, data: bytes, position: int, size: int = LINK) -> Self:
        """Return the chain after a complete link whose records were dropped.

        Args:
            data: Result of :meth:`pack` after the last record of the link.
            position: Position of that record.
            size: Number of positions per link.
        """
        chain = cls(size)
        chain.position = position
        chain._silent = not data
        chain._end = -(-position // size) * size
        chain._next = chain._end + 1
        chain._link, chain._hash = data[:_SIZE], _Ended(data[_SIZE:])
        return chain


def chain_behind(base: Snapshot | None, size: int = LINK) -> Chain:
    """Return a partition's chain after its base, or an empty chain if there is no base.

    Args:
        base: Base of the partition, with the chain among its pieces.
        size: Positions per link.
    """
    return Chain(size) if base is None else Chain.behind(base.pieces[PIECE], base.position, size)


def join_heads(heads: Iterable[bytes]) -> bytes:
    """Return the hash of the heads of several partitions, in order."""
    return blake2b(b"".join(heads), digest_size=_HEAD_SIZE).digest()


class Head(msgspec.Struct, frozen=True):
    """The combined head of all partitions of a journal, with their positions.

    Store its text elsewhere. Because the text includes the positions, it can be checked at any
    later time, even after the journal has grown.

    Attributes:
        positions: Position of the last record of each partition.
        digest: Hash of all records up to these positions.

    >>> str(Head.of([Chain()]))[:10]
    '0:1100ba69'
    >>> Head.parse(str(Head.of([Chain()]))) == Head.of([Chain()])
    True
    """

    positions: tuple[int, ...]
    digest: bytes

    @classmethod
    def of(cls, chains: Iterable[Chain]) -> Self:
        """Return the combined head of chains; its digest is empty if any chain has no digest."""
        partitions = list(chains)
        heads = [chain.head for chain in partitions]
        digest = join_heads(heads) if all(heads) else b""
        return cls(tuple(chain.position for chain in partitions), digest)

    def __str__(self) -> str:
        return f"{','.join(map(str, self.positions))}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a head.

        Raises:
            InvalidInput: the text is not a head.
        """
        try:
            positions, digest = text.strip().split(":")
            head = cls(tuple(map(int, positions.split(","))), bytes.fromhex(digest))
            if len(head.digest) != _HEAD_SIZE or min(head.positions) < 0:
                raise ValueError
        except ValueError:
            message = f"{text!r} is not a head: copy the head that `belated journal verify` printed"
            raise InvalidInput(message, text) from None
        return head
