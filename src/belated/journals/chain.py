"""The chain of a partition: what it has held so far, as one number that cannot be forged.

A *head* names all records up to a position: their positions, stamps and digests. It is the hash of
the last whole link and of the records since; a *link* is the head at the last record of 1,024
positions. Writers store nothing for it: whoever reads records can chain them. So where a head was
written down elsewhere, a record that was changed, removed, swapped or cut off shows, also if
checksums and digests were made anew.
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

#: Positions of a link: a head can be checked by reading no more records than these.
LINK = USUAL.link
#: Under this name a snapshot and a base have it.
PIECE = "chain"

# Bytes of a link, and of a head that people are told: it fits into a line.
_SIZE, _TOLD = 32, 24
_NOTHING = bytes(_SIZE)
_ENTRY = 8 + _SIZE
_entry = Struct(f"<q{_SIZE}s").pack
_position = attrgetter("position")


class _Ended:
    """The hash of a link to which nothing is added any more."""

    __slots__ = ("_head",)

    def __init__(self, head: bytes) -> None:
        self._head = head

    def digest(self) -> bytes:
        """What it came to."""
        return self._head

    def update(self, data: bytes | memoryview) -> None:
        """There is nothing more."""
        assert not data


class Chain:
    """Chains the records of one partition, in order.

    Where a journal stores no digests (that in memory), nothing is chained, and the head is empty.

    Args:
        size: positions of a link.

    Attributes:
        last: The last record that was added; None before the first.
        position: that of the last record, 0 before the first.

    >>> from belated.core.events import Void, digest_of, encode
    >>> records = [
    ...     Record(0, n, 7, event, digest_of(encode(event)))
    ...     for n, event in enumerate([Void("a", 5), Void("b", 5)], start=1)
    ... ]
    >>> one, other = Chain(), Chain()
    >>> one.add(records)
    >>> other.add(records[:1])
    >>> one.head == other.head
    False
    >>> other.add(records[1:])
    >>> one.head == other.head
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
        """What names all records so far; empty if they have no digests."""
        return b"" if self._silent else self._hash.digest()

    def add(self, records: Sequence[Record]) -> None:
        """Add the next records: at best many at once."""
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
        data = memoryview(b"".join([_entry(one.recorded, one.digest) for one in records]))
        self._add_entries(data)

    def _add_entries(self, data: memoryview) -> None:
        """Add records up to the position, each as a stamp and a digest."""
        while self.position > self._end:
            size = _ENTRY * (self._end + 1 - self._next)
            self._hash.update(data[:size])
            self._begin(self._end // self._size)
            data = data[size:]
        self._hash.update(data)
        self._next = self.position + 1

    def add_columns(self, page: ColumnPage, last: Record) -> None:
        """Add the next records, as columns; ``last`` is the last of them."""
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
        """What does not follow directly has its position before it: negative, as no stamp is."""
        for one in records:
            if one.position > self._end:
                self._begin((one.position - 1) // self._size)
            if one.position != self._next:
                self._hash.update(_entry(-one.position, b""))
            self._hash.update(_entry(one.recorded, one.digest))
            self._next = one.position + 1

    def _begin(self, number: int, link: bytes | None = None) -> None:
        """Begin a link; the head so far is the one before it, unless that is given."""
        self._link = self._hash.digest() if link is None else link
        self._next, self._end = number * self._size + 1, (number + 1) * self._size
        self._hash = blake2b(number.to_bytes(8) + self._link, digest_size=_SIZE)

    # --- in a snapshot ---------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Return what :meth:`resume` needs beside the position."""
        return b"" if self._silent else self._link + self.head

    @classmethod
    def resume(
        cls, data: bytes, log: Log, partition: int, position: int, size: int = LINK
    ) -> Self | None:
        """Go on from a position, by what :meth:`pack` gave there.

        The records since the last link are read again.

        Returns:
            The chain; None if the log has other records there, or none.
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
        same = chain.position == position and chain.pack() == data
        return chain if same else None

    @classmethod
    def behind(cls, data: bytes, position: int, size: int = LINK) -> Self:
        """Go on behind a whole link whose records are no longer there.

        Args:
            data: what :meth:`pack` gave at the last of its records.
            position: of that record.
            size: positions of a link.
        """
        chain = cls(size)
        chain.position = position
        chain._silent = not data
        chain._end = -(-position // size) * size
        chain._next = chain._end + 1
        chain._link, chain._hash = data[:_SIZE], _Ended(data[_SIZE:])
        return chain


def chain_behind(base: Snapshot | None, size: int = LINK) -> Chain:
    """Return the chain of a partition behind its base; from the start if there is none.

    Args:
        base: has the chain among its pieces.
        size: positions of a link.
    """
    return Chain(size) if base is None else Chain.behind(base.pieces[PIECE], base.position, size)


def join_heads(heads: Iterable[bytes]) -> bytes:
    """Return what names the heads of several partitions, in their order."""
    return blake2b(b"".join(heads), digest_size=_TOLD).digest()


class Head(msgspec.Struct, frozen=True):
    """The heads of all partitions of a journal as one, and the positions they were taken at.

    As text it can be kept elsewhere. Since it tells its positions, it can be checked at any later
    time, in a journal that has grown since.

    Attributes:
        positions: For each partition, that of the last record.
        digest: Names all records up to there.

    >>> str(Head.of([Chain()]))[:10]
    '0:1100ba69'
    >>> Head.parse(str(Head.of([Chain()]))) == Head.of([Chain()])
    True
    """

    positions: tuple[int, ...]
    digest: bytes

    @classmethod
    def of(cls, chains: Iterable[Chain]) -> Self:
        """Return the head of some chains; its digest is empty if they have none."""
        found = list(chains)
        heads = [chain.head for chain in found]
        digest = join_heads(heads) if all(heads) else b""
        return cls(tuple(chain.position for chain in found), digest)

    def __str__(self) -> str:
        return f"{','.join(map(str, self.positions))}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the head that a text says.

        Raises:
            InvalidInput: it is none.
        """
        try:
            positions, digest = text.strip().split(":")
            head = cls(tuple(map(int, positions.split(","))), bytes.fromhex(digest))
            if len(head.digest) != _TOLD or min(head.positions) < 0:
                raise ValueError
        except ValueError:
            message = f"{text!r} is no head: copy one that `belated journal verify` printed"
            raise InvalidInput(message, text) from None
        return head
