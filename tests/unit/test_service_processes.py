"""Server processes and their supervisor, with small programs in place of the service."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import Metric

from belated.service.http import processes
from belated.service.http.processes import Supervised, Supervisor, cores
from belated.service.operating.metrics import CombinedMetrics, Value, metric_of

#: Replies to polls, with the number of its start as a counter.
SERVER = """
import sys, time
from multiprocessing.connection import Connection
from pathlib import Path
from prometheus_client.core import CounterMetricFamily

starts = Path({starts!r}) / sys.argv[1]
with starts.open("a") as file:
    file.write("x")
start = len(starts.read_text())
polls = Connection(int(sys.argv[3]))
decisions = CounterMetricFamily("belated_decisions", "", labels=["bandit"])
decisions.add_metric(["offers"], start)
{first}
while True:
    polls.send([decisions])
    polls.recv()
"""


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as created:
        yield created


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Restore the signal handlers."""
    numbers = signal.SIGTERM, signal.SIGINT
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def supervisor(
    listening: socket.socket, starts: Path, first: str = "", count: int = 2
) -> Supervisor:
    """A supervisor of processes that run `first` when they start."""
    program = SERVER.format(starts=str(starts), first=first)
    return Supervisor([sys.executable, "-c", program], count, listening)


def values(metrics: list[Metric]) -> dict[str, float]:
    """The values by name, without labels."""
    return {sample.name: sample.value for metric in metrics for sample in metric.samples}


def stop_when(supervisor: Supervisor, name: str, value: float) -> None:
    """Send SIGTERM once a metric has a value, or after a minute."""

    def watch() -> None:
        for _ in range(600):
            if values(supervisor.metrics().collect()).get(name) == value:
                break
            threading.Event().wait(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch).start()


def test_a_process_that_ends_is_restarted_and_its_counters_remain(
    listening: socket.socket, tmp_path: Path
) -> None:
    """The first start of process 1 ends once it is polled: 1 + 1 + 2 decisions."""
    script = (
        "if sys.argv[1] == '1' and start == 1: polls.send([decisions]); polls.recv(); sys.exit()"
    )
    running = supervisor(listening, tmp_path, script)
    stop_when(running, "belated_decisions_total", 4.0)
    assert running.run() == 0
    assert (tmp_path / "0").read_text() == "x"
    assert (tmp_path / "1").read_text() == "xx"
    assert values(running.metrics().collect())["belated_process_restarts_total"] == 1


def test_a_process_that_does_not_respond_is_killed(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it hangs, the other one is polled."""
    for name, seconds in (("POLL", 0.2), ("REPLY", 0.2), ("HUNG", 1.0)):
        monkeypatch.setattr(processes, name, seconds)
    hang = "if sys.argv[1] == '1' and start == 1: polls.send([decisions]); time.sleep(3600)"
    running = supervisor(listening, tmp_path, hang)
    stop_when(running, "belated_decisions_total", 4.0)
    assert running.run() == 0
    assert (tmp_path / "1").read_text() == "xx"


def test_if_no_process_can_start_the_supervisor_ends_with_their_code(
    listening: socket.socket, tmp_path: Path
) -> None:
    """As a single process would."""
    running = supervisor(listening, tmp_path, "sys.exit(2)")
    assert running.run() == 2
    assert listening.fileno() == -1


def test_a_process_that_cannot_stop_is_a_failure(listening: socket.socket, tmp_path: Path) -> None:
    """One of them is killed while it stops."""
    script = "import signal; signal.signal(15, lambda *_: signal.raise_signal(9))"
    running = supervisor(listening, tmp_path, script)
    stop_when(running, "belated_processes", 2.0)
    assert running.run() == 1


def test_pauses_before_restarts_double() -> None:
    """Up to a limit, and from the start again after a process has run for a while."""
    slot = processes._Slot([])
    slot.due = time.monotonic()
    pauses = []
    for _ in range(8):
        pauses.append(slot.postpone())
        slot.due -= pauses[-1]  # it has started, and has ended at once
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    slot.due -= 5.1
    assert slot.postpone() == 0.1


def test_log_lines_of_processes_do_not_mix(
    listening: socket.socket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Even if they are long and are written in pieces, and the last one is not finished."""
    write = """
for _ in range(50):
    for _ in range(8):
        sys.stderr.write(sys.argv[1] * 4096)
        sys.stderr.flush()
    sys.stderr.write("\\n")
sys.stderr.write("end")
sys.stderr.flush()
"""
    running = supervisor(listening, tmp_path, write)
    stop_when(running, "belated_processes", 2.0)
    assert running.run() == 0
    for thread in threading.enumerate():
        if thread.name == "belated log":
            thread.join(30)
    lines = capfd.readouterr().err.splitlines()
    expected = ["0" * 32_768] * 50 + ["1" * 32_768] * 50 + ["end"] * 2
    assert sorted(line for line in lines if not line.startswith("{")) == expected


def test_values_are_combined_by_the_rule_of_their_metric() -> None:
    """Counters add up, except those of the whole journal; gauges are the worst of all."""
    samples: list[dict[str, Value]] = [
        {
            "belated_decisions": {"offers": 5},
            "belated_learner_events": {"offers": {"decided": 9}},
            "belated_model_age_seconds": {"offers": 3.0},
            "belated_model_version": {"offers": 70},
            "belated_spool_events": {"offers": 2},
        },
        {
            "belated_decisions": {"offers": 7, "mails": 1},
            "belated_learner_events": {"offers": {"decided": 4}},
            "belated_model_age_seconds": {"offers": 8.0},
            "belated_model_version": {"offers": 60},
            "belated_spool_events": {"offers": 3},
        },
    ]
    combined = CombinedMetrics(
        [[metric_of(*item) for item in sample.items()] for sample in samples]
    )
    assert {
        (sample.name, *sample.labels.values()): sample.value
        for metric in combined.collect()
        for sample in metric.samples
    } == {
        ("belated_decisions_total", "offers"): 12,
        ("belated_decisions_total", "mails"): 1,
        ("belated_learner_events_total", "offers", "decided"): 9,
        ("belated_model_age_seconds", "offers"): 8,
        ("belated_model_version", "offers"): 60,
        ("belated_spool_events", "offers"): 5,
    }


def test_a_process_with_a_dead_worker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the supervisor starts another one."""
    assert stops(monkeypatch, dead={"belated commits": "its thread has ended"})


def test_a_process_stops_when_its_supervisor_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would stop or restart it."""
    assert stops(monkeypatch, dead={})


def stops(monkeypatch: pytest.MonkeyPatch, dead: dict[str, str]) -> bool:
    """Whether a process stops after one poll, unless its supervisor closes the pipe."""
    polls, child_end = Pipe()
    stopped = threading.Event()
    supervised = object.__new__(Supervised)
    supervised._polls = child_end
    loop: Any = SimpleNamespace(call_soon_threadsafe=lambda work: work())
    metrics: Any = SimpleNamespace(snapshot=lambda scraped: [scraped])
    with ThreadPoolExecutor() as pool:
        pool.submit(supervised._follow, metrics, stopped.set, loop)
        assert polls.recv() == [False]
        polls.send(True)
        assert polls.recv() == [True]
        assert not stopped.is_set()
        if dead:
            monkeypatch.setattr(processes, "dead_workers", lambda: dead)
            polls.send(False)
        else:
            polls.close()
    return stopped.is_set()


@pytest.mark.parametrize(("limit", "at_most"), [("150000 100000", 2), ("100 100000", 1)])
def test_the_number_of_cores_is_limited_by_the_container(
    limit: str, at_most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit is rounded up."""
    file = tmp_path / "cpu.max"
    monkeypatch.setattr(processes, "CPU_LIMIT", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert cores() == 8
    file.write_text("max 100000\n")
    assert cores() == 8
    file.write_text(limit)
    assert cores() == at_most
