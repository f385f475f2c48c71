"""Time and threads of a process: real ones here, simulated ones in the fault simulator."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from belated.journals.steady_clock import system_clock

T = TypeVar("T")
#: Does a piece of work; returns in how many seconds to be called again, None: when it is woken.
Step = Callable[[], float | None]


class Worker(Protocol):
    """Calls a step again and again, beside everything else."""

    def wake(self) -> None:
        """Call the step soon."""

    def stop(self, seconds: float | None = None) -> None:
        """Call the step no more; wait for one that is under way, but not for ever."""


class Background(Protocol):
    """Computes one thing at a time, beside everything else and with less right to a processor."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Begin; the result comes later."""

    def stop(self) -> None:
        """Wait for what is under way."""


class Runtime(Protocol):
    """What a process needs of the machine."""

    def clock(self) -> int:
        """Return the time in microseconds since 1970."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""

    def start_worker(self, name: str, step: Step) -> Worker:
        """Call a step at once, and then as it says."""

    def start_background(self, name: str) -> Background:
        """Have a place for long computations."""


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
        return _ThreadWorker(name, step)

    def start_background(self, name: str) -> Background:
        """Start a thread of low priority."""
        return _ThreadBackground(name)


class _ThreadWorker:
    def __init__(self, name: str, step: Step) -> None:
        self._step = step
        self._woken = threading.Event()
        self._stopped = False
        # A daemon: a store that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self, seconds: float | None = None) -> None:
        self._stopped = True
        self._woken.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            pause = self._step()
            if pause != 0.0 and not self._stopped:
                self._woken.wait(pause)


class _ThreadBackground:
    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_give_way)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(work)

    def stop(self) -> None:
        self._pool.shutdown()


def _give_way() -> None:
    """Let requests go before this thread: on Linux a thread has a niceness of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        # Never less than the process was started with: only root may take that back.
        os.setpriority(os.PRIO_PROCESS, thread, max(now, 10))
