"""An event loop in virtual time: coroutines, futures and timers of asyncio run on the schedule."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

from tests.simulator.host import Host


class SimulatedLoop:
    """The event loop of one process; what becomes ready together runs in one turn.

    It is an :class:`asyncio.AbstractEventLoop` as far as the service needs one. Callbacks run in
    the order they were added, as asyncio promises; when a turn begins is a matter of chance.

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
        """Nothing more is checked."""
        return False

    def is_running(self) -> bool:
        """It always is."""
        return True

    def create_future(self) -> Future[Any]:
        """Return a future of this loop."""
        return Future(loop=self._as_loop)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> Task[Any]:
        """Run a coroutine."""
        self._host.at_end(coro.close)  # what a dead process had begun is not awaited any more
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
        self._host.after(max(0.0, when - self.time()), lambda: self._ring(handle))
        return handle

    def run_in_executor(
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        """Do something beside the loop: the result comes after a while."""
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
        """A future whose error nobody asked for: whoever asked has gone."""

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It rings in vain."""

    def _ring(self, handle: TimerHandle) -> None:
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
