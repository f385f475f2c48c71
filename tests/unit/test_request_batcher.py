"""Requests of one turn are decided together, and a crowd in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB
from belated.core.events import Decision
from belated.core.ids import new_id
from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.exceptions import InvalidInput
from belated.journals import MemoryJournal, MemoryStore
from belated.service.runtime import ThreadRuntime
from belated.service.serving import request_batcher
from belated.service.serving.group_commit import Append, GroupCommit, resolve
from belated.service.serving.request_batcher import RequestBatcher, Slots

POLICY = DelayedUCB(2, Bernoulli())
ROWS = np.eye(2, dtype=np.float32).tobytes()


class Counted(GroupCommit):
    """Notes how many appends it is given at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(MemoryStore().session(), loop, ThreadRuntime())
        self.given: list[int] = []

    def append_all(self, appends: Sequence[Append]) -> None:
        """As before."""
        self.given.append(len(appends))
        super().append_all(appends)


def made(commits: GroupCommit, loop: asyncio.AbstractEventLoop) -> RequestBatcher:
    """A batcher over a journal in memory."""
    return RequestBatcher(
        Decider(POLICY, LoadedModel(POLICY), partitions=1, keep_requests=0.0),
        commits,
        MemoryJournal(),
        loop,
        ThreadRuntime(),
        np.random.default_rng(1),
        slots=Slots(new_id),
    )


def asked(batcher: RequestBatcher, rows: bytes = ROWS) -> asyncio.Future[list[Decision]]:
    """What is awaited until the decision is durable."""
    future: asyncio.Future[list[Decision]] = asyncio.get_running_loop().create_future()
    batcher.decide([ParsedRequest(2)], [rows], lambda decisions: None, partial(resolve, future))
    return future


@pytest.fixture(autouse=True)
def three_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd is divided into parts of three."""
    monkeypatch.setattr(request_batcher, "ENOUGH", 3)


def play(story: Callable[[Counted, RequestBatcher], Awaitable[None]]) -> None:
    """Tell it on an event loop of its own."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        commits = Counted(loop)
        await story(commits, made(commits, loop))
        commits.close()

    asyncio.run(whole())


def test_a_crowd_is_chosen_for_in_parts() -> None:
    """The first part is handed over at once, the rest at the end of the turn."""

    async def story(commits: Counted, batcher: RequestBatcher) -> None:
        futures = [asked(batcher) for _ in range(3)]
        assert commits.given == [3]
        futures += [asked(batcher) for _ in range(5)]
        assert commits.given == [3, 3]
        decisions = [decision for (decision,) in await asyncio.gather(*futures)]
        assert len({decision.id for decision in decisions}) == 8
        assert commits.given == [3, 3, 2]
        futures = [asked(batcher) for _ in range(3)]  # and nobody is left for the end of the turn
        await asyncio.gather(*futures)
        assert commits.given == [3, 3, 2, 3]

    play(story)


def test_a_large_batch_is_chosen_for_in_several_turns_all_or_none() -> None:
    """Each turn chooses for three requests; others are decided in between; rows are made late."""

    async def story(commits: Counted, batcher: RequestBatcher) -> None:
        turns: list[int] = []
        loop = asyncio.get_running_loop()

        def batch(rows: Sequence[bytes]) -> asyncio.Future[list[Decision]]:
            future: asyncio.Future[list[Decision]] = loop.create_future()
            uses = [partial(use, data) for data in rows]
            batcher.decide(
                [ParsedRequest(2)] * len(rows),
                uses,
                lambda decisions: None,
                partial(resolve, future),
            )
            return future

        def use(data: bytes) -> bytes:
            turns[-1] += 1
            return data

        def turn() -> None:
            turns.append(0)
            if len(turns) < 20:
                loop.call_soon(turn)

        turn()
        large, small = batch([ROWS] * 10), asked(batcher)
        await asyncio.wait([large, small], return_when=asyncio.FIRST_COMPLETED)
        assert small.done()
        assert len(await large) == 10
        assert sum(turns) == 10
        assert max(turns) == 3

        turns.append(0)
        bad_rows = np.full((2, 2), np.nan, np.float32).tobytes()
        before = batcher.decider.model.pending
        with pytest.raises(InvalidInput):
            await batch([ROWS] * 7 + [bad_rows])
        assert batcher.decider.model.pending == before

    play(story)


def test_one_that_cannot_be_decided_spoils_no_other() -> None:
    """Nor where a part of a crowd is chosen for at once."""

    async def story(commits: Counted, batcher: RequestBatcher) -> None:
        bad_rows = np.full((2, 2), np.nan, np.float32).tobytes()
        futures = [asked(batcher), asked(batcher, bad_rows), asked(batcher), asked(batcher)]
        first, error, *results = await asyncio.gather(*futures, return_exceptions=True)
        assert isinstance(error, InvalidInput)
        assert all(isinstance(result, list) for result in (first, *results))

    play(story)
