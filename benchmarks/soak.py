"""Two deciders, a learner and PostgreSQL under load for minutes: errors, memory, lag.

Decisions are requested at random moments, in an open loop, alternating between the deciders and
bandits, with an API key; half of them get a reward, some seconds later. The window is a minute.
A line is printed every ten seconds.

Run: python benchmarks/soak.py [MINUTES] [--bandits 100] [--rate 500]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import Counter
from contextlib import suppress

import msgspec
import numpy as np
import uvloop
from open_loop import Answer, Caller, at_rate, quantiles
from service import rows
from service_processes import Server

from belated.journals import open_store

# Importable because service_processes.py extends the path.
from tests.integration.keyrings import make
from tests.integration.postgres_server import database

#: Seconds between two lines, and the mean delay of a reward.
EVERY, DELAY = 10, 10.0
_LAG = re.compile(r'belated_fold_lag_seconds_bucket{bandit="b\d+",le="(.*)"}')
_PENDING = "belated_pending_decisions{"


class Soak:
    """The load, and its results."""

    def __init__(self, deciders: list[Server], learner: Server, bandits: int, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._callers = [Caller(server.port, headers=headers) for server in deciders]
        self._bandits = bandits
        self._processes = [*deciders, learner]
        self._rng = np.random.default_rng(1)
        self._bodies = [json.dumps({"rows": table}).encode() for table in rows(64)]
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.seconds: list[float] = []
        self.failed: list[bytes] = []
        self.rewarding: set[asyncio.Task[None]] = set()

    async def decide(self, number: int, due: float) -> None:
        """Request a decision, and report its reward with some probability."""
        caller = self._callers[number % 2]
        body = self._bodies[number % len(self._bodies)]
        bandit = number // 2 % self._bandits
        answer = await caller.ask("POST", f"/v1/b{bandit}/decisions", body, due)
        self._note("decide", 201, answer)
        if answer.status == 201 and self._rng.random() < 0.5:
            id = msgspec.json.decode(answer.body)["id"]
            path = f"/v1/b{bandit}/decisions/{id}/reward"
            task = asyncio.ensure_future(self._reward(self._callers[(number + 1) % 2], path))
            self.rewarding.add(task)
            task.add_done_callback(self.rewarding.discard)

    async def _reward(self, caller: Caller, path: str) -> None:
        await asyncio.sleep(self._rng.exponential(DELAY))
        value = b'{"value":1}' if self._rng.random() < 0.3 else b'{"value":0}'
        due = asyncio.get_running_loop().time()
        self._note("reward", 202, await caller.ask("PUT", path, value, due))

    def _note(self, what: str, right: int, answer: Answer) -> None:
        self.statuses[what, answer.status] += 1
        if what == "decide":
            self.seconds.append(answer.seconds)
        if answer.status != right:
            self.failed.append(answer.body[:200])

    async def report(self) -> None:
        """Print a line periodically."""
        print("| s | requests | failed | decide, ms | deciders, MB | learner, MB | pending |")
        print("|--:|--:|--:|---|---|--:|--:|")
        for count in range(1, 10**6):
            await asyncio.sleep(EVERY)
            metrics = await asyncio.to_thread(self._processes[-1].metrics)
            seconds, self.seconds = self.seconds or [0.0], []
            first, second, learner = (process.resident() / 1e6 for process in self._processes)
            total = sum(self.statuses.values())
            pending = sum(value for name, value in metrics.items() if name.startswith(_PENDING))
            print(
                f"| {count * EVERY} | {total:,} | {len(self.failed)} | {quantiles(seconds)} "
                f"| {first:.0f}, {second:.0f} | {learner:.0f} | {pending:,.0f} |",
                flush=True,
            )


async def soak(
    deciders: list[Server], learner: Server, key: str, arguments: argparse.Namespace
) -> None:
    """Run the load, and print the result."""
    load = Soak(deciders, learner, arguments.bandits, key)
    reporting = asyncio.ensure_future(load.report())
    late = await at_rate(arguments.rate, 60 * arguments.minutes, load.decide)
    reporting.cancel()
    with suppress(asyncio.CancelledError):
        await reporting
    lags: Counter[str] = Counter()
    for name, value in learner.metrics().items():
        if match := _LAG.fullmatch(name):
            lags[match[1]] += int(value)
    count = lags["+Inf"]
    print(f"\nanswers: {dict(load.statuses)}; failed: {load.failed[:3]}")
    print(f"the generator was late by at most {1e3 * late:.0f} ms")
    for bound in ("0.05", "0.1", "0.2", "0.5"):
        share = lags[bound] / count
        print(f"folded within {bound} s of the commit: {100 * share:.2f} % of {count:,.0f} pages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=10)
    parser.add_argument("--bandits", type=int, default=100)
    parser.add_argument("--rate", type=float, default=500, help="decisions a second")
    arguments = parser.parse_args()
    with database() as dsn:
        store = open_store(dsn)
        store.create_tables()
        key = make(store, "decide", "reward", "read").key
        with (
            Server(f"keyed {arguments.bandits}", dsn) as first,
            Server(f"keyed {arguments.bandits}", dsn) as second,
            Server(f"learners {arguments.bandits}", dsn) as learner,
        ):
            uvloop.run(soak([first, second], learner, key, arguments))


if __name__ == "__main__":
    main()
