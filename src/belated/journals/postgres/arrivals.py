"""How events go into a database of PostgreSQL: packed, and with what recognises each."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from belated.core.events import Decision, Event, Opaque, Record, Settled, digest_of, encode
from belated.core.ids import erased_key_of, partition_of
from belated.journals.arrivals import check_requests
from belated.journals.bandits import Registration
from belated.journals.log import Requests
from belated.journals.lookups import erased_key_in, index_key
from belated.journals.postgres.arrays import Packed, pack_bytes, pack_integers

#: What the marks of events without an id begin with. No key does: its seventh byte is not 0.
SETTLED, _OTHER = bytes(8), bytes(7) + b"\1"
#: What follows the index key of an id: decisions are found whatever else there is.
DECISION, _OF_DECISION = b"\1", b"\2"


class Arrivals:
    """What goes to the server: every event once, with what tells it from others.

    Attributes:
        values: of the query ``append``, in their order there.
        duplicates: how many were not written, as far as is known: they are there, or stand twice.
    """

    def __init__(
        self,
        bandits: Sequence[Registration],
        partitions: Sequence[int],
        events: Sequence[Event | Opaque],
        stamps: Sequence[int] | None = None,
    ) -> None:
        data = [encode(event) for event in events]
        digests = [digest_of(one) for one in data]
        secrets = [bandit.secret for bandit in bandits]
        marks = [mark_of(*one) for one in zip(events, digests, secrets, strict=True)]
        numbers = [bandit.number for bandit in bandits]
        # For each event given, its place among those that are sent; None where all of them are.
        self._places: list[int] | None = None
        self.duplicates = 0
        if len(set(marks)) < len(marks):
            first: dict[tuple[int, int, bytes], int] = {}
            whose = list(zip(numbers, partitions, marks, strict=True))
            kept = [n for n, one in enumerate(whose) if first.setdefault(one, n) == n]
            order = {n: place for place, n in enumerate(kept)}
            self._places = [order[first[one]] for one in whose]
            self.duplicates = len(whose) - len(kept)
            numbers, partitions = [numbers[n] for n in kept], [partitions[n] for n in kept]
            marks, data = [marks[n] for n in kept], [data[n] for n in kept]
            digests = [digests[n] for n in kept]
            stamps = None if stamps is None else [stamps[n] for n in kept]
        self.values: dict[str, Packed | None] = {
            "bandits": pack_integers(numbers, 4),
            "partitions": pack_integers(partitions, 2),
            "marks": pack_bytes(marks),
            "crcs": pack_integers([zlib.crc32(one) for one in data], 8),
            "digests": pack_bytes(digests),
            "events": pack_bytes(data),
            "stamps": None if stamps is None else pack_integers(stamps, 8),
            "owners": None,
            "homes": None,
            "decided": None,
            "kept": None,
            "requests": None,
            "behind": None,
        }
        self._digests = digests

    def refuse_second(self, ids: Sequence[tuple[Registration, str]]) -> None:
        """Nothing is to be written where one of these ids has a decision.

        Args:
            ids: of each, its bandit and the id.
        """
        keys = [erased_key_of(id) for _, id in ids]
        given = list(zip(keys, (bandit for bandit, _ in ids), strict=True))
        homes = [partition_of(key, bandit.partitions) for key, bandit in given]
        self.values["owners"] = pack_integers([bandit.number for bandit, _ in ids], 4)
        self.values["homes"] = pack_integers(homes, 2)
        decided = [index_key(key, bandit.secret) + DECISION for key, bandit in given]
        self.values["decided"] = pack_bytes(decided)

    def keep(self, events: Sequence[Event | Opaque], requests: Requests | None) -> None:
        """Write what decisions among the events given were chosen from, beside their records."""
        check_requests(events, requests)
        if not requests:
            return
        places = range(len(events)) if self._places is None else self._places
        found: dict[int, bytes] = {}
        for n, request in requests.items():
            found.setdefault(places[n], request)
        self.values["kept"] = pack_integers([place + 1 for place in found], 8)
        self.values["requests"] = pack_bytes(list(found.values()))

    def follow(self, last: Record) -> None:
        """The stamp is to be told if this is the last record of the partition."""
        self.values["behind"] = Packed(last.digest + last.recorded.to_bytes(8, signed=True))

    def records_after(
        self, last: Record, events: Sequence[Event], answer: list[int]
    ) -> list[Record]:
        """The records of the events given, if the answer says that they follow this one."""
        *positions, recorded = answer
        follows = len(positions) == len(self._digests) and positions[0] == last.position + 1
        if not follows or self._places is not None:  # one that stands twice has one record
            return []
        return [
            Record(last.partition, position, recorded, event, digest)
            for position, event, digest in zip(positions, events, self._digests, strict=True)
        ]

    def known(self, answer: list[int]) -> list[bool]:
        """Of each event given, whether it was not written: it was there, or stands here twice."""
        places = self._places or range(len(self._digests))
        seen: set[int] = set()
        found = []
        for place in places:
            found.append(answer[place] < 0 or place in seen)
            seen.add(place)
        return found

    def of_all(self, answer: list[int]) -> list[int]:
        """The position of each event given, from the answer to the events sent."""
        positions = answer[: len(self._digests)]
        if positions and min(positions) < 0:  # of events that were there
            self.duplicates += sum(one < 0 for one in positions)
            positions = [abs(one) for one in positions]
        if self._places is None:
            return positions
        return [positions[place] for place in self._places]


def check_of(partition: int, position: int, recorded: int, data: bytes) -> int:
    """As the function in the database makes it: a changed bit in any of the four shows."""
    return zlib.crc32(data) ^ position ^ recorded ^ partition << 40


def mark_of(event: Event | Opaque, digest: bytes, secret: bytes) -> bytes:
    """What recognises an event that comes again; those of one time lie together (schema.sql)."""
    key = erased_key_in(event)
    if key is not None:
        kind = DECISION if isinstance(event, Decision) else _OF_DECISION
        return index_key(key, secret) + kind + digest[:8]
    return (SETTLED if isinstance(event, Settled) else _OTHER) + digest[:8]


def beyond(mark: bytes) -> bytes:
    """Greater than every mark that begins like this."""
    return mark + b"\xff" * 9
