"""Who talks to the journal behind a spool: a thread, or whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """One thread that does what it is given, one after the other, so that callers can give up.

    Args:
        chore: what it does when there is nothing else to do.
        due: in how many seconds that is due; None if it is not. At 0 it is done between other
            things too.
    """

    def __init__(self, chore: Callable[[], object], due: Callable[[], float | None]) -> None:
        self._chore = chore
        self._due = due
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon: a journal that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._loop, name="belated spool", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T], seconds: float | None) -> T:
        """Have it done, and wait.

        Raises:
            TimeoutError: after so many seconds. What was not begun will not be done.
        """
        answer: Future[T] = self._submit(work)
        try:
            return answer.result(seconds)
        finally:
            answer.cancel()

    def wake(self) -> None:
        """What is due may have changed."""
        self._jobs.put(lambda: None)

    def stop(self, last: Callable[[], None], seconds: float | None) -> None:
        """Have one last thing done, but do not wait for ever."""
        answer = self._submit(last)
        self._jobs.put(None)
        with suppress(TimeoutError):
            answer.result(seconds)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()

        def job() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        self._jobs.put(job)
        return answer

    def _loop(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._due())
            except Empty:
                self._chore()
                continue
            if job is None:
                return
            job()
            del job  # or what it holds would live until the next one comes
            if self._due() == 0:
                self._chore()


class Caller:
    """The same without a thread: things are done by whoever asks, and nothing by itself."""

    def run(self, work: Callable[[], T], seconds: float | None) -> T:
        """Do it."""
        return work()

    def wake(self) -> None:
        """There is no one to wake."""

    def stop(self, last: Callable[[], None], seconds: float | None) -> None:
        """Do the last thing."""
        last()
