"""The host of a simulated process: its clock, its worker threads and its event loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future as ThreadFuture
from typing import Any, TypeVar, cast

from belated.service.runtime import Step
from tests.simulator.faults import Killed
from tests.simulator.settings import SECOND
from tests.simulator.world import World

T = TypeVar("T")


class Host:
    """A :class:`belated.service.runtime.Runtime` in virtual time.

    Workers run on the schedule, one step at a time. Like real threads they may oversleep. Pending
    work of a dead process never runs.

    Args:
        world: it lives in.
        name: of the process.
        died: called when the process was killed.
    """

    def __init__(self, world: World, name: str, died: Callable[[], None]) -> None:
        self.alive = True
        self.clock = world.clock(name)
        self.workers: list[_Worker] = []
        self._world = world
        self._rng = world.stream(f"{name}'s host at {world.schedule.now}")
        self._died = died
        self._at_end: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        """Return virtual seconds."""
        return self._world.schedule.now / SECOND

    def start_worker(self, name: str, step: Step) -> _Worker:
        """Call a step soon, and then whenever it asks for."""
        worker = _Worker(self, step)
        self.workers.append(worker)
        return worker

    def start_background(self, name: str) -> _Background:
        """Return a thread for long computations."""
        return _Background(self)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Run an action later, if the process is still alive."""
        self._world.schedule.after(seconds * SECOND, lambda: self.run(action))

    def run(self, action: Callable[[], object]) -> None:
        """Run an action now, if the process is alive; the action may kill it."""
        if not self.alive:
            return
        try:
            action()
        except Killed:
            self.kill()

    def kill(self) -> None:
        """End the process."""
        if self.alive:
            self.stop()
            self._died()

    def stop(self) -> None:
        """Stop the process: nothing runs here any more."""
        self.alive = False
        for callback in self._at_end:
            callback()
        self._at_end.clear()

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call something when the process has ended."""
        self._at_end.append(callback)

    def short_delay(self) -> float:
        """Return the seconds until a thread or an event-loop turn starts: mostly 0."""
        return self._rng.choice([0.0, 0.0, 0.001, 0.3, 2.0]) if self._world.active else 0.0

    def pause(self, seconds: float) -> float | None:
        """Return how long a worker really sleeps; None at the end of the run: nothing polls."""
        if not self._world.active:
            return None
        return max(seconds, self._rng.expovariate(20 * SECOND / self._world.settings.span))


class _Worker:
    """A thread that calls a step."""

    def __init__(self, host: Host, step: Step) -> None:
        self._host = host
        self.step = step
        self._stopped = False
        self._number = 0  # of the next call; earlier ones are cancelled
        self.wake()

    def wake(self) -> None:
        self._call_after(self._host.short_delay())

    def stop(self, seconds: float | None = None) -> None:
        self._stopped = True

    def _call_after(self, seconds: float) -> None:
        self._number += 1
        number = self._number
        self._host.after(seconds, lambda: self._call(number))

    def _call(self, number: int) -> None:
        if self._stopped or number != self._number:
            return
        pause = self.step()
        if pause == 0.0:
            self._call_after(0.0)
        elif pause is not None and number == self._number:
            sleep = self._host.pause(pause)
            if sleep is not None:
                self._call_after(sleep)


class _Background:
    """A thread for computations: each runs a while after it was submitted."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def submit(self, work: Callable[[], T]) -> ThreadFuture[T]:
        answer: ThreadFuture[T] = ThreadFuture()
        self._host.after(self._host.short_delay(), lambda: _compute(work, answer))
        return answer

    def stop(self) -> None:
        pass


def _compute(work: Callable[[], T], answer: ThreadFuture[T]) -> None:
    if answer.cancelled():
        return
    try:
        answer.set_result(work())
    except Exception as error:
        answer.set_exception(error)


class SimulatedLoop:
    """The asyncio event loop of one process, in virtual time.

    It is an :class:`asyncio.AbstractEventLoop` as far as the service needs one. Callbacks run in
    the order they were added, as asyncio promises; when a turn starts is random.

    Args:
        host: the process.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._ready: deque[Handle] = deque()
        self._scheduled = False
        self._as_loop = cast(AbstractEventLoop, self)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._host.monotonic()

    def get_debug(self) -> bool:
        """Return False: asyncio checks nothing more."""
        return False

    def is_running(self) -> bool:
        """Return True."""
        return True

    def create_future(self) -> Future[Any]:
        """Return a future of this loop."""
        return Future(loop=self._as_loop)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> Task[Any]:
        """Run a coroutine."""
        self._host.at_end(coro.close)  # nobody awaits it after the process has died
        return Task(coro, loop=self._as_loop, name="task")

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Handle:
        """Call something in the next turn."""
        handle = Handle(callback, args, self._as_loop, context)
        self._ready.append(handle)
        self._schedule_turn(self._host.short_delay())
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> TimerHandle:
        """Call something later."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> TimerHandle:
        """Call something at a time."""
        handle = TimerHandle(when, callback, args, self._as_loop, context)
        self._host.after(max(0.0, when - self.time()), lambda: self._expire(handle))
        return handle

    def run_in_executor(
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        """Run a function in a thread; its result arrives after a while."""
        answer = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon(_fail, answer, error)
            else:
                self.call_soon(_succeed, answer, result)

        self._host.after(self._host.short_delay(), work)
        return answer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors that nobody awaits: their caller has gone."""

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""

    def _expire(self, handle: TimerHandle) -> None:
        self._ready.append(handle)
        self._schedule_turn(0.0)

    def _schedule_turn(self, delay: float) -> None:
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._host.after(delay, self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        events._set_running_loop(self._as_loop)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():  # not through the handle: that hides errors
                    inside: Any = handle
                    inside._context.run(inside._callback, *inside._args)
        finally:
            events._set_running_loop(None)
            self._schedule_turn(0.0)


def _succeed(answer: Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
