"""Time and threads of a process: real ones here, simulated ones in the fault simulator."""

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
#: Does a piece of work; returns in how many seconds to be called again, None: when it is woken.
Step = Callable[[], float | None]

#: Seconds until a step that failed is tried again: at first, and at most.
RETRY, MAX_RETRY = 0.1, 5.0
#: Seconds for which a step may fail before its worker counts as dead.
DEAD = 60.0

log = logging.getLogger("belated.service")


class Worker(Protocol):
    """Calls a step repeatedly, in the background."""

    def wake(self) -> None:
        """Call the step soon."""

    def stop(self, seconds: float | None = None) -> None:
        """Stop calling the step; wait for a running one, for so many seconds at most."""


class Background(Protocol):
    """Computes one thing at a time, in the background and with low priority."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start a computation."""

    def stop(self) -> None:
        """Wait for the running computation."""


class Runtime(Protocol):
    """What a process needs of the machine."""

    def clock(self) -> int:
        """Return the time in microseconds since 1970."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""

    def start_worker(self, name: str, step: Step) -> Worker:
        """Call a step now, and then when it says; if it raises, log and retry."""

    def start_background(self, name: str) -> Background:
        """Start a thread for long computations."""


class ThreadRuntime:
    """The machine's clock, and a thread for each worker.

    Args:
        clock: gives microseconds since 1970.
    """

    def __init__(self, clock: Callable[[], int] = system_clock) -> None:
        self.clock = clock
        self.monotonic = time.monotonic

    def start_worker(self, name: str, step: Step) -> Worker:
        """Start a thread."""
        return _Crew(name).add(name, step, alone=True)

    def start_background(self, name: str) -> Background:
        """Start a thread of low priority."""
        return _Background(_pool(name), alone=True)


class SharedThreads(ThreadRuntime):
    """One thread for all workers, and one for all computations of a kind.

    For many learners in one process: their workers have little to do, and their computations would
    only take the processor from each other.

    Args:
        clock: gives microseconds since 1970.
    """

    def __init__(self, clock: Callable[[], int] = system_clock) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        self._crew: _Crew | None = None
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def start_worker(self, name: str, step: Step) -> Worker:
        """Call a step in the thread of all workers."""
        with self._lock:
            if self._crew is None:
                self._crew = _Crew("belated workers")
        return self._crew.add(name, step)

    def start_background(self, name: str) -> Background:
        """Compute in the thread of this name."""
        with self._lock:
            if name not in self._pools:
                self._pools[name] = _pool(name)
        return _Background(self._pools[name])

    def stop(self) -> None:
        """End the threads, once all that used them has stopped."""
        for pool in self._pools.values():
            pool.shutdown()
        if self._crew is not None:
            self._crew.stop()


class _Crew:
    """Workers that take turns in one thread, each when it is due."""

    def __init__(self, name: str) -> None:
        self.lock = threading.RLock()  # held by whichever step is under way
        self.members: list[_Worker] = []
        self._woken = threading.Event()
        self._stopped = False
        # A daemon: a store that hangs must not keep the process alive.
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
    """Calls a step when it is due: an error is logged, and the step called again after a pause.

    Attributes:
        name: of the worker.
        due: when to call the step, by the monotonic clock.
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
        if pause is not None:  # it may have been woken meanwhile
            self.due = min(self.due, time.monotonic() + pause)

    def _supervised(self) -> float | None:
        now = time.monotonic()
        if now < self._retry_at:  # it was woken: the pause holds all the same
            return self._retry_at - now
        try:
            pause = self._step()
        except Exception:
            log.exception("a worker failed and is tried again", extra={"worker": self.name})
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
        """Return why the worker counts as dead; None if it is alive."""
        if not self._crew.thread.is_alive():
            return "its thread has ended"
        since = self._failing_since
        if since is not None and (seconds := time.monotonic() - since) >= DEAD:
            return f"it has failed for {seconds:.0f} seconds"
        return None


#: Workers of this process that were not stopped.
_workers: set[_Worker] = set()
#: Steps that raised in this process, by the name of their worker.
failures: Counter[str] = Counter()


def dead_workers() -> dict[str, str]:
    """Return why workers of this process are dead, by their names: only a restart helps."""
    found = [(worker.name, worker.why_dead()) for worker in _workers.copy()]
    return {name: why for name, why in sorted(found, key=str) if why is not None}


class _Background:
    """A thread that computes; if it is also that of others, it goes on when one of them stops."""

    def __init__(self, pool: ThreadPoolExecutor, *, alone: bool = False) -> None:
        self._pool = pool
        self._alone = alone
        self._last: Future[Any] | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        self._last = answer = self._pool.submit(work)
        return answer

    def stop(self) -> None:
        if self._alone:
            self._pool.shutdown()
        elif self._last is not None and not self._last.cancel():
            wait([self._last])


def _pool(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=give_way)
