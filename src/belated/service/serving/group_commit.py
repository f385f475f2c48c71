"""Many callers, one commit: what gathers while a commit is under way goes into the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from belated.events import Decision, Event
from belated.exceptions import CommitTooLarge, JournalClosed
from belated.journals import UniqueLog
from belated.journals.arrivals import gather
from belated.journals.log import Appended
from belated.service.histogram import SECONDS, SIZES, Histogram
from belated.service.runtime import Runtime

T = TypeVar("T")
#: Is told a result or, where there is none, why. A future for each request costs as much as the
#: rest of its way: what waits here are plain calls.
Done = Callable[[T | Exception], None]
#: Events in one commit: larger ones only make everyone in it wait.
MAX_COMMIT = 1_000


class Append(Protocol):
    """Events of one caller, who hears on the event loop what became of them."""

    @property
    def events(self) -> Sequence[Event]:
        """What is to be appended."""

    @property
    def kept(self) -> Mapping[int, bytes]:
        """What decisions among them were chosen from, by their place."""

    @property
    def named(self) -> Collection[str]:
        """Ids among them that callers chose: each may have one decision."""

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        """They are durable, or others stand in their place: as of :class:`Appended`."""

    def failed(self, error: Exception) -> None:
        """They are not, or nobody knows."""


class GroupCommit:
    """A worker that appends, so that the event loop never waits for a disk.

    There is nothing to tune: a commit begins when the one before it has ended, with all that has
    come meanwhile. Alone a caller waits for one commit, in a crowd for two at most.

    Args:
        log: for events; used by this worker alone.
        loop: of the callers.
        runtime: time and threads.
        wait: seconds in which more is to come before a commit begins.
    """

    def __init__(
        self,
        log: UniqueLog,
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
        *,
        wait: float = 0.0,
    ) -> None:
        self._log = log
        self._wait = wait
        self._loop = loop
        self._monotonic = runtime.monotonic
        self._waiting: list[Append] = []
        self._since = 0.0  # when the first of them came
        self._noticed = False
        self._lock = threading.Lock()
        self._closing = False
        #: For metrics: how long commits took, how many events each had, and how many failed.
        self.seconds = Histogram(SECONDS)
        self.sizes = Histogram(SIZES)
        self.failures = 0
        self._worker = runtime.start_worker("belated commits", self._step)

    @property
    def commits(self) -> int:
        """How many there were."""
        return self.sizes.cumulative[-1]

    @property
    def events(self) -> int:
        """How many they had in all."""
        return int(self.sizes.total)

    def append(
        self, events: Sequence[Event], counted: Callable[[int], None], done: Done[Sequence[int]]
    ) -> None:
        """Append events.

        Args:
            events: of one caller.
            counted: is told how many they are, once they are durable.
            done: is then told the position of each, as of :meth:`Log.append`; or what went wrong.
        """
        self.append_all([_Append(events, counted, done)])

    def append_all(self, appends: Sequence[Append]) -> None:
        """Append for several callers at once, each of whom is told by itself."""
        with self._lock:
            closing = self._closing
            if not closing:
                if not self._waiting:
                    self._since = self._monotonic()
                self._waiting += appends
        if closing:
            for append in appends:
                append.failed(JournalClosed("the service is stopping: retry elsewhere"))
        elif not self._noticed:  # wake the worker once for all that comes in this turn of the loop
            self._noticed = True
            self._loop.call_soon(self._notice)

    def _notice(self) -> None:
        self._noticed = False
        self._worker.wake()

    def close(self) -> None:
        """Commit all that waits, then close the log."""
        with self._lock:
            self._closing = True
        self._worker.stop()
        while self._step() is not None:
            pass
        self._log.close()

    def _step(self) -> float | None:
        with self._lock:
            if self._waiting and not self._closing:
                early = self._since + self._wait - self._monotonic()
                if early > 0.0:
                    return early
            taken = self._take()
        if not taken:
            return None
        self._commit(taken)
        return 0.0

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
        events, kept = gather((one.events, one.kept) for one in taken)
        named = {id for one in taken for id in one.named}
        found: Appended | Exception
        start = self._monotonic()
        try:
            if named:
                found = self._log.append_unique(events, named, kept)
            else:
                found = Appended(self._log.append(events, requests=kept), {})
            self.seconds.add(self._monotonic() - start)
            self.sizes.add(len(events))
        except CommitTooLarge as error:
            if len(taken) > 1:  # what each of them sent may well fit
                half = len(taken) // 2
                self._commit(taken[:half])
                self._commit(taken[half:])
                return
            found = error
        except Exception as error:  # whatever it is, each caller hears of it, and the worker lives
            found = error
            self.failures += 1
        self._loop.call_soon_threadsafe(_answer, taken, found)


class _Append:
    """Events of a caller who is told what became of them."""

    __slots__ = ("_counted", "_done", "events")
    named = ()
    kept: Mapping[int, bytes] = {}

    def __init__(
        self, events: Sequence[Event], counted: Callable[[int], None], done: Done[Sequence[int]]
    ) -> None:
        self.events = events
        self._counted = counted
        self._done = done

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        self._counted(len(positions))
        self._done(positions)

    def failed(self, error: Exception) -> None:
        self._done(error)


def _answer(taken: Sequence[Append], found: Appended | Exception) -> None:
    if isinstance(found, Exception):
        for one in taken:
            one.failed(found)
        return
    start = 0
    for one in taken:
        end = start + len(one.events)
        one.durable(found.positions[start:end], found.standing)
        start = end


def resolve(future: asyncio.Future[T], found: T | Exception) -> None:
    """Tell a future what was done, unless nobody waits for it any more."""
    if future.done():
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)


def pass_on(done: Done[T], found: asyncio.Future[T]) -> None:
    """The other way round: tell what a future or a task came to."""
    if found.cancelled():
        return
    error = found.exception()
    if error is None:
        done(found.result())
    elif isinstance(error, Exception):
        done(error)
