"""What gathers during a commit goes into the next one, and everyone is answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest

from belated.core.events import Event, Void
from belated.exceptions import CommitTooLarge, InvalidInput, JournalClosed, JournalUnavailable
from belated.journals import MemoryJournal
from belated.journals.log import Appended, Requests
from belated.journals.store import Batch
from belated.service.runtime import Step, ThreadRuntime, Worker
from belated.service.serving import group_commit
from belated.service.serving.group_commit import GroupCommit, resolve
from tests.waiting import eventually


class Gated(MemoryJournal):
    """Each append waits until it is let through; it may be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.sizes: list[int] = []
        self.begun = 0
        self.fails = False

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """After the gate."""
        self.begun += 1
        self.gate.acquire()
        if self.fails:
            raise JournalUnavailable("it is away")
        self.sizes.append(len(events))
        return super().append(events, recorded=recorded, requests=requests)


class Together:
    """A log for several journals, which it takes one after the other."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.calls: list[int] = []

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """As a session does; more than one batch is refused where it fails."""
        self.calls.append(len(batches))
        if self.fails and len(batches) > 1:
            raise InvalidInput("one of them is not right")
        return [batch.append() for batch in batches]

    def close(self) -> None:
        """Nothing is held."""


def events(first: int, count: int) -> list[Event]:
    """Some."""
    return [Void(f"v{n}", n) for n in range(first, first + count)]


def appended(
    commits: GroupCommit, journal: MemoryJournal, some: Sequence[Event], told: list[int]
) -> asyncio.Future[Sequence[int]]:
    """What is awaited until they are durable."""
    future: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
    commits.append(journal, some, told.append, partial(resolve, future))
    return future


async def commit_begins(journal: Gated) -> None:
    """Wait until a commit of it has begun."""
    while not journal.begun:
        await asyncio.sleep(0.001)


def test_what_gathers_goes_together() -> None:
    """One commit for the first, one for all that came meanwhile; positions are each one's own."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        first = appended(commits, journal, events(0, 1), counts)
        await commit_begins(journal)
        answers = [appended(commits, journal, events(1 + 2 * n, 2), counts) for n in range(5)]
        journal.gate.release(10)
        assert await first == [1]
        assert await asyncio.gather(*answers) == [[2 * n, 2 * n + 1] for n in range(1, 6)]
        assert journal.sizes == [1, 10]
        assert counts == [1, 2, 2, 2, 2, 2]
        assert (commits.sizes.cumulative[-1], commits.sizes.total) == (2, 11)
        commits.close()

    asyncio.run(story())


def test_whoever_asks_again_at_once_is_in_the_next_commit() -> None:
    """Commits do not alternate between two halves of the callers."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []

        async def ask_twice(first: int) -> None:
            await appended(commits, journal, events(first, 1), counts)
            await appended(commits, journal, events(first + 1, 1), counts)

        early = asyncio.ensure_future(ask_twice(0))
        await commit_begins(journal)
        late = [asyncio.ensure_future(ask_twice(10 * n)) for n in (1, 2)]
        await asyncio.sleep(0)
        journal.gate.release(10)
        await asyncio.gather(early, *late)
        assert journal.sizes == [1, 3, 2]
        commits.close()

    asyncio.run(story())


class Counting(ThreadRuntime):
    """Counts the calls of a worker's step."""

    calls = 0

    def start_worker(self, name: str, step: Step) -> Worker:
        """Start a thread."""

        def counted() -> float | None:
            self.calls += 1
            return step()

        return super().start_worker(name, counted)


def test_the_worker_rests_while_the_only_caller_is_answered() -> None:
    """Each call of it would take Python's lock from the thread that answers."""

    async def story() -> None:
        runtime = Counting()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), runtime)
        while not runtime.calls:
            await asyncio.sleep(0.001)
        for n in range(3):
            await appended(commits, MemoryJournal(), events(n, 1), [])
            await asyncio.sleep(0.01)
        assert runtime.calls == 1 + 3
        commits.close()

    asyncio.run(story())


def test_the_caller_is_answered_before_its_events_are_counted() -> None:
    """Metrics can wait, the caller does not."""

    async def story() -> None:
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        calls: list[str] = []
        commits.append(
            MemoryJournal(),
            events(0, 1),
            lambda count: calls.append(f"{count} counted"),
            lambda positions: calls.append(f"{positions} answered"),
        )
        while len(calls) < 2:
            await asyncio.sleep(0.001)
        assert calls == ["[1] answered", "1 counted"]
        commits.close()

    asyncio.run(story())


def test_a_crowd_that_is_large_enough_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit is under way while those of the one before are answered."""
    monkeypatch.setattr(group_commit, "ENOUGH", 2)

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        starts: list[int] = []

        def answer(found: Sequence[int] | Exception) -> None:
            eventually(lambda: journal.begun == 2)  # while the loop is busy with answers
            starts.append(journal.begun)

        commits.append(journal, events(0, 1), counts.append, answer)
        await commit_begins(journal)
        answers = [appended(commits, journal, events(10 * n, 1), counts) for n in (1, 2)]
        await asyncio.sleep(0)
        journal.gate.release(10)
        await asyncio.gather(*answers)
        assert starts == [2]
        assert journal.sizes == [1, 2]
        commits.close()

    asyncio.run(story())


def test_a_crowd_that_is_large_enough_is_committed_within_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not at its end, when all others have been read too."""
    monkeypatch.setattr(group_commit, "ENOUGH", 3)

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        answers = [appended(commits, journal, events(n, 1), counts) for n in range(3)]
        deadline = time.monotonic() + 10
        while not journal.begun:  # the loop does nothing else meanwhile
            assert time.monotonic() < deadline
            time.sleep(0.001)
        answers += [appended(commits, journal, events(n, 1), counts) for n in range(3, 5)]
        journal.gate.release(10)
        await asyncio.gather(*answers)
        assert journal.sizes == [3, 2]
        commits.close()

    asyncio.run(story())


def test_a_large_crowd_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit has more than the most, unless one caller alone brings more."""
    monkeypatch.setattr(group_commit, "MAX_COMMIT", 4)

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        first = appended(commits, journal, events(0, 1), counts)
        await commit_begins(journal)
        answers = [appended(commits, journal, events(10 * n, n), counts) for n in (3, 2, 2, 9, 1)]
        journal.gate.release(20)
        await asyncio.gather(first, *answers)
        assert journal.sizes == [1, 3, 4, 9, 1]
        commits.close()

    asyncio.run(story())


def test_everyone_is_told_of_a_failure_and_it_goes_on() -> None:
    """Nothing hangs, nothing is kept; the next is taken."""

    async def story() -> None:
        journal = Gated()
        journal.gate.release(100)
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        journal.fails = True
        answers = [appended(commits, journal, events(n, 1), counts) for n in range(3)]
        for answer in answers:
            with pytest.raises(JournalUnavailable):
                await answer
        assert not counts
        journal.fails = False
        assert await appended(commits, journal, events(7, 1), counts) == [1]
        commits.close()

    asyncio.run(story())


def test_a_caller_that_has_gone_spoils_nothing() -> None:
    """Its event is kept: it may have been too late to stop it."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        cancelled = appended(commits, journal, events(0, 1), counts)
        await commit_begins(journal)
        answer = appended(commits, journal, events(1, 1), counts)
        cancelled.cancel()
        journal.gate.release(10)
        assert await answer == [2]
        assert journal.end(0) == 2
        assert counts == [1, 1]
        commits.close()

    asyncio.run(story())


def test_closing_commits_what_waits() -> None:
    """And takes nothing more."""

    async def story() -> None:
        journal = Gated()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        answers = [appended(commits, journal, events(n, 1), counts) for n in range(3)]
        journal.gate.release(10)
        await asyncio.to_thread(commits.close)
        assert sorted((await asyncio.gather(*answers)), key=str) == [[1], [2], [3]]
        with pytest.raises(JournalClosed, match="stopping"):
            await appended(commits, journal, events(9, 1), counts)

    asyncio.run(story())


def test_bandits_share_a_commit_and_each_its_own_answer() -> None:
    """What came for several while one commit was under way is the next; one that fails is alone."""

    async def story() -> None:
        first, second, failing = Gated(), Gated(), Gated()
        for journal in (first, second, failing):
            journal.gate.release(100)
        log = Together(fails=True)
        commits = GroupCommit(log, asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        failing.fails = True
        answers = [
            appended(commits, journal, events(n, n + 1), counts)
            for n, journal in enumerate((first, second, failing, first))
        ]
        assert await answers[0] == [1]
        assert await answers[1] == [1, 2]
        assert await answers[3] == [2, 3, 4, 5]
        with pytest.raises(JournalUnavailable):
            await answers[2]
        assert log.calls[:1] == [3]
        log.fails = False
        retries = [appended(commits, journal, events(9, 1), counts) for journal in (first, second)]
        await asyncio.gather(*retries)
        assert log.calls[-1] == 2
        commits.close()

    asyncio.run(story())


def test_a_callback_that_raises_keeps_no_one_from_being_told() -> None:
    """Those behind it in the commit hear of it all the same; the error is not lost either."""

    async def story() -> None:
        journal, loop = Gated(), asyncio.get_running_loop()
        journal.gate.release(10)
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        commits = GroupCommit(Together(), loop, ThreadRuntime())
        future: asyncio.Future[Sequence[int]] = loop.create_future()

        def broken(_: object) -> None:
            raise ZeroDivisionError

        commits.append(journal, events(0, 1), lambda count: None, broken)
        commits.append(journal, events(1, 1), lambda count: None, partial(resolve, future))
        assert await asyncio.wait_for(future, 5) == [2]
        await asyncio.sleep(0)
        assert [type(error) for error in errors] == [ZeroDivisionError]
        commits.close()

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
        journal = Small()
        commits = GroupCommit(Together(), asyncio.get_running_loop(), ThreadRuntime())
        counts: list[int] = []
        answers = [appended(commits, journal, events(10 * n, 2), counts) for n in range(5)]
        large = appended(commits, journal, events(100, 4), counts)
        positions = [position for answer in answers for position in await answer]
        assert sorted(positions) == list(range(1, 11))
        with pytest.raises(CommitTooLarge):
            await large
        await asyncio.get_running_loop().run_in_executor(None, commits.close)

    asyncio.run(play())


def test_what_may_wait_goes_together() -> None:
    """All that comes within the time is one commit; at the end nothing waits any longer."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        journal = MemoryJournal()
        commits = GroupCommit(Together(), loop, ThreadRuntime(), wait=1.0)
        counts: list[int] = []
        start = loop.time()
        first = appended(commits, journal, events(0, 1), counts)
        await asyncio.sleep(0.05)
        second = appended(commits, journal, events(1, 1), counts)
        await asyncio.gather(first, second)
        assert loop.time() - start >= 1.0
        assert (commits.sizes.cumulative[-1], commits.sizes.total) == (1, 2)
        await loop.run_in_executor(None, commits.close)
        patient = GroupCommit(Together(), loop, ThreadRuntime(), wait=600.0)
        last = appended(patient, journal, events(2, 1), counts)
        await loop.run_in_executor(None, patient.close)
        await asyncio.wait_for(last, 60)

    asyncio.run(play())
