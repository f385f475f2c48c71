"""The subjects of a partition, with their decisions and rewards.

A subject reward is credited to the subject's latest live decision that was made at or before the
time of the reward, unless the attribution window ended in between. These times come from the
events, so the order in which events arrive does not matter.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from belated.core.events import SubjectReward
from belated.fold.rules import ReportedReward, clamped_time, same_value

#: Maximum number of rewards per subject that a ledger remembers; further rewards are rejected.
MAX_REWARDS = 1_000
#: Used instead of a decision number if a reward is not credited to any decision.
UNCREDITED = -1


class Credit(msgspec.Struct, gc=False, array_like=True):
    """A subject reward and the decision to which it is credited.

    Attributes:
        reward: the reward, with the event id as its part.
        reporter: the name of the API key that reported the reward; empty without one.
        number: the number of the decision, or ``UNCREDITED``.
    """

    reward: ReportedReward
    reporter: str = ""
    number: int = UNCREDITED


#: Shared by all subjects without rewards, which are the majority; never modified.
_NO_REWARDS: dict[str, Credit] = {}


class SubjectHistory(msgspec.Struct, gc=False, array_like=True):
    """The decisions and rewards of one subject.

    Attributes:
        key: the key of the subject's id.
        decisions: the numbers of the subject's decisions, in the order in which they were made.
        rewards: the subject's rewards, by event id.
    """

    key: bytes
    decisions: list[int]
    rewards: dict[str, Credit]


def credited(
    decisions: Sequence[int],
    at: int,
    window: int | None,
    made: Callable[[int], int],
    is_live: Callable[[int], bool],
) -> int:
    """Return the number of the decision to which a reward is credited, or ``UNCREDITED``.

    Args:
        decisions: the numbers of the subject's decisions, in the order in which they were made.
        at: when the reward happened, in microseconds since 1970.
        window: how long after a decision a reward may happen, in microseconds; None for no limit.
        made: function that returns when a decision was made.
        is_live: function that returns whether a decision took effect and was not voided.

    >>> made = {3: 10, 4: 20}
    >>> times = 9, 15, 16, 20, 25, 26
    >>> [credited([3, 4], at, 5, made.__getitem__, lambda number: True) for at in times]
    [-1, 3, -1, 4, 4, -1]
    """
    count = bisect_right(decisions, at, key=made)
    while count and not is_live(decisions[count - 1]):
        count -= 1
    if not count:
        return UNCREDITED
    latest = decisions[count - 1]
    return latest if window is None or at - made(latest) <= window else UNCREDITED


class SubjectIndex:
    """The decisions and rewards of a partition's subjects, keyed by the key of the subject's id.

    >>> index = SubjectIndex()
    >>> history = index.history(b"key")
    >>> index.meaning(history, reward := SubjectReward("user-17", 5, 1.0, "order-1"))
    'unmatched'
    >>> credit = index.add_reward(history, reward, recorded=7)
    >>> index.meaning(history, SubjectReward("user-17", 5, 2.0, "order-1"))
    'conflict'
    >>> index.reporters
    Counter({'': 1})
    """

    def __init__(self) -> None:
        self.histories: dict[bytes, SubjectHistory] = {}
        #: The subject of each decision, by its number.
        self.owners: dict[int, SubjectHistory] = {}
        #: Number of remembered rewards.
        self.rewards = 0
        #: Number of uncredited rewards, by reporter.
        self.reporters: Counter[str] = Counter()
        #: A lower bound for the times at which uncredited rewards were recorded.
        self.oldest: float = math.inf

    @property
    def size(self) -> int:
        """Approximate size of all subjects in a snapshot, in bytes."""
        return 30 * len(self.histories) + 60 * self.rewards

    def restore(self, histories: Iterable[SubjectHistory]) -> None:
        """Restore the subjects from a snapshot."""
        owners = self.owners
        for history in histories:
            self.histories[history.key] = history
            for number in history.decisions:
                owners[number] = history
            self.rewards += len(history.rewards)
            if not history.rewards:
                history.rewards = _NO_REWARDS
            for event_id, credit in history.rewards.items():
                credit.reward.part = event_id  # share one string, to save memory
        for credit in self._uncredited():
            self._note_uncredited(credit)

    def history(self, key: bytes) -> SubjectHistory:
        """Return the history of a subject; create it if the subject is new."""
        history = self.histories.get(key)
        if history is None:
            history = self.histories[key] = SubjectHistory(key, [], _NO_REWARDS)
        return history

    def begin(self, key: bytes, number: int) -> None:
        """Add a new subject with its first decision."""
        # A list literal has no spare capacity; most subjects have only one decision.
        self.histories[key] = self.owners[number] = SubjectHistory(key, [number], _NO_REWARDS)

    def meaning(self, history: SubjectHistory, event: SubjectReward) -> str:
        """Return the status of a reward, given the known rewards of the subject."""
        credit = history.rewards.get(event.event_id)
        if credit is None:
            return "over_limit" if len(history.rewards) >= MAX_REWARDS else "unmatched"
        return "duplicate" if same_value(credit.reward.value, event.value) else "conflict"

    def add_reward(
        self,
        history: SubjectHistory,
        event: SubjectReward,
        recorded: int,
        number: int = UNCREDITED,
    ) -> Credit:
        """Add a new reward, which may be credited to a decision."""
        at = clamped_time(event.at_us)
        reward = ReportedReward(recorded, at, event.value, event.event_id)
        credit = Credit(reward, event.reporter, number)
        if history.rewards:
            history.rewards[event.event_id] = credit
        else:
            history.rewards = {event.event_id: credit}
        self.rewards += 1
        if number < 0:
            self._note_uncredited(credit)
        return credit

    def assign(self, credit: Credit, number: int) -> int:
        """Credit a reward to another decision; return the decrease in uncredited rewards."""
        change = (credit.number < 0) - (number < 0)
        self.reporters[credit.reporter] -= change
        credit.number = number
        if number < 0:
            self.oldest = min(self.oldest, credit.reward.recorded_us)
        return change

    def credits_of(self, number: int) -> dict[str, ReportedReward]:
        """Return the rewards credited to a decision, by event id."""
        history = self.owners.get(number)
        if history is None or not history.rewards:
            return {}
        return {
            event_id: credit.reward
            for event_id, credit in history.rewards.items()
            if credit.number == number
        }

    def forget(self, number: int) -> None:
        """Forget a decision and the rewards credited to it."""
        credits = self.credits_of(number)
        history = self.owners.pop(number, None)
        if history is None:
            return
        history.decisions.remove(number)
        for event_id in credits:
            self._drop_reward(history, event_id)
        self._drop_empty(history)

    def orphan(self, horizon: int) -> int:
        """Forget uncredited rewards that were recorded before ``horizon``; return how many."""
        if self.oldest >= horizon:
            return 0
        count = 0
        for history in list(self.histories.values()):
            old = [
                event_id
                for event_id, credit in history.rewards.items()
                if credit.number < 0 and credit.reward.recorded_us < horizon
            ]
            for event_id in old:
                self.reporters[self._drop_reward(history, event_id).reporter] -= 1
            count += len(old)
            self._drop_empty(history)
        remaining = (credit.reward.recorded_us for credit in self._uncredited())
        self.oldest = min(remaining, default=math.inf)
        return count

    def _drop_reward(self, history: SubjectHistory, event_id: str) -> Credit:
        credit = history.rewards.pop(event_id)
        self.rewards -= 1
        return credit

    def _uncredited(self) -> Iterator[Credit]:
        for history in self.histories.values():
            for credit in history.rewards.values():
                if credit.number < 0:
                    yield credit

    def _note_uncredited(self, credit: Credit) -> None:
        self.reporters[credit.reporter] += 1
        self.oldest = min(self.oldest, credit.reward.recorded_us)

    def _drop_empty(self, history: SubjectHistory) -> None:
        if not history.decisions and not history.rewards:
            del self.histories[history.key]
