"""Latency of decisions at low load, which is what most services have.

The service runs the configuration that README recommends (benchmarks/recommended.py) on a
PostgreSQL server that syncs commits, and learns in the same process. 30 % of the decisions are
rewarded at once. Three loads: one connection that waits for each response, and open loops of 50 and
500 decisions/s. Two references are measured at the same pace: an echo of the same request, and a
bare commit (one row inserted by psycopg on the same server). Slices alternate, so that other load
on the machine affects all three. A latency counts from the moment the request is sent. Commits are
made one after the other, even if the disk is too slow for the rate.

Prints p50 and p99, and the ratio of p50 to the sum of the p50 of echo and commit; the goal is 1.5.

Run: python benchmarks/low_load.py [--slices 5] [--seconds 10] [--rates 50 500]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable

import numpy as np
import psycopg
from open_loop import Caller, at_rate
from recommended import ACTIONS, REWARDED, contexts, service
from service_processes import Server

# Importable because service_processes.py extends the path.
from tests.integration.postgres_server import PostgresServer

GOAL = 1.5
#: Size of the row of a bare commit: about that of a decision with its request.
ROW = bytes(600)
#: Makes one request or commit; returns its seconds.
Ask = Callable[[], Awaitable[float]]


def echoing(caller: Caller, bodies: list[bytes]) -> Ask:
    """Return a function that calls the echo."""
    requests = itertools.cycle(bodies)

    async def ask() -> float:
        answer = await caller.ask("POST", "/", next(requests), time.perf_counter())
        assert answer.status == 201, answer.body
        return answer.seconds

    return ask


def deciding(caller: Caller, bodies: list[bytes]) -> Ask:
    """Return a function that requests a decision and rewards some; rewards are not timed."""
    requests, draws = itertools.cycle(bodies), random.Random(1)
    path = "/v1/offers/decisions"

    async def ask() -> float:
        decision = await caller.ask("POST", path, next(requests), time.perf_counter())
        assert decision.status == 201, decision.body
        if draws.random() < REWARDED:
            id = json.loads(decision.body)["id"]
            reward = await caller.ask("PUT", f"{path}/{id}/reward", b'{"value":1.0}', 0.0)
            assert reward.status == 202, reward.body
        return decision.seconds

    return ask


def committing(connection: psycopg.Connection) -> Ask:
    """Return a function that inserts a row and commits, while this process does nothing else."""
    connection.execute("CREATE TABLE bare (place bigserial PRIMARY KEY, event bytea)")

    async def ask() -> float:
        begin = time.perf_counter()
        connection.execute("INSERT INTO bare (event) VALUES (%s)", (ROW,), prepare=True)
        return time.perf_counter() - begin

    return ask


async def closed_loop(ask: Ask, seconds: float) -> list[float]:
    """Repeat, each time after the response."""
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        took.append(await ask())
    return took


async def open_loop(ask: Ask, rate: float, seconds: float) -> list[float]:
    """Send requests at random moments, however slow the responses are."""
    took = []

    async def note(number: int, due: float) -> None:
        took.append(await ask())

    await at_rate(rate, seconds, note)
    return took


async def measure(
    asks: dict[str, Ask], rates: list[float], slices: int, seconds: float
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of all responses, by load and kind; one slice before warms up."""
    loads: dict[str, Callable[[Ask], Awaitable[list[float]]]] = {
        "one connection": lambda ask: closed_loop(ask, seconds)
    }
    for rate in rates:
        loads[f"{rate:g}/s"] = lambda ask, rate=rate: open_loop(ask, rate, seconds)  # type: ignore[misc]
    results: dict[str, dict[str, list[float]]] = {
        load: {name: [] for name in asks} for load in loads
    }
    for number in range(slices + 1):
        remaining = (slices + 1 - number) * len(loads) * len(asks) * seconds
        text = f"\r{number} of {slices + 1} slices, {remaining:.0f} s left "
        print(text, end="", file=sys.stderr, flush=True)
        for load, run in loads.items():
            for name, ask in asks.items():
                took = await run(ask)
                if number:
                    results[load][name] += took
    print(file=sys.stderr)
    return results


def report(found: dict[str, dict[str, list[float]]]) -> None:
    """Print p50 and p99 in milliseconds."""
    print(f"| load | {' | '.join(next(iter(found.values())))} | p50 / (echo + commit) |")
    print("|---|" + "--:|" * 4)
    for load, times in found.items():
        quantiles = {name: np.quantile(took, [0.5, 0.99]) for name, took in times.items()}
        cells = [f"p50 {1e3 * p50:.2f}, p99 {1e3 * p99:.2f}" for p50, p99 in quantiles.values()]
        ratio = quantiles["decide"][0] / (quantiles["echo"][0] + quantiles["commit"][0])
        print(f"| {load} | {' | '.join(cells)} | {ratio:.2f} |")
    print(f"in ms; the goal of the ratio is at most {GOAL}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rates", type=float, nargs="*", default=[50.0, 500.0])
    arguments = parser.parse_args()
    visitors = [json.dumps({"context": context, "actions": ACTIONS}) for context in contexts()]
    bodies = [body.encode() for body in visitors]
    postgres = PostgresServer()
    try:
        with (
            service(postgres.dsn) as deciders,
            Server("echo", postgres.dsn) as echo,
            psycopg.connect(postgres.dsn, autocommit=True) as connection,
        ):
            deciders.settle()  # the kernels are loaded
            asks = {
                "echo": echoing(Caller(echo.port), bodies),
                "commit": committing(connection),
                "decide": deciding(Caller(deciders.port), bodies),
            }
            rates, slices, seconds = arguments.rates, arguments.slices, arguments.seconds
            report(asyncio.run(measure(asks, rates, slices, seconds)))
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
