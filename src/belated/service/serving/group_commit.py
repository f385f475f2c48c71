"""Many callers, one commit: what gathers while a commit is under way goes into the next one."""

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
#: Is called with a result, or with an error if there is none. A future for each request would cost
#: as much as the rest of the request: these are plain callbacks.
Done = Callable[[T | Exception], None]
#: Events in one commit: larger ones only make everyone in it wait.
MAX_COMMIT = 1_000
#: Idle turns of the event loop after which the next commit no longer waits for the callers that
#: were just answered. What is read in one turn is chosen for, and then appended, in the next.
QUIET_TURNS = 2
#: Callers for whom a commit begins at once: more would not make it much cheaper for each.
ENOUGH = 64

_NOTHING_KEPT: Mapping[int, bytes] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Append:
    """Events of one caller, whose callbacks run on the event loop.

    Attributes:
        journal: where they go.
        events: of one caller.
        done: is called with the position of each once they are durable, as of :meth:`Log.append`;
            or with the error.
        counted: is then called with their number.
        kept: what decisions among them were chosen from, by their place.
        named: ids among them that callers chose: each may have one decision.
    """

    journal: UniqueLog
    events: Sequence[Event]
    counted: Callable[[Any], None]
    done: Done[Any]
    kept: Mapping[int, bytes]
    named: Collection[str]

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        """The events are durable, or others stand in their place: as of :class:`Appended`."""
        try:
            self.done(positions)  # the caller is waiting
        finally:
            self.counted(len(positions))

    def failed(self, error: Exception) -> None:
        """The append failed, or its outcome is unknown."""
        self.done(error)


@dataclass(eq=False)
class GroupCommit:
    """A worker that appends for all bandits, so that the event loop never waits for a disk.

    There is nothing to tune: a commit begins when the one before it has ended and its callers are
    answered, with all that has come meanwhile. Alone a caller waits for one commit, in a crowd for
    two at most. A caller that sends its next event as soon as it is answered is in the next commit,
    not in the one after: commits are as large, and as few, as they can be without a timer.

    Args:
        log: for events; used by this worker alone.
        loop: of the callers.
        runtime: time and threads.
        wait: seconds in which more is to come before a commit begins.
    """

    log: BatchLog
    loop: asyncio.AbstractEventLoop
    runtime: Runtime
    wait: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self._monotonic = self.runtime.monotonic
        self._waiting: list[Append] = []
        self._since = 0.0  # when the first of them came
        self._noticed = False
        self._answering = False  # the next commit begins when that is done
        self._lock = threading.Lock()
        self._closing = False
        #: For metrics: how long commits took, how many events each had, and how many failed, by
        #: the name of the bandit.
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
        """Append the events of one caller: see :class:`Append`."""
        self.append_all([Append(journal, events, counted, done, _NOTHING_KEPT, ())])

    def append_all(self, appends: Sequence[Append]) -> None:
        """Append for several callers at once, each with its own callbacks."""
        with self._lock:
            closing = self._closing
            before = len(self._waiting)
            if not closing:
                if not before:
                    self._since = self._monotonic()
                self._waiting += appends
        if closing:
            error = JournalClosed("the service is stopping: retry elsewhere")
            call_all(partial(one.failed, error) for one in appends)
        elif before < ENOUGH <= before + len(appends):
            self._worker.wake()
        elif not self._noticed:  # wake the worker once for all that comes in this turn of the loop
            self._noticed = True
            self.loop.call_soon(self._notice)

    def _notice(self) -> None:
        self._noticed = False
        if not self._is_gathering:
            self._worker.wake()

    @property
    def _is_gathering(self) -> bool:
        """Whether the next commit waits for those who are being answered."""
        return self._answering and len(self._waiting) < ENOUGH and not self._closing

    def close(self) -> None:
        """Commit all that waits; further events are refused."""
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
                early = self._since + self.wait - self._monotonic()
                if early > 0.0:
                    return early
            taken = self._take()
        if not taken:
            return None
        self._commit(taken)
        return 0.0 if self._waiting else None

    def _take(self) -> list[Append]:
        """Return the first that fit into one commit, and at least one."""
        size = count = 0
        for one in self._waiting:
            size += len(one.events)
            if count and size > MAX_COMMIT:
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _commit(self, taken: list[Append]) -> None:
        groups: dict[int, list[Append]] = {}
        for one in taken:
            groups.setdefault(id(one.journal), []).append(one)
        batches = [_batch(some) for some in groups.values()]
        start = self._monotonic()
        found = self._append(batches)
        if any(isinstance(one, Appended) for one in found):
            self.seconds.add(self._monotonic() - start)
            self.sizes.add(sum(len(batch.events) for batch in batches))
        outcomes = list(zip(groups.values(), found, strict=True))
        large = [
            some for some, one in outcomes if isinstance(one, CommitTooLarge) and len(some) > 1
        ]
        self._answering = True
        answers = [outcome for outcome in outcomes if outcome[0] not in large]
        self.loop.call_soon_threadsafe(self._answer, answers)
        for some in large:  # what each of them sent may well fit
            half = len(some) // 2
            self._commit(some[:half])
            self._commit(some[half:])

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
        except Exception as error:  # each caller gets it, and the worker goes on
            if len(batches) > 1 and not isinstance(error, JournalUnavailable):
                # One bandit that is refused must not keep the others from being committed.
                return [one for batch in batches for one in self._append([batch])]
            if not isinstance(error, CommitTooLarge):
                self.failures.update(batch.journal.bandit for batch in batches)
            return [error] * len(batches)


def _batch(appends: Sequence[Append]) -> Batch:
    """The events of several callers as one batch of their bandit."""
    events, kept = gather((one.events, one.kept) for one in appends)
    named = {id for one in appends for id in one.named}
    return Batch(appends[0].journal, events, named, kept)


def _answer_all(outcomes: Iterable[tuple[Sequence[Append], Appended | Exception]]) -> None:
    calls: list[Callable[[], None]] = []
    for appends, found in outcomes:
        if isinstance(found, Exception):
            calls += (partial(one.failed, found) for one in appends)
            continue
        start = 0
        for one in appends:
            end = start + len(one.events)
            calls.append(partial(one.durable, found.positions[start:end], found.standing))
            start = end
    call_all(calls)


def call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Call all, even if one raises; its error is raised at the end, to be logged."""
    failure: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def resolve(future: asyncio.Future[T], found: T | Exception) -> None:
    """Set the result of a future, or its exception, unless it was cancelled."""
    if future.done():
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)


def pass_on(done: Done[T], found: asyncio.Future[T]) -> None:
    """Call `done` with the result of a future, or with its exception."""
    if found.cancelled():
        return
    error = found.exception()
    if error is None:
        done(found.result())
    elif isinstance(error, Exception):
        done(error)
