"""Clocks and threads of a process. The fault simulator replaces them with its own."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from belated.fold.refit import give_way
from belated.journals.steady_clock import system_clock

T = TypeVar("T")
#: Performs a unit of work, and returns the seconds until the next call, or None to wait for `wake`.
Step = Callable[[], float | None]

#: Seconds until a failed step is retried: initially, and the maximum after doubling.
RETRY, MAX_RETRY = 0.1, 5.0
#: Seconds of continuous failure after which a worker counts as dead.
DEAD = 60.0

log = logging.getLogger("belated.service")


class Worker(Protocol):
    """Calls a step repeatedly in the background."""

    def wake(self) -> None:
        """Call the step as soon as possible."""

    def stop(self, seconds: float | None = None) -> None:
        """Stop calling the step, and wait up to ``seconds`` for a call in progress."""


class Background(Protocol):
    """Runs one computation at a time, in the background with low priority."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start a computation."""

    def stop(self) -> None:
        """Wait for the running computation."""


class Runtime(Protocol):
    """Clocks and threads."""

    def clock(self) -> int:
        """Return the time in microseconds since 1970."""

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""

    def start_worker(self, name: str, step: Step) -> Worker:
        """Call a step now and whenever it is due. If the step raises, log the error and retry."""

    def start_background(self, name: str) -> Background:
        """Start a thread for long computations."""


class ThreadRuntime:
    """Uses the machine's clock and a separate thread for each worker.

    Args:
        clock: Returns the time in microseconds since 1970.
    """

    def __init__(self, clock: Callable[[], int] = system_clock) -> None:
        self.clock = clock
        self.monotonic = time.monotonic

    def start_worker(self, name: str, step: Step) -> Worker:
        """Start a thread that calls the step."""
        return _Crew(name).add(name, step, alone=True)

    def start_background(self, name: str) -> Background:
        """Start a thread with low priority."""
        return _Background(_pool(name), alone=True)


class SharedThreads(ThreadRuntime):
    """Uses one thread for all workers, and one thread for all computations with the same name.

    This is intended for processes with many learners, where each worker has little to do and
    concurrent computations would compete for processors.

    Args:
        clock: Returns the time in microseconds since 1970.
    """

    def __init__(self, clock: Callable[[], int] = system_clock) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        self._crew: _Crew | None = None
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def start_worker(self, name: str, step: Step) -> Worker:
        """Call a step in the thread that all workers share."""
        with self._lock:
            if self._crew is None:
                self._crew = _Crew("belated workers")
        return self._crew.add(name, step)

    def start_background(self, name: str) -> Background:
        """Run computations in the thread that all callers with this name share."""
        with self._lock:
            if name not in self._pools:
                self._pools[name] = _pool(name)
        return _Background(self._pools[name])

    def stop(self) -> None:
        """Stop the threads. Call this after everything that uses them has stopped."""
        for pool in self._pools.values():
            pool.shutdown()
        if self._crew is not None:
            self._crew.stop()


class _Crew:
    """Workers that share one thread, which calls each worker when it is due."""

    def __init__(self, name: str) -> None:
        self.lock = threading.RLock()  # held while a step runs
        self.members: list[_Worker] = []
        self._woken = threading.Event()
        self._stopped = False
        # A daemon thread, so that an unresponsive store does not keep the process alive.
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def add(self, name: str, step: Step, *, alone: bool = False) -> _Worker:
        with self.lock:
            worker = _Worker(self, name, step, alone)
            self.members.append(worker)
        self.wake()
        return worker

    def wake(self) -> None:
        self._woken.set()

    def stop(self, seconds: float | None = None) -> None:
        for worker in self.members:
            _workers.discard(worker)
        self._stopped = True
        self.wake()
        self.thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            for worker in list(self.members):
                with self.lock:
                    if worker in self.members and time.monotonic() >= worker.due:
                        worker.call()
            due = min((worker.due for worker in self.members), default=math.inf)
            pause = None if due == math.inf else due - time.monotonic()
            if (pause is None or pause > 0.0) and not self._stopped:
                self._woken.wait(pause)


class _Worker:
    """Calls a step when it is due, logs errors, and retries after a pause.

    Attributes:
        name: Name of the worker.
        due: When to call the step next, by the monotonic clock.
    """

    def __init__(self, crew: _Crew, name: str, step: Step, alone: bool) -> None:
        self.name = name
        self.due = -math.inf
        self._crew = crew
        self._step = step
        self._alone = alone
        self._pause = RETRY
        self._retry_at = -math.inf
        self._failing_since: float | None = None
        _workers.add(self)

    def call(self) -> None:
        self.due = math.inf
        pause = self._supervised()
        if pause is not None:  # `wake` may have set `due` in the meantime
            self.due = min(self.due, time.monotonic() + pause)

    def _supervised(self) -> float | None:
        now = time.monotonic()
        if now < self._retry_at:  # woken during the pause after an error
            return self._retry_at - now
        try:
            pause = self._step()
        except Exception:
            log.exception("a worker failed and will be retried", extra={"worker": self.name})
            failures[self.name] += 1
            if self._failing_since is None:
                self._failing_since = now
            pause, self._pause = self._pause, min(2 * self._pause, MAX_RETRY)
            self._retry_at = time.monotonic() + pause
            return pause
        self._failing_since, self._pause = None, RETRY
        return pause

    def wake(self) -> None:
        self.due = -math.inf
        self._crew.wake()

    def stop(self, seconds: float | None = None) -> None:
        if self._alone:
            self._crew.stop(seconds)
            return
        _workers.discard(self)
        with suppress(ValueError):
            self._crew.members.remove(self)
        if self._crew.lock.acquire(timeout=-1 if seconds is None else seconds):
            self._crew.lock.release()

    def why_dead(self) -> str | None:
        """Return the reason why the worker is dead; None if it is alive."""
        if not self._crew.thread.is_alive():
            return "its thread has ended"
        since = self._failing_since
        if since is not None and (seconds := time.monotonic() - since) >= DEAD:
            return f"it has failed for {seconds:.0f} seconds"
        return None


#: Workers running in this process.
_workers: set[_Worker] = set()
#: Number of failed steps in this process, by worker name.
failures: Counter[str] = Counter()


def dead_workers() -> dict[str, str]:
    """Return why workers are dead, by worker name. If any are, restart the process."""
    reasons = [(worker.name, worker.why_dead()) for worker in _workers.copy()]
    return {name: reason for name, reason in sorted(reasons, key=str) if reason is not None}


class _Background:
    """Runs computations in a thread pool, which `stop` shuts down unless it is shared."""

    def __init__(self, pool: ThreadPoolExecutor, *, alone: bool = False) -> None:
        self._pool = pool
        self._alone = alone
        self._last: Future[Any] | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        self._last = future = self._pool.submit(work)
        return future

    def stop(self) -> None:
        if self._alone:
            self._pool.shutdown()
        elif self._last is not None and not self._last.cancel():
            wait([self._last])


def _pool(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=give_way)
