"""Events that came before their decision, or whose decision will never come."""

from __future__ import annotations

import math
from collections import OrderedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.events import Activation, Reward, Void
from belated.kernels.memory import zeros
from belated.ledger.entries import Facts, take_mark, take_reward

DecisionEvent = Activation | Reward | Void

#: Ids in one partition whose decision is not known; events of further ones are not kept.
MAX_UNMATCHED_IDS = 100_000
#: Of ``seen``: ten for each id, at least.
PLACES = 1 << 20


class Unmatched(msgspec.Struct, gc=False, array_like=True):
    """What is known of an id without its decision.

    Attributes:
        since: when the first event was recorded.
        facts: what the events come to.
    """

    since: int
    facts: Facts


class UnmatchedEvents:
    """What is known of decisions that have not come, by their keys.

    Args:
        max_ids: ids for which events are kept.

    >>> unmatched = UnmatchedEvents(max_ids=1)
    >>> unmatched.add(b"key", Reward("a1", 5, 1.0), recorded=7)
    'unmatched'
    >>> unmatched.add(b"key", Reward("a1", 5, 1.0), recorded=8)
    'duplicate'
    >>> unmatched.add(b"other", Void("a2", 5), recorded=9)
    'over_limit'
    >>> unmatched.take(b"key").parts[""].value
    1.0
    """

    def __init__(self, max_ids: int = MAX_UNMATCHED_IDS) -> None:
        self.max_ids = max_ids
        #: The oldest first.
        self.ids: OrderedDict[bytes, Unmatched] = OrderedDict()
        #: Not 0 at the last bits of their keys, and of some that are gone; one place without any.
        self.seen: NDArray[np.uint8] = np.zeros(1, dtype=np.uint8)

    def restore(self, ids: dict[bytes, Unmatched]) -> None:
        """Take what a snapshot holds."""
        self.ids = OrderedDict(ids)
        for key in ids:
            self._note(key)

    def _note(self, key: bytes) -> None:
        if len(self.seen) == 1:
            self.seen = zeros((PLACES,), np.uint8)
        self.seen[int.from_bytes(key[-4:]) % PLACES] = 1

    def add(self, key: bytes, event: DecisionEvent, recorded: int) -> str:
        """Keep an event until its decision comes; returns what it is to those already there."""
        one = self.ids.get(key)
        if one is None:
            if len(self.ids) >= self.max_ids:
                return "over_limit"
            one = self.ids[key] = Unmatched(recorded, Facts())
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
        return None if one is None else one.facts

    @property
    def oldest(self) -> float:
        """When the first event came of the id that has waited longest; infinity without any."""
        return next(iter(self.ids.values())).since if self.ids else math.inf

    def orphan(self, horizon: int) -> int:
        """Give up ids of which the first event was recorded before; returns how many events."""
        count = 0
        while self.ids and self.oldest < horizon:
            count += self.ids.popitem(last=False)[1].facts.events
        return count
