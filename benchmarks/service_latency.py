"""Latency of single decisions: at half of the service's capacity, and alongside heavy work.

The load is open-loop: a latency counts from the moment a request was due. First wrk finds how many
decisions per second one decider can make; then requests are sent at half that rate: to an echo,
which shows the limits of the machine and the generator; to the service alone, alongside batches of
100, and alongside a learner that repeatedly fits a million rewards. The phases are repeated several
times, so that other load on the machine affects all of them.

Run: python benchmarks/service_latency.py [--rounds 3] [--rewards 1000000] [--together]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import uvloop
from open_loop import Caller, at_rate, quantiles
from service import POST, Load, rows
from service_apps import DIM, OFFERS
from service_processes import Server

from belated.core.events import Decision, Reward
from belated.core.ids import new_id
from belated.journals import PostgresJournal

# Importable because service_processes.py extends the path.
from tests.integration.postgres_server import database

#: Batches per second alongside single decisions.
BATCHES = 5
_DECIDE = "/v1/offers/decisions"


def saturation(service: Server, folder: Path) -> float:
    """Return the decisions per second at 128 connections."""
    body = json.dumps({"rows": rows()[0]})
    load = Load(folder, "decide", POST.format(body=body), _DECIDE)
    load.run(service, 128, 2)  # the first one warms up
    return float(np.median([load.run(service, 128, 3)[0] for _ in range(3)]))


def fill(dsn: str, rewards: int) -> None:
    """Fill a journal with this many decisions and their rewards."""
    rng = np.random.default_rng(0)
    journal = PostgresJournal(dsn, bandit=OFFERS.name, partitions=OFFERS.partitions)
    for start in range(0, rewards, 2_000):
        now = time.time_ns() // 1000
        x = rng.normal(size=(2_000, DIM)).astype(np.float32)
        ids = [new_id(now) for _ in range(2_000)]
        journal.append([Decision(id, now, 0, 0, x[n], 0.5, 0.5, 0) for n, id in enumerate(ids)])
        values = (rng.random(2_000) < 0.3).astype(float).tolist()
        journal.append([Reward(*fields) for fields in zip(ids, [now] * 2_000, values, strict=True)])
        print(f"\r{start + 2_000:,} of {rewards:,} rewards", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    journal.close()


def catch_up(learner: Server, rewards: int) -> None:
    """Wait until the learner has learned all rewards."""
    name = 'belated_learner_events_total{bandit="offers",status="rewarded"}'
    while (learned := learner.metrics().get(name, 0.0)) < rewards:
        print(f"\r{learned:,.0f} of {rewards:,} learned", end="", file=sys.stderr, flush=True)
        time.sleep(1)
    print(file=sys.stderr)


async def singles(
    service: Server, rate: float, seconds: float, beside: Callable[[], Awaitable[None]] | None
) -> list[float]:
    """Return the latency of each decision."""
    caller = Caller(service.port)
    bodies = [json.dumps({"rows": table}).encode() for table in rows(64)]
    latencies: list[float] = []

    async def ask(number: int, due: float) -> None:
        answer = await caller.ask("POST", _DECIDE, bodies[number % 64], due)
        if answer.status != 201:
            raise RuntimeError(f"{answer.status}: {answer.body[:200]!r}")
        latencies.append(answer.seconds)

    background = None if beside is None else asyncio.ensure_future(beside())
    await at_rate(rate, seconds, ask, seed=int(time.time()))
    if background is not None:
        await background
    caller.close()
    return latencies


async def batches(service: Server, seconds: float) -> None:
    """Send batches of a hundred requests."""
    caller = Caller(service.port)
    body = json.dumps({"requests": [{"rows": table} for table in rows(100)]}).encode()

    async def ask(_: int, due: float) -> None:
        answer = await caller.ask("POST", f"{_DECIDE}/batch", body, due)
        if answer.status != 201:
            raise RuntimeError(f"{answer.status}: {answer.body[:200]!r}")

    await at_rate(BATCHES, seconds, ask)
    caller.close()


async def measure(
    echo: Server, service: Server, fitter: Server | None, rate: float, rounds: int, seconds: float
) -> None:
    phases: dict[str, list[list[float]]] = {}
    for count in range(rounds):
        print(f"\r{count} of {rounds} rounds", end="", file=sys.stderr, flush=True)
        phases.setdefault("an echo", []).append(await singles(echo, rate, seconds, None))
        alone = await singles(service, rate, seconds, None)
        phases.setdefault("alone", []).append(alone)
        latencies = await singles(service, rate, seconds, lambda: batches(service, seconds))
        phases.setdefault("beside batches", []).append(latencies)
        if fitter is not None:
            fitter.process.send_signal(signal.SIGUSR1)  # fit, until told to stop
            latencies = await singles(service, rate, seconds, None)
            phases.setdefault("beside fits", []).append(latencies)
            fitter.process.send_signal(signal.SIGUSR2)
            await asyncio.sleep(3)
    print(file=sys.stderr)
    base = [float(np.quantile(phase, 0.99)) for phase in phases["alone"]]
    for name, parts in phases.items():
        p99 = [float(np.quantile(phase, 0.99)) for phase in parts]
        ratios = np.median(np.array(p99) / np.array(base))
        listing = ", ".join(f"{1e3 * quantile:.1f}" for quantile in p99)
        whole = quantiles([second for part in parts for second in part])
        print(f"{name}: {whole}; p99 of each round: {listing} ms; {ratios:.2f}x of alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rewards", type=int, default=1_000_000, help="0: without the learner")
    parser.add_argument("--together", action="store_true", help="learn in the decider's process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, database() as dsn:
        if arguments.rewards:
            fill(dsn, arguments.rewards)
        with ExitStack() as stack:
            service = stack.enter_context(Server("both" if arguments.together else "service", dsn))
            fitter = service if arguments.together else None
            if arguments.rewards:
                fitter = fitter or stack.enter_context(Server("learner", dsn))
                catch_up(fitter, arguments.rewards)
            most = saturation(service, Path(name))
            rate = most / 2
            print(f"one decider, saturated: {most:,.0f} decisions/s; now half of it, {rate:,.0f}/s")
            echo = stack.enter_context(Server("echo", dsn))
            uvloop.run(measure(echo, service, fitter, rate, arguments.rounds, arguments.seconds))
            if fitter is not None:
                metrics = fitter.metrics()
                took = metrics['belated_fit_seconds_sum{bandit="offers"}']
                fits = metrics['belated_fit_seconds_count{bandit="offers"}']
                print(f"{fits:.0f} fits of {took / fits:.2f} s")


if __name__ == "__main__":
    main()
