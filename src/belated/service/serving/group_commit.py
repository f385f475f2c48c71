"""Group commit: events that arrive during a commit are appended together in the next commit."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from belated.core.events import Decision, Event
from belated.exceptions import CommitTooLarge, JournalClosed, JournalUnavailable
from belated.journals import UniqueLog
from belated.journals.arrivals import gather
from belated.journals.log import Appended
from belated.journals.store import Batch, BatchLog
from belated.service.histogram import SECONDS, SIZES, Histogram
from belated.service.runtime import Runtime

T = TypeVar("T")
#: Called with a result or an error. Callbacks are used because a future for each request would cost
#: as much as the rest of the request.
Done = Callable[[T | Exception], None]
#: Maximum number of events per commit. Larger commits would only increase latency.
MAX_COMMIT = 1_000
#: Number of idle event-loop turns after which the next commit stops waiting for more events from
#: callers that have just been answered. A request that is read in one turn is decided and appended
#: in the next.
QUIET_TURNS = 2
#: With this many waiting callers, a commit begins immediately, because waiting for more callers
#: would hardly reduce the cost per caller.
ENOUGH = 64

_NO_REQUESTS: Mapping[int, bytes] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Append:
    """One caller's events to append. The callbacks run on the event loop.

    Attributes:
        journal: Log to append to.
        events: The caller's events.
        counted: Called after `done`, with the number of events.
        done: Called with the positions of the events once they are durable, or with an error.
        stored_requests: Requests to store with decisions, by event index.
        ids: Decision ids that the caller chose. Each id may have only one decision.
    """

    journal: UniqueLog
    events: Sequence[Event]
    counted: Callable[[Any], None]
    done: Done[Any]
    stored_requests: Mapping[int, bytes]
    ids: Collection[str]

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        """Report that the append has succeeded. The arguments are as in :class:`Appended`."""
        try:
            self.done(positions)  # answer the caller first
        finally:
            self.counted(len(positions))

    def failed(self, error: Exception) -> None:
        """Report that the append has failed, or that its outcome is unknown."""
        self.done(error)


@dataclass(eq=False)
class GroupCommit:
    """Appends events for all bandits in a worker, so that the event loop never waits for a disk.

    No tuning is necessary. When a commit has finished and its callers have been answered, the next
    one begins, with all events that have arrived since. A single caller waits for one commit.
    With several callers, each waits for at most two. A caller that sends its next event as soon as
    it is answered is included in the next commit, so commits are as large as possible without a
    timer.

    Args:
        log: Log that only this worker uses.
        loop: Event loop of the callers.
        runtime: Clocks and threads.
        wait: Seconds to collect events before a commit begins.

    Attributes:
        seconds: Durations of commits in seconds.
        sizes: Numbers of events per commit.
        failures: Number of failed commits, by bandit.
    """

    log: BatchLog
    loop: asyncio.AbstractEventLoop
    runtime: Runtime
    wait: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self._monotonic = self.runtime.monotonic
        self._waiting: list[Append] = []
        self._since = 0.0  # when the first waiting append arrived
        self._wake_scheduled = False
        self._answering = False  # the next commit waits until callers have been answered
        self._lock = threading.Lock()
        self._closing = False
        self.seconds = Histogram(SECONDS)
        self.sizes = Histogram(SIZES)
        self.failures: Counter[str] = Counter()
        self._worker = self.runtime.start_worker("belated commits", self._step)

    def append(
        self,
        journal: UniqueLog,
        events: Sequence[Event],
        counted: Callable[[int], None],
        done: Done[Sequence[int]],
    ) -> None:
        """Append one caller's events. The arguments are as in :class:`Append`."""
        self.append_all([Append(journal, events, counted, done, _NO_REQUESTS, ())])

    def append_all(self, appends: Sequence[Append]) -> None:
        """Append the events of several callers, each with its own callbacks."""
        with self._lock:
            closing = self._closing
            before = len(self._waiting)
            if not closing:
                if not before:
                    self._since = self._monotonic()
                self._waiting += appends
        if closing:
            error = JournalClosed("the service is stopping: send the request to another process")
            call_all(partial(append.failed, error) for append in appends)
        elif before < ENOUGH <= before + len(appends):
            self._worker.wake()
        elif not self._wake_scheduled:  # wake the worker once per turn of the event loop
            self._wake_scheduled = True
            self.loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
        if not self._is_gathering:
            self._worker.wake()

    @property
    def _is_gathering(self) -> bool:
        """Whether the next commit is waiting for events from callers that are being answered."""
        return self._answering and len(self._waiting) < ENOUGH and not self._closing

    def close(self) -> None:
        """Commit all waiting events and refuse further ones."""
        with self._lock:
            self._closing = True
        self._worker.stop()
        while self._step() is not None:
            pass

    def _step(self) -> float | None:
        with self._lock:
            if self._is_gathering:
                return None
            if self._waiting and not self._closing:
                remaining = self._since + self.wait - self._monotonic()
                if remaining > 0.0:
                    return remaining
            appends = self._take()
        if not appends:
            return None
        self._commit(appends)
        return 0.0 if self._waiting else None

    def _take(self) -> list[Append]:
        """Remove and return the first appends that fit into one commit, but at least one."""
        size = count = 0
        for append in self._waiting:
            size += len(append.events)
            if count and size > MAX_COMMIT:
                break
            count += 1
        appends, self._waiting = self._waiting[:count], self._waiting[count:]
        return appends

    def _commit(self, appends: list[Append]) -> None:
        by_journal: dict[int, list[Append]] = {}
        for append in appends:
            by_journal.setdefault(id(append.journal), []).append(append)
        groups = list(by_journal.values())
        batches = [_batch(group) for group in groups]
        start = self._monotonic()
        results = self._append(batches)
        if any(isinstance(result, Appended) for result in results):
            self.seconds.add(self._monotonic() - start)
            self.sizes.add(sum(len(batch.events) for batch in batches))
        outcomes = list(zip(groups, results, strict=True))
        too_large = [
            group
            for group, result in outcomes
            if isinstance(result, CommitTooLarge) and len(group) > 1
        ]
        self._answering = True
        answers = [outcome for outcome in outcomes if outcome[0] not in too_large]
        self.loop.call_soon_threadsafe(self._answer, answers)
        for group in too_large:  # retry with fewer callers per commit
            half = len(group) // 2
            self._commit(group[:half])
            self._commit(group[half:])

    def _answer(self, outcomes: Iterable[tuple[Sequence[Append], Appended | Exception]]) -> None:
        try:
            _answer_all(outcomes)
        finally:
            self._gather(0, QUIET_TURNS)

    def _gather(self, count: int, turns: int) -> None:
        """Start the next commit after `turns` idle turns of the event loop."""
        if len(self._waiting) > count:
            turns = QUIET_TURNS
        if turns and len(self._waiting) < ENOUGH:
            self.loop.call_soon(self._gather, len(self._waiting), turns - 1)
        else:
            self._answering = False
            if self._waiting:
                self._worker.wake()

    def _append(self, batches: list[Batch]) -> list[Appended | Exception]:
        try:
            return [*self.log.append_all(batches)]
        except Exception as error:  # report the error to each caller, and continue
            if len(batches) > 1 and not isinstance(error, JournalUnavailable):
                # A failed append for one bandit must not prevent appends for other bandits.
                return [result for batch in batches for result in self._append([batch])]
            if not isinstance(error, CommitTooLarge):
                self.failures.update(batch.journal.bandit for batch in batches)
            return [error] * len(batches)


def _batch(appends: Sequence[Append]) -> Batch:
    """Combine the events of several callers of one bandit into a batch."""
    events, requests = gather((append.events, append.stored_requests) for append in appends)
    ids = {id for append in appends for id in append.ids}
    return Batch(appends[0].journal, events, ids, requests)


def _answer_all(outcomes: Iterable[tuple[Sequence[Append], Appended | Exception]]) -> None:
    calls: list[Callable[[], None]] = []
    for appends, result in outcomes:
        if isinstance(result, Exception):
            calls += (partial(append.failed, result) for append in appends)
            continue
        start = 0
        for append in appends:
            end = start + len(append.events)
            positions = result.positions[start:end]
            calls.append(partial(append.durable, positions, result.standing))
            start = end
    call_all(calls)


def call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Call all functions, even if some raise errors, then raise the first error."""
    failure: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def resolve(future: asyncio.Future[T], result: T | Exception) -> None:
    """Set the result or exception of a future, unless the future is done or cancelled."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def pass_on(done: Done[T], future: asyncio.Future[T]) -> None:
    """Call `done` with the result or exception of a future, unless the future was cancelled."""
    if future.cancelled():
        return
    error = future.exception()
    if error is None:
        done(future.result())
    elif isinstance(error, Exception):
        done(error)
