"""The heads of a journal while it is read, compared with those that somebody kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Self

from belated.events import Record
from belated.exceptions import InvalidInput
from belated.journals.chain import Chain, Head, join_heads


class Expected(NamedTuple):
    """A head that somebody kept: of the whole journal, or of one partition.

    Attributes:
        text: As it was given.
        positions: By partition, where it was taken.
        digest: What it names.
    """

    text: str
    positions: dict[int, int]
    digest: bytes

    @classmethod
    def parse(cls, text: str, partitions: int) -> Self:
        """Return what a text says; that of one partition begins with its number, as in ``3/``.

        Raises:
            InvalidInput: it is no head, or that of another journal.
        """
        number, slash, rest = text.strip().rpartition("/")
        head = Head.parse(rest)
        first = int(number) if number.isdecimal() else 0
        of = f"partition {number}" if slash else f"{len(head.positions)} partitions"
        whole = number.isdecimal() and first < partitions and len(head.positions) == 1
        if not (whole if slash else len(head.positions) == partitions):
            message = f"{text!r} is a head of {of}, and this journal has {partitions} partitions"
            raise InvalidInput(message, text)
        return cls(text, dict(enumerate(head.positions, start=first)), head.digest)


class Heads:
    """Chains all partitions, and finds what is not as expected.

    Args:
        chains: For each partition, of what was trimmed.
        expected: Heads that somebody kept.
    """

    def __init__(self, chains: Sequence[Chain], expected: Sequence[str] = ()) -> None:
        self._chains, partitions = list(chains), len(chains)
        self._starts = [chain.position for chain in chains]
        self._expected = [Expected.parse(text, partitions) for text in expected]
        places = [one.positions for one in self._expected]
        self._stops = [
            sorted({one[p] for one in places if p in one}) for p in range(partitions)
        ]  # fmt: skip
        self._found = {(p, chain.position): chain.head for p, chain in enumerate(self._chains)}

    def add(self, partition: int, page: Sequence[Record]) -> None:
        """Add the next records of a partition."""
        chain = self._chains[partition]
        for stop in self._stops[partition]:
            if chain.position < stop and page and page[-1].position >= stop:
                cut = bisect_right(page, stop, key=attrgetter("position"))
                chain.add(page[:cut])
                page = page[cut:]
                if chain.position == stop:
                    self._found[partition, stop] = chain.head
        chain.add(page)

    @property
    def whole(self) -> str:
        """The head of the journal."""
        return str(Head.of(self._chains))

    @property
    def each(self) -> list[str]:
        """The heads of its partitions."""
        return [f"{number}/{Head.of([chain])}" for number, chain in enumerate(self._chains)]

    def differences(self) -> list[str]:
        """Return what is not as expected."""
        checked = [one for one in self._expected if not self._trimmed(one)]
        return [what for one in checked if (what := self._difference(one))]

    def out_of_sight(self) -> list[str]:
        """Return which heads cannot be checked, for the records they name were trimmed."""
        return [
            f"the head {one.text} is of records that were trimmed since"
            for one in self._expected
            if self._trimmed(one)
        ]

    def _trimmed(self, one: Expected) -> bool:
        return any(position < self._starts[p] for p, position in one.positions.items())

    def _difference(self, one: Expected) -> str:
        for partition, position in one.positions.items():
            end = self._chains[partition].position
            if end < position:
                return (
                    f"partition {partition} ends at position {end:,}, and the head {one.text} was "
                    f"taken at {position:,}: the records beyond {end:,} are lost"
                )
        heads = [self._found.get(place, b"") for place in one.positions.items()]
        if all(heads) and join_heads(heads) == one.digest:
            return ""
        where = [f"partition {p} up to position {n:,}" for p, n in one.positions.items() if n]
        return (
            f"the records are others than those the head {one.text} was taken of ("
            f"{', '.join(where) or 'none'}): some were changed, removed, added or swapped"
        )
