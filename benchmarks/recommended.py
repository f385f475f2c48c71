"""Measure the CPU time of the configuration that README recommends, in this checkout.

``ConversionsOnly``, ``PerArm`` features with eight named fields, ten actions, requests kept
("auto"), floor 0.02. Each checkout measures itself with its own copy of this file, and
benchmarks/interleaved.py compares two of them, so this file uses public names only. It prints a
JSON object: CPU seconds by measurement.

* memory, sqlite, postgres: one ``decide`` and one ``observe`` of a bandit in a program. 30 % of the
  decisions are rewarded, 600 decisions later on average. In memory and on SQLite a decision is
  made every second of a simulated clock. The bandit has made 4,000 decisions before, since a
  young bandit fits its model much more often.
* http: one decision and one reward over HTTP with 4, 32 and 128 connections; CPU time of the
  service, which learns in the same process, until it is idle again. Learning outweighs the
  requests there, so the time of the event loop's thread is listed as well ("loop").
* catch-up: per event, from a SQLite file without a snapshot: ``ConversionsOnly``, and ``Explicit``
  with the same events, alone, with a half-life and with a holdout.
* opening: one bandit from a SQLite file with a snapshot.
* simulate: one round of ``simulate()``.
* plain rows: one ``decide`` and one ``observe`` with ``Explicit``, rows of numbers, in memory.

``build`` writes the files that catch-up and opening read; ``warm`` compiles the kernels.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from open_loop import Answer, Caller

import belated
from belated import (
    Bandit,
    Bernoulli,
    Category,
    ConversionsOnly,
    Decision,
    DelayedUCB,
    Explicit,
    Flag,
    Holdout,
    MemoryJournal,
    Number,
    PerArm,
    PostgresJournal,
    SQLiteJournal,
    Uniform,
    delays,
    environments,
    simulate,
)

HERE = Path(__file__).resolve().parent
ACTIONS = [f"offer {number}" for number in range(10)]
FEATURES = PerArm(
    ACTIONS,
    context={
        "age": Number(18, 90),
        "visits": Number(0, 50),
        "basket": Number(0, 500),
        "hour": Number(0, 24),
        "days_since_last_visit": Number(0, 365),
        "member": Flag(),
        "mobile": Flag(),
        "country": Category(["AT", "DE"]),
    },
)
POLICY = DelayedUCB(floor=0.02)
WINDOW = "4h"
#: For stores with their own clock, where time cannot be simulated.
SHORT_WINDOW = "1m"
#: Start of a simulated clock, and the time between two decisions, in microseconds.
START, SECOND = 1_700_000_000_000_000, 1_000_000
#: Share of decisions that are rewarded, and the mean delay of rewards in decisions.
REWARDED, DELAY = 0.3, 600
CONNECTIONS = (4, 32, 128)
#: Bandits whose catch-up is measured: name and settings.
KINDS: dict[str, dict[str, Any]] = {
    "conversions": {"rewards": ConversionsOnly(WINDOW)},
    "explicit": {"rewards": Explicit(WINDOW)},
    "half-life": {
        "rewards": Explicit(WINDOW),
        "policy": DelayedUCB(floor=0.02, half_life="7d"),
    },
    "holdout": {"rewards": Explicit(WINDOW), "holdout": Holdout(0.1, "uniform")},
}
#: Configuration for ``python -m belated serve``.
CONFIG = """
[store]
address = "{address}"

[server]
port = {port}
learn = true

[bandits.offers]
features = "{features!r}"
rewards = "ConversionsOnly('{window}')"
"""

Seconds = dict[str, float]
Options = argparse.Namespace


class Clock:
    """A simulated clock, in microseconds since 1970."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def contexts(count: int = 256) -> list[dict[str, Any]]:
    """Draw visitors of a shop."""
    rng = np.random.default_rng(0)
    return [
        {
            "age": int(rng.integers(18, 90)),
            "visits": int(rng.integers(0, 50)),
            "basket": round(rng.uniform(0, 500), 2),
            "hour": int(rng.integers(0, 24)),
            "days_since_last_visit": int(rng.integers(0, 365)),
            "member": bool(rng.random() < 0.3),
            "mobile": bool(rng.random() < 0.6),
            "country": str(rng.choice(["AT", "DE"])),
        }
        for _ in range(count)
    ]


def opened(**settings: Any) -> Bandit:
    """Open a bandit with the recommended settings, unless others are given."""
    return Bandit(
        **{
            "policy": POLICY,
            "features": FEATURES,
            "rewards": ConversionsOnly(WINDOW),
            "seed": 1,
            **settings,
        }
    )


class Traffic:
    """Visitors of a bandit, and the rewards of some of them, each when it is due."""

    def __init__(self, bandit: Bandit, clock: Clock | None) -> None:
        self.bandit, self.clock = bandit, clock
        self.visitors = itertools.cycle(contexts())
        self.decisions = self.rewards = 0
        self._rng = np.random.default_rng(1)
        self._pending: list[tuple[float, str]] = []

    def tick(self, decisions: int) -> None:
        """Advance the clock by the time in which this many decisions are made."""
        if self.clock is not None:
            self.clock.now += decisions * SECOND

    def due(self, decisions: list[Decision]) -> list[str]:
        """Draw the rewards of new decisions; return the ids of those that are due by now."""
        for decision in decisions:
            self.decisions += 1
            if self._rng.random() < REWARDED:
                at = self.decisions + self._rng.exponential(DELAY)
                heapq.heappush(self._pending, (at, decision.id))
        ids = []
        while self._pending and self._pending[0][0] <= self.decisions:
            ids.append(heapq.heappop(self._pending)[1])
        self.rewards += len(ids)
        return ids

    def fill(self, count: int, batch: int = 200) -> None:
        """Make this many decisions, and report their rewards, in batches."""
        begin = time.perf_counter()
        for start in range(0, count, batch):
            self.tick(batch)
            requests = list(itertools.islice(self.visitors, batch))
            due = self.due(self.bandit.decide_many(requests))
            self.bandit.observe_many([(id, 1.0) for id in due])
            if start % 20_000 == 0 and count > 20_000:
                remaining = (time.perf_counter() - begin) * (count / (start + batch) - 1)
                text = f"\r{start:,} of {count:,} decisions, {remaining:.0f} s left "
                print(text, end="", file=sys.stderr, flush=True)


def wait_for_kernels() -> None:
    """Wait until the kernels that a bandit has asked for are compiled and loaded."""
    for thread in threading.enumerate():
        if "kernels" in thread.name:
            thread.join()


# --- in a program --------------------------------------------------------------------------------


def rounds(name: str, bandit: Bandit, clock: Clock | None, options: Options) -> Seconds:
    """Measure ``decide`` and ``observe`` of a bandit that has a history."""
    traffic = Traffic(bandit, clock)
    traffic.fill(options.history)
    wait_for_kernels()
    deciding = observing = 0.0
    before = traffic.rewards
    for request in itertools.islice(traffic.visitors, options.rounds):
        traffic.tick(1)
        begin = time.process_time()
        decision = bandit.decide(request)
        deciding += time.process_time() - begin
        for id in traffic.due([decision]):
            begin = time.process_time()
            bandit.observe(id, 1.0)
            observing += time.process_time() - begin
    decide, observe = deciding / options.rounds, observing / (traffic.rewards - before)
    return {name: decide + observe, f"{name}, decide": decide, f"{name}, observe": observe}


def memory(options: Options) -> Seconds:
    clock = Clock()
    bandit = opened(journal=MemoryJournal(clock=clock), clock=clock)
    return rounds("memory", bandit, clock, options)


def sqlite(options: Options) -> Seconds:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        journal = SQLiteJournal(Path(folder, "offers.db"), bandit="offers", clock=clock)
        with opened(journal=journal, clock=clock) as bandit:
            return rounds("sqlite", bandit, clock, options)


def postgres(options: Options) -> Seconds:
    PostgresJournal.create_tables(options.dsn)
    journal = PostgresJournal(options.dsn, bandit="offers")
    with opened(journal=journal, rewards=ConversionsOnly(SHORT_WINDOW)) as bandit:
        return rounds("postgres", bandit, None, options)


def plain_rows(options: Options) -> Seconds:
    rows = np.random.default_rng(0).normal(size=(256, 20, 10)) / 10**0.5
    bandit = Bandit(
        policy=DelayedUCB(10, Bernoulli()), rewards=Explicit("7d"), keep_requests=0.0, seed=1
    )
    begin = 0.0
    for number in range(2 * options.rounds):
        if number == options.rounds:
            wait_for_kernels()
        if number == options.rounds + options.rounds // 10:
            begin = time.process_time()
        bandit.observe(bandit.decide(rows=rows[number % 256]).id, float(number % 2))
    measured = options.rounds - options.rounds // 10
    return {"plain rows": (time.process_time() - begin) / measured}


def simulated(options: Options) -> Seconds:
    world = environments.arms(3, n_arms=len(ACTIONS), width=FEATURES.block)
    policy = DelayedUCB(world.dim, Bernoulli(), floor=0.02)

    def run(horizon: int) -> None:
        simulate(
            policy,
            world,
            delays.Geometric(mean=DELAY),
            horizon=horizon,
            rewards=ConversionsOnly(WINDOW),
        )

    run(50)
    wait_for_kernels()
    begin = time.process_time()
    run(options.rounds)
    return {"simulate": (time.process_time() - begin) / options.rounds}


# --- from files ----------------------------------------------------------------------------------


def build(options: Options) -> Seconds:
    """Write the files that catch-up and opening read, with a fast policy if possible."""
    uniform = {"policy": Uniform(FEATURES.dim, Bernoulli()), "rewards": Explicit(WINDOW)}
    for name, settings in (
        ("catch-up", uniform),
        ("holdout", KINDS["holdout"]),
        ("opening", uniform),
    ):
        clock, path = Clock(), options.folder / f"{name}.db"
        journal = SQLiteJournal(path, bandit="offers", clock=clock)
        traffic = Traffic(opened(journal=journal, clock=clock, **settings), clock)
        traffic.fill(options.opened if name == "opening" else options.events)
        events = traffic.decisions + traffic.rewards
        path.with_suffix(".json").write_text(json.dumps({"events": events, "now": clock.now}))
        journal.close()  # without a snapshot
        if name == "opening":
            journal = SQLiteJournal(path, bandit="offers", clock=clock)
            opened(journal=journal, clock=clock).close()
    return {}


def _open(path: Path, kind: str, options: Options) -> tuple[float, int]:
    """Open a copy of a file; return the CPU seconds and the number of its events."""
    opened()  # loads the kernels
    wait_for_kernels()
    metadata = json.loads(path.with_suffix(".json").read_text())
    clock = Clock(metadata["now"])
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for file in path.parent.glob(f"{path.name}*"):  # its write-ahead log too
            shutil.copy(file, folder)
        begin = time.process_time()
        journal = SQLiteJournal(Path(folder, path.name), bandit="offers", clock=clock)
        bandit = opened(journal=journal, clock=clock, **KINDS[kind])
        seconds = time.process_time() - begin
        bandit.journal.close()
    return seconds, metadata["events"]


def catch_up(options: Options) -> Seconds:
    costs = {}
    for kind in KINDS:
        name = kind if kind == "holdout" else "catch-up"
        seconds, events = _open(options.folder / f"{name}.db", kind, options)
        costs[f"catch-up, {kind}"] = seconds / events
    return costs


def opening(options: Options) -> Seconds:
    return {"opening": _open(options.folder / "opening.db", "conversions", options)[0]}


# --- over HTTP -----------------------------------------------------------------------------------


class Service:
    """The service in a separate process.

    Args:
        address: of the store.
        folder: for its configuration.
    """

    def __init__(self, address: str, folder: Path) -> None:
        sys.path.append(str(HERE.parent))
        from tests.ports import free_port

        self.port = free_port()
        config = CONFIG.format(
            address=address, port=self.port, features=FEATURES, window=SHORT_WINDOW
        )
        (folder / "belated.toml").write_text(config)
        command = [sys.executable, "-m", "belated", "serve", str(folder / "belated.toml")]
        command += ["--create-tables", "--log-level", "error"]
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + 120
        while not self._is_ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.stop()
                raise RuntimeError("the service did not start")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            urlopen(f"http://127.0.0.1:{self.port}/livez", timeout=30).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(60)

    def cpu(self) -> float:
        """Return the CPU seconds of all its threads so far."""
        clock = (~self._process.pid << 3) | 2  # on Linux, as in clock_getcpuclockid(3)
        return time.clock_gettime(clock)

    def event_loop_cpu(self) -> float:
        """Return the CPU seconds so far of the thread that parses, chooses and answers."""
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def settle(self) -> None:
        """Wait until the service has learned everything and is idle."""
        before, after = -1.0, self.cpu()
        while after - before > 0.02:
            time.sleep(0.5)
            before, after = after, self.cpu()


@contextmanager
def service(address: str) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        running = Service(address.format(folder=folder), Path(folder))
        try:
            yield running
        finally:
            running.stop()


def http(options: Options) -> Seconds:
    costs, count = {}, 2 * options.rounds
    with service(options.address) as server:
        caller = Caller(server.port)
        visitors = [json.dumps({"context": context, "actions": ACTIONS}) for context in contexts()]
        bodies = itertools.cycle(body.encode() for body in visitors)

        async def decide(connections: int, count: int) -> list[str]:
            path = "/v1/offers/decisions"
            requests = [("POST", path, body) for body in itertools.islice(bodies, count)]
            answers = await _ask_all(caller, requests, connections)
            return [json.loads(answer.body)["id"] for answer in answers]

        async def reward(connections: int, ids: list[str]) -> None:
            requests = [
                ("PUT", f"/v1/offers/decisions/{id}/reward", b'{"value":1.0}') for id in ids
            ]
            await _ask_all(caller, requests, connections)

        async def measure() -> None:
            await reward(32, (await decide(32, count))[::2])
            await asyncio.to_thread(server.settle)
            for connections in CONNECTIONS:
                before, loop_before = server.cpu(), server.event_loop_cpu()
                ids = await decide(connections, count)
                await asyncio.to_thread(server.settle)
                middle, loop_middle = server.cpu(), server.event_loop_cpu()
                await reward(connections, ids[::2])
                await asyncio.to_thread(server.settle)
                after, loop_after = server.cpu(), server.event_loop_cpu()
                decided, rewarded = len(ids), len(ids[::2])
                for name, seconds in (
                    (f"http decide, {connections}", (middle - before) / decided),
                    (f"http decide, {connections}, loop", (loop_middle - loop_before) / decided),
                    (f"http reward, {connections}", (after - middle) / rewarded),
                    (f"http reward, {connections}, loop", (loop_after - loop_middle) / rewarded),
                ):
                    costs[name] = seconds

        asyncio.run(measure())
    return costs


async def _ask_all(
    caller: Caller, requests: list[tuple[str, str, bytes]], connections: int
) -> list[Answer]:
    """Send all requests over these connections, each as soon as one is idle."""
    remaining, answers = iter(requests), []

    async def ask() -> None:
        for method, path, body in remaining:
            answer = await caller.ask(method, path, body, time.perf_counter())
            if answer.status not in (201, 202):
                raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:200]!r}")
            answers.append(answer)

    await asyncio.gather(*(ask() for _ in range(connections)))
    return answers


def warm(options: Options) -> Seconds:
    """Compile the kernels, so that no measurement waits for them."""
    opened()
    wait_for_kernels()
    return {}


ACTS: dict[str, Callable[[Options], Seconds]] = {
    "warm": warm,
    "build": build,
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "http": http,
    "catch-up": catch_up,
    "opening": opening,
    "simulate": simulated,
    "plain-rows": plain_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=ACTS)
    parser.add_argument("--rounds", type=int, default=1_500)
    parser.add_argument("--history", type=int, default=4_000, help="earlier decisions")
    parser.add_argument("--events", type=int, default=50_000, help="decisions to catch up")
    parser.add_argument("--opened", type=int, default=1_000_000, help="decisions to open")
    parser.add_argument("--folder", type=Path, help="of what build writes")
    parser.add_argument("--dsn", help="an empty database on PostgreSQL")
    parser.add_argument(
        "--address", default="sqlite:///{folder}/offers.db", help="the store of the service"
    )
    parser.add_argument("--uncompiled", action="store_true", help="do not load numba: to try it")
    options = parser.parse_args()
    if options.uncompiled:
        sys.modules["numba"] = None  # type: ignore[assignment]
    if not Path(belated.__file__).is_relative_to(HERE.parent):
        sys.exit(f"belated is imported from {belated.__file__}, not from {HERE.parent}")
    warnings.simplefilter("ignore")
    print(json.dumps(ACTS[options.act](options)))


if __name__ == "__main__":
    main()
