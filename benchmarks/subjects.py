"""CPU time of a decision for a subject, and of a sticky one, compared with a plain one.

The configuration is the one that README recommends (benchmarks/recommended.py). One bandit decides
in slices: without subjects, for new subjects, and again for these with ``sticky``; the order
alternates. In memory and on SQLite the calling thread is measured during ``decide``; fits in the
background, which are the same for all, are left out. Over HTTP it is the service, which learns in
the same process, until it is idle again. Prints medians, and the median and quartiles of the ratios
to the plain decisions of the same round.

Run: python benchmarks/subjects.py [--rounds 15] [--slice 200] [--only memory http]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from open_loop import Caller
from recommended import (
    ACTIONS,
    Clock,
    Traffic,
    _ask_all,
    contexts,
    opened,
    service,
    wait_for_kernels,
)

from belated import Decision, MemoryJournal, SQLiteJournal
from belated.journals import Journal

KINDS = ("plain", "subject", "repeated")
CONNECTIONS = 32
#: CPU seconds of each slice, by kind.
Slices = dict[str, list[float]]


def rounds(count: int, measure: Callable[[str, int], float]) -> Slices:
    """Measure slices in turn, and show progress."""
    slices: Slices = {kind: [] for kind in KINDS}
    for number in range(count):
        order = ("plain", "subject") if number % 2 else ("subject", "plain")
        for kind in (*order, "repeated"):
            slices[kind].append(measure(kind, number))
        print(f"\rround {number + 1} of {count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return slices


def in_program(journal: Journal, clock: Clock, options: argparse.Namespace) -> Slices:
    """Measure ``decide``; rewards arrive in between."""
    with opened(journal=journal, clock=clock) as bandit:
        traffic = Traffic(bandit, clock)
        traffic.fill(options.history)
        wait_for_kernels()

        def measure(kind: str, number: int) -> float:
            seconds = 0.0
            for n, request in enumerate(itertools.islice(traffic.visitors, options.slice)):
                traffic.tick(1)
                named = {} if kind == "plain" else {"subject": f"user-{number}-{n}"}
                if kind == "repeated":
                    named["sticky"] = "1d"
                begin = time.thread_time()
                decision: Decision = bandit.decide(request, **named)  # type: ignore[arg-type]
                seconds += time.thread_time() - begin
                bandit.observe_many(
                    [(id, 1.0) for id in traffic.due([] if "sticky" in named else [decision])]
                )
            return seconds / int(options.slice)

        return rounds(options.rounds, measure)


def memory(options: argparse.Namespace) -> Slices:
    clock = Clock()
    return in_program(MemoryJournal(clock=clock), clock, options)


def sqlite(options: argparse.Namespace) -> Slices:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        journal = SQLiteJournal(Path(folder, "offers.db"), bandit="offers", clock=clock)
        return in_program(journal, clock, options)


def http(options: argparse.Namespace) -> Slices:
    visitors = itertools.cycle(contexts())
    with service("sqlite:///{folder}/offers.db") as server:
        caller = Caller(server.port)

        def bodies(kind: str, number: int) -> Iterator[bytes]:
            for n in range(options.slice):
                body = {"context": next(visitors), "actions": ACTIONS}
                if kind != "plain":
                    body["subject"] = f"user-{number}-{n}"
                if kind == "repeated":
                    body["sticky"] = "1d"
                yield json.dumps(body).encode()

        def measure(kind: str, number: int) -> float:
            requests = [("POST", "/v1/offers/decisions", body) for body in bodies(kind, number)]
            before = server.cpu()
            loop.run_until_complete(_ask_all(caller, requests, CONNECTIONS))
            server.settle()
            return float(server.cpu() - before) / int(options.slice)

        loop = asyncio.new_event_loop()
        for warming in range(-3, 0):
            measure("plain", warming)
        slices = rounds(options.rounds, measure)
        loop.run_until_complete(asyncio.sleep(0))
        caller.close()
        loop.close()
    return slices


ACTS = {"memory": memory, "sqlite": sqlite, "http": http}


def report(name: str, found: Slices) -> None:
    """Print one line for each kind."""
    for kind in KINDS:
        ratios = [
            seconds / plain for seconds, plain in zip(found[kind], found["plain"], strict=True)
        ]
        low, middle, high = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        )
        micros = 1e6 * statistics.median(found[kind])
        print(
            f"{name:<6} {kind:<9} {micros:7.1f} µs, × {middle:.3f} ({low:.3f} to {high:.3f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice", type=int, default=200, help="decisions in a slice")
    parser.add_argument("--history", type=int, default=4_000, help="earlier decisions")
    parser.add_argument("--only", nargs="*", choices=ACTS, default=list(ACTS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.only:
        report(name, ACTS[name](options))


if __name__ == "__main__":
    main()
