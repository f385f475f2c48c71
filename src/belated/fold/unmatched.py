"""Events that came before their decision, or whose decision will never come."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.events import Mark, Reward
from belated.fold.rules import Facts, take_mark, take_reward
from belated.model.kernels.memory import zeros

#: Of ``seen``.
PLACES = 1 << 20


class Unmatched(msgspec.Struct, gc=False, array_like=True):
    """What is known of an id without its decision.

    Attributes:
        since: when the first event was recorded.
        facts: what the events come to.
        reporter: name of the key that reported the first event; empty without one.
    """

    since: int
    facts: Facts
    reporter: str = ""


class UnmatchedEvents:
    """What is known of decisions that have not come, by their keys.

    None is ever dropped before the retention: the service bounds what it accepts.

    >>> unmatched = UnmatchedEvents()
    >>> unmatched.add(b"key", Reward("a1", 5, 1.0), recorded=7)
    'unmatched'
    >>> unmatched.add(b"key", Reward("a1", 5, 1.0), recorded=8)
    'duplicate'
    >>> unmatched.take(b"key").parts[""].value
    1.0
    """

    def __init__(self) -> None:
        #: The oldest first.
        self.ids: OrderedDict[bytes, Unmatched] = OrderedDict()
        #: Number of ids by reporter.
        self.reporters: Counter[str] = Counter()
        #: Not 0 at the last bits of their keys, and of some that are gone; one place without any.
        self.seen: NDArray[np.uint8] = np.zeros(1, dtype=np.uint8)

    def restore(self, ids: dict[bytes, Unmatched]) -> None:
        """Take what a snapshot holds."""
        self.ids = OrderedDict(ids)
        self.reporters = Counter(one.reporter for one in ids.values())
        for key in ids:
            self._note(key)

    def _note(self, key: bytes) -> None:
        if len(self.seen) == 1:
            self.seen = zeros((PLACES,), np.uint8)
        self.seen[int.from_bytes(key[-4:]) % PLACES] = 1

    def add(self, key: bytes, event: Reward | Mark, recorded: int) -> str:
        """Keep an event until its decision comes; returns what it is to those already there."""
        one = self.ids.get(key)
        if one is None:
            reporter = event.reporter if isinstance(event, Reward) else ""
            one = self.ids[key] = Unmatched(recorded, Facts(), reporter)
            self.reporters[reporter] += 1
            self._note(key)
        facts, before = one.facts, one.facts.events
        if isinstance(event, Reward):
            meaning = take_reward(facts, event, recorded)
        else:
            meaning = take_mark(facts, event, recorded)
        return "unmatched" if facts.events > before else meaning

    def take(self, key: bytes) -> Facts | None:
        """Hand over what is known of a decision that has come."""
        one = self.ids.pop(key, None) if self.ids else None
        if one is None:
            return None
        self.reporters[one.reporter] -= 1
        return one.facts

    @property
    def oldest(self) -> float:
        """When the first event came of the id that has waited longest; infinity without any."""
        return next(iter(self.ids.values())).since if self.ids else math.inf

    def orphan(self, horizon: int) -> int:
        """Give up ids of which the first event was recorded before; returns how many events."""
        count = 0
        while self.ids and self.oldest < horizon:
            _, one = self.ids.popitem(last=False)
            self.reporters[one.reporter] -= 1
            count += one.facts.events
        return count
