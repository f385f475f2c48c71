"""Events that came before their decision, or whose decision will never come."""

from __future__ import annotations

import math
from collections import deque

from belated.events import Activation, Reward, Void
from belated.ledger.entries import same_value

DecisionEvent = Activation | Reward | Void


class UnmatchedEvents:
    """Events by the key of the decision they wait for.

    >>> unmatched = UnmatchedEvents()
    >>> unmatched.add(b"key", Void("a1", 5), recorded=7)
    True
    >>> unmatched.take(b"key")
    [(7, Void(id='a1', at=5))]
    >>> unmatched.take(b"key")
    []
    """

    def __init__(self) -> None:
        self.events: dict[bytes, list[tuple[int, DecisionEvent]]] = {}
        self._since: deque[tuple[int, bytes]] = deque()

    def add(self, key: bytes, event: DecisionEvent, recorded: int) -> bool:
        """Park an event; False if one that says the same is there already."""
        waiting = self.events.setdefault(key, [])
        for since, other in waiting:
            if _says_the_same(other, event) and since <= recorded and other.at <= event.at:
                return False
        waiting.append((recorded, event))
        self._since.append((recorded, key))
        return True

    def take(self, key: bytes) -> list[tuple[int, DecisionEvent]]:
        """The events of a decision that has come."""
        if not self.events:
            return []
        found = self.events.pop(key, [])
        if found and len(self._since) > 64 + 4 * len(self.events):  # most have been taken
            self.restore(self.events)
        return found

    @property
    def oldest(self) -> float:
        """When the first event came that may still be unmatched; infinity if there is none."""
        return self._since[0][0] if self._since else math.inf

    def orphan(self, horizon: int) -> int:
        """Give up on events recorded before ``horizon``; returns how many."""
        count = 0
        while self._since and self._since[0][0] < horizon:
            since, key = self._since.popleft()
            waiting = self.events.get(key, [])
            left = [one for one in waiting if one[0] != since]
            count += len(waiting) - len(left)
            if left:
                self.events[key] = left
            else:
                self.events.pop(key, None)
        return count

    def restore(self, events: dict[bytes, list[tuple[int, DecisionEvent]]]) -> None:
        """Take these events."""
        self.events = events
        since = sorted((recorded, key) for key, all in events.items() for recorded, _ in all)
        self._since = deque(since)


def _says_the_same(one: DecisionEvent, other: DecisionEvent) -> bool:
    if type(one) is Reward and type(other) is Reward:
        same = one.part == other.part and one.revision == other.revision
        return same and same_value(one.value, other.value)
    return type(one) is type(other)
