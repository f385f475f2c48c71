"""The machine of one simulated process: its time, its threads, and its death."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from belated.service.runtime import Step
from tests.simulator.faults import Killed
from tests.simulator.schedule import SECOND
from tests.simulator.world import World

T = TypeVar("T")


class Host:
    """A :class:`belated.service.runtime.Runtime` in virtual time.

    Workers are called on the schedule, one step at a time. A worker may oversleep: real threads do
    too. What a dead process had still to do never happens.

    Args:
        world: it lives in.
        name: of the process.
        died: is told when the process was killed.
    """

    def __init__(self, world: World, name: str, died: Callable[[], None]) -> None:
        self.alive = True
        self.clock = world.clock(name)
        self.workers: list[_Worker] = []
        self._world = world
        self._rng = world.stream(f"{name}'s host at {world.schedule.now}")
        self._died = died
        self._endings: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        """Return virtual seconds."""
        return self._world.schedule.now / SECOND

    def start_worker(self, name: str, step: Step) -> _Worker:
        """Call a step soon, and then as it says."""
        worker = _Worker(self, step)
        self.workers.append(worker)
        return worker

    def start_background(self, name: str) -> _Background:
        """Have a place for long computations."""
        return _Background(self)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something later, if the process lives."""
        self._world.schedule.after(seconds * SECOND, lambda: self.run(action))

    def run(self, action: Callable[[], object]) -> None:
        """Do something now, if the process lives; it may be its end."""
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
        """Let nothing more happen here."""
        self.alive = False
        for ending in self._endings:
            ending()
        self._endings.clear()

    def at_end(self, ending: Callable[[], object]) -> None:
        """Do something when the process has ended."""
        self._endings.append(ending)

    def short_delay(self) -> float:
        """Return the seconds until a thread or a turn of an event loop begins: mostly none."""
        return self._rng.choice([0.0, 0.0, 0.001, 0.3, 2.0]) if self._world.active else 0.0

    def pause(self, seconds: float) -> float | None:
        """Return how long a worker really rests; None at the end of the run, when nothing polls."""
        if not self._world.active:
            return None
        return max(seconds, self._rng.expovariate(20 * SECOND / self._world.knobs.span))


class _Worker:
    """Calls a step on the schedule."""

    def __init__(self, host: Host, step: Step) -> None:
        self._host = host
        self.step = step
        self._stopped = False
        self._number = 0  # of the next call that counts
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
        if self._stopped or number != self._number:  # another call is nearer
            return
        pause = self.step()
        if pause == 0.0:
            self._call_after(0.0)
        elif pause is not None and number == self._number:
            rest = self._host.pause(pause)
            if rest is not None:
                self._call_after(rest)


class _Background:
    """A computation is done a while after it was asked for; others go on meanwhile."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def submit(self, work: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        self._host.after(self._host.short_delay(), lambda: _compute(work, answer))
        return answer

    def stop(self) -> None:
        pass


def _compute(work: Callable[[], T], answer: Future[T]) -> None:
    if answer.cancelled():
        return
    try:
        answer.set_result(work())
    except Exception as error:
        answer.set_exception(error)
