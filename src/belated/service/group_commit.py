"""Many callers, one commit: what gathers while a commit is under way goes into the next one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from belated.events import Event
from belated.exceptions import JournalClosed
from belated.journals import Journal
from belated.service.tallies import SECONDS, SIZES, Tally

#: Events in one commit: larger ones only make all who are in it wait.
MOST = 1_000


class Append(Protocol):
    """Events of one caller, who is told what became of them, on the event loop."""

    @property
    def events(self) -> Sequence[Event]:
        """What is to be kept."""

    def kept(self, positions: Sequence[int]) -> None:
        """They are safe; the position of each, as of :meth:`Journal.append`."""

    def failed(self, error: Exception) -> None:
        """They are not, or nobody knows."""


class GroupCommit:
    """A thread that appends, so that the event loop never waits for a disk.

    There is nothing to tune: a commit begins when the one before it has ended, with all that has
    come meanwhile. Alone a caller waits for one commit, in a crowd for two at most.

    Args:
        journal: for events; used by this thread alone.
        loop: of the callers.
    """

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._loop = loop
        self._waiting: list[Append] = []
        self._noticed = False
        self._changed = threading.Condition()
        self._closing = False
        #: For metrics: how long commits took, how many events each had, and how many failed.
        self.seconds = Tally(SECONDS)
        self.sizes = Tally(SIZES)
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="belated commits", daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        """How many there were."""
        return self.sizes.cumulative[-1]

    @property
    def events(self) -> int:
        """How many they had in all."""
        return int(self.sizes.total)

    def append(
        self, events: Sequence[Event], counted: Callable[[int], None]
    ) -> asyncio.Future[Sequence[int]]:
        """Keep events; the answer has the position of each, as of :meth:`Journal.append`.

        Args:
            events: of one caller.
            counted: is told how many they are, once they are safe.
        """
        append = _Append(events, counted, self._loop.create_future())
        self.append_all([append])
        return append.answer

    def append_all(self, appends: Sequence[Append]) -> None:
        """The same for several callers at once, each of whom is told by itself."""
        with self._changed:
            closing = self._closing
            if not closing:
                self._waiting += appends
        if closing:
            for append in appends:
                append.failed(JournalClosed("the service is stopping: try again elsewhere"))
        elif not self._noticed:  # wake the thread once for all that comes in this turn of the loop
            self._noticed = True
            self._loop.call_soon(self._notice)

    def _notice(self) -> None:
        self._noticed = False
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """Commit all that waits, then close the journal."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._journal.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                taken = self._take()
            self._commit(taken)

    def _take(self) -> list[Append]:
        """The first that fit into one commit, and at least one."""
        size = count = 0
        for one in self._waiting:
            size += len(one.events)
            if count and size > MOST:
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _commit(self, taken: list[Append]) -> None:
        events = [event for one in taken for event in one.events]
        found: list[int] | Exception
        start = time.perf_counter()
        try:
            found = self._journal.append(events)
            self.seconds.add(time.perf_counter() - start)
            self.sizes.add(len(events))
        except Exception as error:  # whatever it is, each caller is told, and the thread lives on
            found = error
            self.failures += 1
        self._loop.call_soon_threadsafe(_tell, taken, found)


class _Append:
    """Events of a caller who awaits an answer."""

    __slots__ = ("_counted", "answer", "events")

    def __init__(
        self,
        events: Sequence[Event],
        counted: Callable[[int], None],
        answer: asyncio.Future[Sequence[int]],
    ) -> None:
        self.events = events
        self.answer = answer
        self._counted = counted

    def kept(self, positions: Sequence[int]) -> None:
        self._counted(len(positions))
        if not self.answer.done():  # the caller may have gone
            self.answer.set_result(positions)

    def failed(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _tell(taken: Sequence[Append], found: list[int] | Exception) -> None:
    if isinstance(found, Exception):
        for one in taken:
            one.failed(found)
        return
    start = 0
    for one in taken:
        end = start + len(one.events)
        one.kept(found[start:end])
        start = end
