"""Offers that come at the same time are chosen for together, which is quicker than one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from belated.events import Decision
from belated.service.decider import Asked, Decider, NoChoice
from belated.service.group_commit import GroupCommit


class Gathering:
    """Chooses for all requests of one turn of the event loop, and has the decisions committed.

    Args:
        decider: chooses; used by the event loop alone.
        commits: keeps the decisions.
        loop: of the callers.
    """

    def __init__(
        self, decider: Decider, commits: GroupCommit, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._decider = decider
        self._commits = commits
        self._loop = loop
        self._requests: list[_Request] = []

    def decide(
        self, asked: Sequence[Asked], counted: Callable[[Sequence[Decision]], None]
    ) -> asyncio.Future[list[Decision]]:
        """A decision for each, once all of them are safe.

        Args:
            asked: the offers of one request.
            counted: is told the decisions then.
        """
        request = _Request(asked, self._decider, counted, self._loop.create_future())
        if not self._requests:
            self._loop.call_soon(self._choose)
        self._requests.append(request)
        return request.answer

    def _choose(self) -> None:
        requests, self._requests = self._requests, []
        try:
            made = self._decider.choose_all([asked for one in requests for asked in one.asked])
        except Exception:  # of one of them: each is tried by itself, and told what is wrong
            for request in requests:
                request.choose()
        else:
            start = 0
            for request in requests:
                end = start + len(request.asked)
                request.events = made[start:end]
                start = end
        self._commits.append_all([request for request in requests if request.events])


class _Request:
    """Offers of one request, which are decided all or none."""

    __slots__ = ("_counted", "_decider", "answer", "asked", "events")

    def __init__(
        self,
        asked: Sequence[Asked],
        decider: Decider,
        counted: Callable[[Sequence[Decision]], None],
        answer: asyncio.Future[list[Decision]],
    ) -> None:
        self.asked = asked
        self.answer = answer
        self._counted = counted
        self.events: list[Decision] = []
        self._decider = decider

    def choose(self) -> None:
        try:
            try:
                self.events = self._decider.choose_all(self.asked)
            except NoChoice as why:  # never the caller's fault: it gets a decision all the same
                self.events = self._decider.fall_back(self.asked, why)
        except Exception as error:
            self._refuse(error)

    def kept(self, positions: Sequence[int]) -> None:
        for event, position in zip(self.events, positions, strict=True):
            self._decider.written(event.id, position)
        self._counted(self.events)
        if not self.answer.done():  # the caller may have gone
            self.answer.set_result(self.events)

    def failed(self, error: Exception) -> None:
        for event in self.events:
            self._decider.dropped(event.id)
        self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
