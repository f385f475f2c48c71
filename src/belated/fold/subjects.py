"""Subjects of one partition: their decisions, their rewards, and which reward counts for which.

A reward of a subject is credited to the latest live decision of that subject that was made at or
before the reward, unless the window ended in between. Both times are those of the events, so that
the order in which they arrive does not matter.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from belated.core.events import SubjectReward
from belated.fold.rules import ReportedReward, clamped_time, same_value

#: Rewards of one subject that a ledger remembers; a further one is not accepted.
MAX_REWARDS = 1_000
#: In place of the number of a decision: a reward is credited to none.
UNCREDITED = -1


class Candidate(NamedTuple):
    """A decision that may be credited; in the order of their times, and of their keys."""

    at: int
    high: int
    low: int
    number: int


class Credit(msgspec.Struct, gc=False, array_like=True):
    """A reward of a subject.

    Attributes:
        reward: its part is the id of the event.
        reporter: the name of the key that reported it; empty without one.
        number: the decision that it is credited to.
    """

    reward: ReportedReward
    reporter: str = ""
    number: int = UNCREDITED


class SubjectHistory(msgspec.Struct, gc=False, array_like=True):
    """What is remembered of one subject.

    Attributes:
        decisions: the numbers of its decisions.
        rewards: its rewards, by the ids of their events.
    """

    decisions: list[int] = []
    rewards: dict[str, Credit] = {}


def credited(candidates: Sequence[Candidate], at: int, window: int | None) -> int:
    """Return the number of the decision that a reward counts for.

    Args:
        candidates: the live decisions of its subject, sorted.
        at: when the reward happened, in microseconds since 1970.
        window: how long after a decision a reward may happen; None: for ever.

    >>> decisions = [Candidate(10, 0, 0, 3), Candidate(20, 0, 0, 4)]
    >>> [credited(decisions, at, window=5) for at in (9, 15, 16, 20, 25, 26)]
    [-1, 3, -1, 4, 4, -1]
    """
    place = bisect_right(candidates, at, key=lambda candidate: candidate.at)
    if not place:
        return UNCREDITED
    latest = candidates[place - 1]
    return latest.number if window is None or at - latest.at <= window else UNCREDITED


class SubjectIndex:
    """The decisions and rewards of the subjects of a partition, by the keys of their ids.

    >>> index = SubjectIndex()
    >>> index.add_reward(b"key", SubjectReward("user-17", 5, 1.0, "order-1"), recorded=7)
    'unmatched'
    >>> index.add_reward(b"key", SubjectReward("user-17", 5, 2.0, "order-1"), recorded=8)
    'conflict'
    >>> index.reporters
    Counter({'': 1})
    """

    def __init__(self) -> None:
        self.histories: dict[bytes, SubjectHistory] = {}
        #: The key of the subject of each decision, by its number.
        self.owners: dict[int, bytes] = {}
        #: Uncredited rewards, by their reporters.
        self.reporters: Counter[str] = Counter()
        #: No uncredited reward was recorded earlier.
        self.oldest: float = math.inf

    def restore(self, histories: dict[bytes, SubjectHistory]) -> None:
        """Load what a snapshot holds."""
        self.histories = histories
        for key, history in histories.items():
            self.owners.update(dict.fromkeys(history.decisions, key))
        for credit in self._uncredited():
            self._note_uncredited(credit)

    def add_decision(self, key: bytes, number: int) -> bool:
        """Add a decision of a subject; False if it has a subject already."""
        if number in self.owners:
            return False
        self.owners[number] = key
        self.histories.setdefault(key, SubjectHistory([], {})).decisions.append(number)
        return True

    def add_reward(self, key: bytes, event: SubjectReward, recorded: int) -> str:
        """Add a reward, credited to no decision yet; returns what it is to those known."""
        history = self.histories.setdefault(key, SubjectHistory([], {}))
        known = history.rewards.get(event.event_id)
        if known is not None:
            if same_value(known.reward.value, event.value):
                return "duplicate"
            known.reward.conflict = True
            return "conflict"
        if len(history.rewards) >= MAX_REWARDS:
            return "over_limit"
        at = clamped_time(event.at_us)
        reward = ReportedReward(recorded, at, event.value, event.event_id)
        history.rewards[event.event_id] = credit = Credit(reward, event.reporter)
        self._note_uncredited(credit)
        return "unmatched"

    def assign(self, credit: Credit, number: int) -> int:
        """Credit a reward to another decision; returns by how much fewer are uncredited."""
        change = (credit.number < 0) - (number < 0)
        self.reporters[credit.reporter] -= change
        credit.number = number
        if number < 0:
            self.oldest = min(self.oldest, credit.reward.recorded_us)
        return change

    def forget(self, number: int) -> None:
        """Forget a decision with the rewards that are credited to it."""
        key = self.owners.pop(number, None)
        if key is None:
            return
        history = self.histories[key]
        history.decisions.remove(number)
        for event_id in [id for id, one in history.rewards.items() if one.number == number]:
            del history.rewards[event_id]
        self._drop_empty(key)

    def orphan(self, horizon: int) -> int:
        """Forget uncredited rewards that were recorded before; returns how many."""
        if self.oldest >= horizon:
            return 0
        count = 0
        for key, history in list(self.histories.items()):
            old = [
                event_id
                for event_id, credit in history.rewards.items()
                if credit.number < 0 and credit.reward.recorded_us < horizon
            ]
            for event_id in old:
                self.reporters[history.rewards.pop(event_id).reporter] -= 1
            count += len(old)
            self._drop_empty(key)
        remaining = (credit.reward.recorded_us for credit in self._uncredited())
        self.oldest = min(remaining, default=math.inf)
        return count

    def _uncredited(self) -> Iterator[Credit]:
        for history in self.histories.values():
            for credit in history.rewards.values():
                if credit.number < 0:
                    yield credit

    def _note_uncredited(self, credit: Credit) -> None:
        self.reporters[credit.reporter] += 1
        self.oldest = min(self.oldest, credit.reward.recorded_us)

    def _drop_empty(self, key: bytes) -> None:
        history = self.histories[key]
        if not history.decisions and not history.rewards:
            del self.histories[key]
