"""Workers and background threads of the service."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from belated.service import runtime
from belated.service.runtime import SharedThreads, ThreadRuntime, dead_workers
from tests.waiting import eventually

GIVES_WAY = """
import os, threading
from belated.service.runtime import ThreadRuntime

os.nice({nice})
found = ThreadRuntime().start_background("work").submit(
    lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
)
print(found.result())
"""


@pytest.mark.parametrize(("nice", "expected"), [(0, 10), (15, 15)])
def test_work_in_the_background_gives_way(nice: int, expected: int) -> None:
    """Also in a process that gives way more than that: only root could take it back."""
    code = GIVES_WAY.format(nice=f"{nice} - os.nice(0)" if nice else 0)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(process.stdout) == expected


class Failing:
    """A step that raises as often as it is told to."""

    def __init__(self, times: float) -> None:
        self.left, self.calls = times, 0

    def __call__(self) -> float | None:
        """Raise, or be done."""
        self.calls += 1
        self.left -= 1
        if self.left >= 0:
            raise ZeroDivisionError("by chance")
        return None


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a retry."""
    monkeypatch.setattr(runtime, "RETRY", 0.001)


@pytest.mark.parametrize("kind", [ThreadRuntime, SharedThreads])
def test_a_step_that_raises_is_logged_and_called_again(
    kind: Callable[[], ThreadRuntime], caplog: pytest.LogCaptureFixture
) -> None:
    """With its traceback and the name of its worker, and counted."""
    caplog.set_level(logging.ERROR, "belated.service")
    step, before = Failing(3), runtime.failures["belated test"]
    worker = kind().start_worker("belated test", step)
    eventually(lambda: step.calls == 4)
    worker.stop()
    assert runtime.failures["belated test"] == before + 3
    assert len(caplog.records) == 3
    for record in caplog.records:
        assert vars(record)["worker"] == "belated test"
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError


def test_a_worker_that_fails_does_not_stop_others_of_its_thread() -> None:
    """They are called as often as they asked for, before it and behind it."""
    threads = SharedThreads()
    counts = itertools.count(), itertools.count()
    first = threads.start_worker("belated first", lambda: next(counts[0]) * 0.0 + 0.001)
    failing = threads.start_worker("belated failing", Failing(float("inf")))
    last = threads.start_worker("belated last", lambda: next(counts[1]) * 0.0 + 0.001)
    eventually(lambda: all(next(counter) > 50 for counter in counts))
    for worker in (first, failing, last):
        worker.stop()
    threads.stop()


def test_a_step_is_retried_less_and_less_often_though_it_is_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred wake-ups within the pause are no attempt."""
    monkeypatch.setattr(runtime, "RETRY", 600.0)
    monkeypatch.setattr(runtime, "MAX_RETRY", 600.0)
    step = Failing(float("inf"))
    worker = ThreadRuntime().start_worker("belated test", step)
    eventually(lambda: step.calls == 1)
    for _ in range(100):
        worker.wake()
    worker.stop()
    assert step.calls == 1


@pytest.mark.parametrize("kind", [ThreadRuntime, SharedThreads])
def test_a_worker_that_fails_for_long_is_dead_until_it_works_again(
    kind: Callable[[], ThreadRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at its first failure; and not once it was stopped."""
    step = Failing(float("inf"))
    worker = kind().start_worker("belated test", step)
    eventually(lambda: step.calls > 2)
    assert dead_workers() == {}
    monkeypatch.setattr(runtime, "DEAD", 0.0)
    assert dead_workers() == {"belated test": "it has failed for 0 seconds"}
    step.left = 0
    eventually(lambda: dead_workers() == {})
    step.left = float("inf")
    worker.wake()
    eventually(lambda: dead_workers() != {})
    worker.stop()
    assert dead_workers() == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_whose_thread_has_ended_is_dead() -> None:
    """Nothing calls its step any more."""

    def step() -> None:
        raise SystemExit

    worker = ThreadRuntime().start_worker("belated test", step)
    eventually(lambda: "belated test" not in [thread.name for thread in threading.enumerate()])
    assert dead_workers() == {"belated test": "its thread has ended"}
    worker.stop()
    assert dead_workers() == {}
