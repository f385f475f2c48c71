"""Events that arrived before their decision, or whose decision will never arrive."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.events import Mark, Reward
from belated.fold.rules import Facts, take_mark, take_reward
from belated.model.kernels.memory import zeros

#: Size of the filter ``seen``.
PLACES = 1 << 20


class Unmatched(msgspec.Struct, gc=False, array_like=True):
    """The events for an id without a decision.

    Attributes:
        since: when the first event was recorded, in microseconds since 1970.
        facts: the facts established by the events.
        reporter: name of the API key that reported the first event; empty without one.
    """

    since: int
    facts: Facts
    reporter: str = ""


class UnmatchedEvents:
    """The events for unknown decisions, by the key of the decision id.

    No event is dropped before the retention ends; the service limits how many events it accepts.

    >>> unmatched = UnmatchedEvents()
    >>> unmatched.add(b"key", Reward("a1", 5, 1.0), recorded=7)
    'unmatched'
    >>> unmatched.add(b"key", Reward("a1", 5, 1.0), recorded=8)
    'duplicate'
    >>> unmatched.take(b"key").parts[""].value
    1.0
    """

    def __init__(self) -> None:
        #: The events for each id, by key, oldest first.
        self.ids: OrderedDict[bytes, Unmatched] = OrderedDict()
        #: Number of ids by reporter.
        self.reporters: Counter[str] = Counter()
        #: A filter for fast checks, indexed by the low bits of a key. An entry is nonzero if such a
        #: key was ever added. The filter has a single entry until the first key is added.
        self.seen: NDArray[np.uint8] = np.zeros(1, dtype=np.uint8)

    def restore(self, ids: dict[bytes, Unmatched]) -> None:
        """Restore the ids from a snapshot."""
        self.ids = OrderedDict(ids)
        self.reporters = Counter(entry.reporter for entry in ids.values())
        for key in ids:
            self._note(key)

    def _note(self, key: bytes) -> None:
        if len(self.seen) == 1:
            self.seen = zeros((PLACES,), np.uint8)
        self.seen[int.from_bytes(key[-4:]) % PLACES] = 1

    def add(self, key: bytes, event: Reward | Mark, recorded: int) -> str:
        """Store an event until its decision arrives; return its status."""
        entry = self.ids.get(key)
        if entry is None:
            reporter = event.reporter if isinstance(event, Reward) else ""
            entry = self.ids[key] = Unmatched(recorded, Facts(), reporter)
            self.reporters[reporter] += 1
            self._note(key)
        facts, before = entry.facts, entry.facts.events
        if isinstance(event, Reward):
            meaning = take_reward(facts, event, recorded)
        else:
            meaning = take_mark(facts, event, recorded)
        return "unmatched" if facts.events > before else meaning

    def take(self, key: bytes) -> Facts | None:
        """Remove and return the facts for a decision that has arrived; None if there are none."""
        entry = self.ids.pop(key, None) if self.ids else None
        if entry is None:
            return None
        self.reporters[entry.reporter] -= 1
        return entry.facts

    @property
    def oldest(self) -> float:
        """When the first event of the oldest id was recorded; infinity if there are no ids."""
        return next(iter(self.ids.values())).since if self.ids else math.inf

    def orphan(self, horizon: int) -> int:
        """Remove ids whose first event was recorded before ``horizon``; return the event count."""
        count = 0
        while self.ids and self.oldest < horizon:
            _, entry = self.ids.popitem(last=False)
            self.reporters[entry.reporter] -= 1
            count += entry.facts.events
        return count
