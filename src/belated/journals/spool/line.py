"""The way to a store that the spools of a process share: its thread, and whether it is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from belated.journals.spool.worker import Caller, Worker

#: Seconds until a journal that is away is tried again.
RETRY = 0.25

T = TypeVar("T")


class Member(Protocol):
    """A spool, as the line sees it."""

    @property
    def waits(self) -> bool:
        """Whether events wait in its file."""

    @property
    def stuck(self) -> bool:
        """Whether its journal refuses, though the store is there."""

    def hand_over(self) -> int:
        """Hand over the first page; returns how many events that were."""


class Line:
    """One thread for all spools before one store: if that is away, it is so for all of them.

    Args:
        wait: how many seconds the store has to answer; None to have no thread.
    """

    def __init__(self, wait: float | None) -> None:
        self.wait = wait
        self.away = False
        #: What was last wrong.
        self.error: str | None = None
        self._members: list[Member] = []
        self._next = 0
        self._retry_at = 0.0
        self._hands = Caller() if wait is None else Worker(self._hand_over, self._due)

    def join(self, member: Member) -> None:
        """Hand over what waits in a spool, too."""
        self._members.append(member)

    def part(self, member: Member) -> None:
        """Look after a spool no more."""
        self._members.remove(member)

    def run(self, work: Callable[[], T], seconds: float | None) -> T:
        """Have something done by the thread, and wait.

        Raises:
            TimeoutError: after so many seconds.
        """
        return self._hands.run(work, seconds)

    def leave(self, error: Exception | str) -> None:
        """The store is away from now on."""
        self.error = str(error)
        if not self.away:
            self.away = True
            self._hands.wake()

    def wake(self) -> None:
        """Something waits."""
        self._hands.wake()

    def stop(self, last: Callable[[], None] = lambda: None) -> None:
        """End the thread, once it has done one last thing; but do not wait for ever."""
        self._hands.stop(last, self.wait)

    def _due(self) -> float | None:
        """In how many seconds to try to hand something over."""
        if self.away:
            return RETRY
        if any(one.waits and not one.stuck for one in self._members):
            return 0.0
        return RETRY if any(one.stuck for one in self._members) else None

    def _hand_over(self) -> None:
        """A page of each; while the store is away one of them is enough to see."""
        if self._is_back():
            self._hand_over_each()

    def _is_back(self) -> bool:
        members = list(self._members)
        if self.away and members:
            self._next += 1
            self._try(members[self._next % len(members)])
        return not self.away

    def _hand_over_each(self) -> None:
        late = time.monotonic() >= self._retry_at
        if late:
            self._retry_at = time.monotonic() + RETRY
        for one in list(self._members):
            if (late if one.stuck else one.waits) and not self.away:
                self._try(one)

    def _try(self, member: Member) -> None:
        try:
            member.hand_over()
        except Exception as error:  # the thread must live on, whatever the journal does
            self.leave(error)
