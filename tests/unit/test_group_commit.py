"""What gathers during a commit goes into the next one, and everyone is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from belated.events import Event, Void
from belated.exceptions import CommitTooLarge, JournalClosed, JournalUnavailable
from belated.journals import MemoryJournal
from belated.journals.log import Requests
from belated.service.runtime import ThreadRuntime
from belated.service.serving import group_commit
from belated.service.serving.group_commit import GroupCommit, resolve


class Gated(MemoryJournal):
    """Each append waits until it is let through; it may be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.sizes: list[int] = []
        self.fails = False

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """After the gate."""
        self.gate.acquire()
        if self.fails:
            raise JournalUnavailable("it is away")
        self.sizes.append(len(events))
        return super().append(events, recorded=recorded, requests=requests)


def events(first: int, count: int) -> list[Event]:
    """Some."""
    return [Void(f"v{n}", n) for n in range(first, first + count)]


def appended(
    commits: GroupCommit, some: Sequence[Event], told: list[int]
) -> asyncio.Future[Sequence[int]]:
    """What is awaited until they are durable."""
    found: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
    commits.append(some, told.append, partial(resolve, found))
    return found


def test_what_gathers_goes_together() -> None:
    """One commit for the first, one for all that came meanwhile; positions are each one's own."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(journal, asyncio.get_running_loop(), ThreadRuntime())
        told: list[int] = []
        first = appended(commits, events(0, 1), told)
        await asyncio.sleep(0.05)  # it is in its commit now
        others = [appended(commits, events(1 + 2 * n, 2), told) for n in range(5)]
        journal.gate.release(10)
        assert await first == [1]
        assert await asyncio.gather(*others) == [[2 * n, 2 * n + 1] for n in range(1, 6)]
        assert journal.sizes == [1, 10]
        assert told == [1, 2, 2, 2, 2, 2]
        assert (commits.commits, commits.events) == (2, 11)
        commits.close()

    asyncio.run(story())


def test_a_large_crowd_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit has more than the most, unless one caller alone brings more."""
    monkeypatch.setattr(group_commit, "MAX_COMMIT", 4)

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(journal, asyncio.get_running_loop(), ThreadRuntime())
        told: list[int] = []
        first = appended(commits, events(0, 1), told)
        await asyncio.sleep(0.05)
        others = [appended(commits, events(10 * n, n), told) for n in (3, 2, 2, 9, 1)]
        journal.gate.release(20)
        await asyncio.gather(first, *others)
        assert journal.sizes == [1, 3, 4, 9, 1]
        commits.close()

    asyncio.run(story())


def test_everyone_is_told_of_a_failure_and_it_goes_on() -> None:
    """Nothing hangs, nothing is kept; the next is taken."""

    async def story() -> None:
        journal = Gated()
        journal.gate.release(100)
        commits = GroupCommit(journal, asyncio.get_running_loop(), ThreadRuntime())
        told: list[int] = []
        journal.fails = True
        answers = [appended(commits, events(n, 1), told) for n in range(3)]
        for answer in answers:
            with pytest.raises(JournalUnavailable):
                await answer
        assert not told
        journal.fails = False
        assert await appended(commits, events(7, 1), told) == [1]
        commits.close()

    asyncio.run(story())


def test_a_caller_that_has_gone_spoils_nothing() -> None:
    """Its event is kept: it may have been too late to stop it."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(journal, asyncio.get_running_loop(), ThreadRuntime())
        told: list[int] = []
        gone = appended(commits, events(0, 1), told)
        await asyncio.sleep(0.05)
        stays = appended(commits, events(1, 1), told)
        gone.cancel()
        journal.gate.release(10)
        assert await stays == [2]
        assert journal.end(0) == 2
        assert told == [1, 1]
        commits.close()

    asyncio.run(story())


def test_closing_commits_what_waits() -> None:
    """And takes nothing more."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(journal, asyncio.get_running_loop(), ThreadRuntime())
        told: list[int] = []
        answers = [appended(commits, events(n, 1), told) for n in range(3)]
        journal.gate.release(10)
        await asyncio.to_thread(commits.close)
        assert sorted((await asyncio.gather(*answers)), key=str) == [[1], [2], [3]]
        with pytest.raises(JournalClosed, match="stopping"):
            await appended(commits, events(9, 1), told)

    asyncio.run(story())


class Small(MemoryJournal):
    """Takes few events at a time."""

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """If they fit."""
        if len(events) > 3:
            raise CommitTooLarge(len(events), 3)
        return super().append(events, recorded=recorded, requests=requests)


def test_what_does_not_fit_together_is_committed_apart() -> None:
    """Only a caller whose own events do not fit hears of it."""

    async def play() -> None:
        commits = GroupCommit(Small(), asyncio.get_running_loop(), ThreadRuntime())
        told: list[int] = []
        waiting = [appended(commits, events(10 * n, 2), told) for n in range(5)]
        large = appended(commits, events(100, 4), told)
        positions = [one for waited in waiting for one in await waited]
        assert sorted(positions) == list(range(1, 11))
        with pytest.raises(CommitTooLarge):
            await large
        await asyncio.get_running_loop().run_in_executor(None, commits.close)

    asyncio.run(play())


def test_what_may_wait_goes_together() -> None:
    """All that comes within the time is one commit; at the end nothing waits any longer."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        commits = GroupCommit(MemoryJournal(), loop, ThreadRuntime(), wait=0.3)
        told: list[int] = []
        start = loop.time()
        first = appended(commits, events(0, 1), told)
        await asyncio.sleep(0.05)
        second = appended(commits, events(1, 1), told)
        await asyncio.gather(first, second)
        assert loop.time() - start >= 0.3
        assert (commits.commits, commits.events) == (1, 2)
        last = appended(commits, events(2, 1), told)
        start = loop.time()
        await loop.run_in_executor(None, commits.close)
        await last
        assert loop.time() - start < 0.3

    asyncio.run(play())
