"""Several server processes on one port, which a supervisor starts and restarts.

The supervisor binds the port. It starts each server process with a new interpreter, which inherits
the listening socket and two pipes. It accepts no connections itself, but writes the log lines of
all processes to its stderr and combines their metrics.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, TYPE_CHECKING

from belated.service.operating.metrics import CombinedMetrics, Metrics, metric_of
from belated.service.runtime import MAX_RETRY, RETRY, dead_workers

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: Seconds between polls of each process, seconds to wait for a reply, and seconds without a reply
#: after which a process is killed.
POLL, REPLY, HUNG = 5.0, 2.0, 30.0
#: Seconds between checks for signals and for processes that have ended.
LOOK = 0.1
#: File with the container's CPU quota, which can be "max", and period in microseconds (cgroup v2).
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")

log = logging.getLogger("belated.service")


def cores() -> int:
    """Return the number of cores that this process may use, rounded up."""
    count = os.cpu_count() or 1
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # no cgroup, or no limit
        quota, period = map(int, CPU_LIMIT.read_text(encoding="ascii").split())
        count = min(count, math.ceil(quota / period))
    return count


# --- the supervisor ------------------------------------------------------------------------------


class Supervisor:
    """Runs server processes until SIGTERM or SIGINT, and restarts those that end.

    Args:
        command: Command that starts a server process. Four numbers are appended: the index of the
            process, and the file descriptors of the socket and of two pipes (see
            :class:`Supervised`).
        count: Number of processes.
        listening: Listening socket, which the processes share.
    """

    def __init__(self, command: Sequence[str], count: int, listening: socket.socket) -> None:
        self._listening = listening
        self._slots = [_Slot([*command, str(number)]) for number in range(count)]
        self._served = self._stopping = False
        self._code = self._restarts = 0
        self._lock = threading.Lock()  # so that a scrape counts each process once
        self._running: list[_ServerProcess] = []
        self._ended: list[Metric] = []  # counters of the processes that have ended

    def run(self) -> int:
        """Run the processes; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._stop())
        threading.Thread(target=self._exchange, name="belated metrics", daemon=True).start()
        while self._running or not self._stopping:
            for slot in self._slots:
                self._look_after(slot)
            if self._stopping and self._listening.fileno() >= 0:
                # While the socket is open, the system accepts connections even if no process does.
                self._listening.close()
                for process in self._running:
                    process.popen.terminate()
            time.sleep(LOOK)
        return self._code

    def _stop(self, code: int = 0) -> None:
        """Stop all processes once they have answered their requests in flight."""
        self._stopping, self._code = True, max(self._code, code)

    def _look_after(self, slot: _Slot) -> None:
        """Start a process that is due, and kill a process that does not respond."""
        process = slot.process
        if process is None:
            if not self._stopping and time.monotonic() >= slot.due:
                slot.process = process = _ServerProcess(slot.command, self._listening)
                self._running.append(process)
        elif (code := process.popen.poll()) is not None:
            self._end(slot, process, code)
        elif time.monotonic() - process.waiting_since > HUNG:
            log.error("a server process does not respond and will be killed", extra=process.extra)
            process.popen.kill()
            process.waiting_since = math.inf

    def _end(self, slot: _Slot, process: _ServerProcess, code: int) -> None:
        """Retain the counters of a process that has ended, and restart it if necessary."""
        slot.process = None
        with self._lock:
            self._running.remove(process)
            metrics = CombinedMetrics([self._ended, process.metrics or []])
            self._ended = [metric for metric in metrics.collect() if metric.type != "gauge"]
        if self._stopping:
            self._stop(int(code not in (0, -signal.SIGTERM)))  # -SIGTERM: it was still starting
        elif not self._served:  # it could not start; its log states why
            self._stop(max(code, 1))
        else:
            self._restarts += 1
            seconds = slot.postpone()
            extra = {**process.extra, "code": code, "seconds": seconds}
            log.error("a server process ended and will be restarted", extra=extra)

    # The remaining methods run in a separate thread, because a process may stop responding while
    # the supervisor waits for it. The process is then killed, so the thread continues.

    def _exchange(self) -> None:
        """Poll the processes, and send all metrics to any process that is being scraped."""
        due = 0.0
        while True:
            processes = [process for process in list(self._running) if not process.ended]
            if time.monotonic() >= due:
                due = time.monotonic() + POLL
                for process in processes:
                    process.poll(scraped=False)
            pipes = [pipe for process in processes for pipe in (process.polls, process.scrapes)]
            ready = wait(pipes, LOOK)
            for process in processes:
                if process.polls in ready:
                    process.receive()
                if process.scrapes in ready:
                    for each in processes:
                        each.poll(scraped=True)
                    process.answer(self.metrics().text())
                self._served = self._served or process.metrics is not None

    def metrics(self) -> CombinedMetrics:
        """Return the metrics of all processes, as of the last poll of each."""
        with self._lock:
            running = [process.metrics for process in self._running if process.metrics is not None]
            ended = self._ended
        processes = metric_of("belated_processes", len(running))
        restarts = metric_of("belated_process_restarts", self._restarts)
        return CombinedMetrics([*running, ended, [processes, restarts]])


class _Slot:
    """Holds one server process at a time, and the time of its next restart.

    Attributes:
        command: Command that starts the process.
        process: The running process; None if there is none.
        due: When to start the process, by the monotonic clock.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self.process: _ServerProcess | None = None
        self.due = 0.0
        self._pause = RETRY

    def postpone(self) -> float:
        """Double the pause before the next restart, unless the process has run for a while."""
        now = time.monotonic()
        if now - self.due > MAX_RETRY:
            self._pause = RETRY
        pause, self._pause = self._pause, min(2 * self._pause, MAX_RETRY)
        self.due = now + pause
        return pause


class _ServerProcess:
    """A running server process.

    Attributes:
        polls: Pipe for the metrics of the process.
        scrapes: Pipe for the metrics of all processes.
        metrics: Metrics of the process at the last poll; None while it is starting.
        waiting_since: Monotonic time of the first unanswered request; infinite if there is none.
        ended: Whether the process has closed its pipes.
    """

    def __init__(self, command: Sequence[str], listening: socket.socket) -> None:
        (self.polls, polls), (self.scrapes, scrapes) = Pipe(), Pipe()
        with polls, scrapes:
            files = [listening.fileno(), polls.fileno(), scrapes.fileno()]
            self.popen = subprocess.Popen(
                [*command, *map(str, files)],
                stderr=subprocess.PIPE,
                pass_fds=files,
                process_group=0,  # Ctrl-C is for the supervisor, which stops the processes
            )
        self.extra = {"process_pid": self.popen.pid}
        self.metrics: list[Metric] | None = None
        self.waiting_since = math.inf
        self.ended = False
        threading.Thread(target=_relay, args=(self.popen.stderr,), name="belated log").start()

    def poll(self, *, scraped: bool) -> None:
        """Request the metrics of the process, and wait for them for a short time."""
        if self.metrics is not None and self.waiting_since == math.inf:
            with self._waiting():
                self.polls.send(scraped)
                if self.polls.poll(REPLY):
                    self.receive()

    def receive(self) -> None:
        """Receive the metrics of the process. It also sends them, unasked, once it has started."""
        with self._waiting():
            self.metrics = self.polls.recv()
            self.waiting_since = math.inf

    def answer(self, text: bytes) -> None:
        """Send the combined metrics to this process, which is answering a scrape."""
        with self._waiting():
            self.scrapes.recv()
            self.scrapes.send_bytes(text)
            self.waiting_since = math.inf

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waiting_since = time.monotonic()
        try:
            yield
        except (EOFError, OSError):
            self.ended = True


def _relay(lines: IO[bytes]) -> None:
    """Copy log lines to stderr, one line per write, so that lines do not interleave."""
    with lines, suppress(OSError):
        for line in lines:
            sys.stderr.buffer.write(line.removesuffix(b"\n") + b"\n")
            sys.stderr.buffer.flush()


# --- a server process ----------------------------------------------------------------------------


class Supervised:
    """The connection from a server process to its supervisor.

    Args:
        polls: File descriptor of the pipe for the metrics of this process.
        scrapes: File descriptor of the pipe for the metrics of all processes.
    """

    def __init__(self, polls: int, scrapes: int) -> None:
        self._polls, self._scrapes = Connection(polls), Connection(scrapes)
        self._lock = threading.Lock()

    def metrics(self) -> bytes:
        """Return the metrics of all processes."""
        with self._lock:
            self._scrapes.send(None)
            return self._scrapes.recv_bytes()

    def follow(self, metrics: Metrics, stop: Callable[[], None]) -> None:
        """Answer the supervisor in the background; call this on the event loop.

        Args:
            metrics: Metrics of this process.
            stop: Called when a worker is dead, so that the supervisor starts a new process, and
                when the supervisor has ended.
        """
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=self._follow, args=(metrics, stop, loop), name="belated polls", daemon=True
        ).start()

    def _follow(
        self, metrics: Metrics, stop: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        scraped = False
        with suppress(EOFError, OSError):
            while not (dead := dead_workers()):
                self._polls.send(_collected(metrics, scraped, loop))
                scraped = self._polls.recv()
            log.error("stopping this process: workers are dead", extra={"workers": dead})
        stop()


def _collected(metrics: Metrics, scraped: bool, loop: asyncio.AbstractEventLoop) -> list[Metric]:
    """Collect metrics on the event loop, which must respond for the process to count as alive."""
    collected: Future[list[Metric]] = Future()

    def collect() -> None:
        try:
            collected.set_result(metrics.snapshot(scraped=scraped))
        except Exception:
            log.exception("the metrics cannot be collected")
            collected.set_result([])

    with suppress(RuntimeError):  # the loop is closed because the process is exiting
        loop.call_soon_threadsafe(collect)
    return collected.result()
