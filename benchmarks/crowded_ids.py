"""Latency of other callers while one caller looks up ids chosen to crowd the index.

Two services run the configuration that README recommends (benchmarks/recommended.py). One is
crowded: it has decisions with chosen ids that all begin alike, and many rewards of one id. The
other has as many decisions with ordinary ids, with a reward each. A caller looks up in each the
kind of id that it has most of: a new chosen id, the id with the rewards, and the history of that
id. Meanwhile other callers decide, in an open loop. Slices of both services alternate, so that
other load on the machine affects both.

Prints p50 and p99 of the other callers, and the ratio of the two p99. Exits with 1 if it exceeds
``--bound``.

Run: python benchmarks/crowded_ids.py [--ids 100000] [--slices 5] [--seconds 10] [--bound 2]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
from open_loop import Caller, at_rate
from recommended import ACTIONS, FEATURES, contexts, service

from belated.core.events import Decision, Reward
from belated.journals.addresses import open_store

sys.path.append(str(Path(__file__).parents[1]))
from tests.integration.postgres_server import PostgresServer

#: Common beginning of all chosen ids: the time and the slot of a generated id.
PREFIX = "019bcfe568007005"
ONE = "order-1"
PATH = "/v1/offers"
#: Events per write, before a service starts.
BATCH = 1_000
VISITORS = contexts()


def chosen_id() -> str:
    """Return an id that begins like all other chosen ones."""
    return f"{PREFIX}{1 << 63 | secrets.randbits(62):016x}"


def other_id() -> str:
    """Return an ordinary id."""
    return f"order-{secrets.token_hex(12)}"


def fill(address: str, is_crowded: bool, count: int) -> None:
    """Write this many decisions, and as many rewards, into a store that no service uses yet."""
    store = open_store(address)
    store.create_tables()
    offers = [FEATURES.rows(visitor, ACTIONS) for visitor in VISITORS]
    with closing(store.journal("offers")) as journal:
        for start in range(0, count, BATCH):
            numbers, now = range(start, min(start + BATCH, count)), time.time_ns() // 1000
            ids = [chosen_id() if is_crowded else other_id() for _ in numbers]
            pairs = list(zip(ids, numbers, strict=True))
            journal.append(
                [
                    Decision(id, now, ACTIONS[n % 10], n % 10, offers[n % 256][n % 10], 0.3, 0.1, 0)
                    for id, n in pairs
                ]
            )
            journal.append([Reward(ONE if is_crowded else id, now, 1.0, "", n) for id, n in pairs])
            print(f"\r{start + len(numbers):,} of {count:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


class Side:
    """A service, with a caller that looks up the ids it has most of.

    Args:
        port: Where it listens.
        is_crowded: Whether ids are chosen to crowd the index.
    """

    def __init__(self, port: int, is_crowded: bool) -> None:
        self._caller, self._is_crowded = Caller(port), is_crowded
        self._visitors = itertools.cycle(VISITORS)
        self.seconds: list[float] = []

    async def slice(self, seconds: float, rate: float, *, counts: bool) -> None:
        """Have both kinds of callers send requests for a while."""

        async def decide(number: int, due: float) -> None:
            body = json.dumps(self._request()).encode()
            answer = await self._caller.ask("POST", f"{PATH}/decisions", body, due)
            assert answer.status == 201, answer.body
            if counts:
                self.seconds.append(answer.seconds)

        looking = asyncio.create_task(self._look_up())
        await at_rate(rate, seconds, decide)
        looking.cancel()

    async def _look_up(self) -> None:
        """Look ids up, one after the other."""
        while True:
            decision_id = ONE if self._is_crowded else other_id()
            await self._post("/decisions", self._request(self._new_id()))
            await self._post("/decisions", self._request(decision_id))
            await self._caller.ask("GET", f"{PATH}/decisions/{decision_id}", b"", 0.0)
            await asyncio.sleep(0.02)

    def _new_id(self) -> str:
        return chosen_id() if self._is_crowded else other_id()

    def _request(self, id: str | None = None) -> dict[str, object]:
        request: dict[str, object] = {"context": next(self._visitors), "actions": ACTIONS}
        return request if id is None else request | {"id": id}

    async def _post(self, path: str, body: object) -> None:
        answer = await self._caller.ask("POST", PATH + path, json.dumps(body).encode(), 0.0)
        assert answer.status in (200, 201, 202), answer.body[:500]


async def measure(sides: dict[str, Side], arguments: argparse.Namespace) -> None:
    """Alternate slices of both services; the first ones warm up."""
    for number in range(arguments.slices + 1):
        remaining = (arguments.slices + 1 - number) * 2 * arguments.seconds
        print(f"\r{number} slices, {remaining:.0f} s left ", end="", file=sys.stderr, flush=True)
        for side in sides.values():
            await side.slice(arguments.seconds, arguments.rate, counts=number > 0)
    print(file=sys.stderr)


def compare(engine: str, addresses: list[str], arguments: argparse.Namespace) -> float:
    """Print a line for each service of an engine; return the ratio of their p99."""
    names = {"like any others": False, "crowded": True}
    for address, is_crowded in zip(addresses, names.values(), strict=True):
        fill(address, is_crowded, arguments.ids)
    with ExitStack() as stack:
        servers = [stack.enter_context(service(address)) for address in addresses]
        for server in servers:
            server.settle()  # everything is learned, and the kernels are loaded
        sides = {
            name: Side(server.port, is_crowded)
            for (name, is_crowded), server in zip(names.items(), servers, strict=True)
        }
        asyncio.run(measure(sides, arguments))
    worst = []
    for name, side in sides.items():
        p50, p99 = 1e3 * np.quantile(side.seconds, [0.5, 0.99])
        print(f"{engine}, ids {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms ({len(side.seconds):,})")
        worst.append(p99)
    ratio: float = worst[1] / worst[0]
    print(f"{engine}: p99 {ratio:.2f} times that without a crowd", flush=True)
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=100_000)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--bound", type=float, default=2.0)
    arguments = parser.parse_args()
    postgres = [PostgresServer(), PostgresServer()]
    try:
        with tempfile.TemporaryDirectory() as folder:
            files = [f"sqlite:///{Path(folder, name)}" for name in ("calm.db", "crowded.db")]
            ratios = [
                compare("SQLite", files, arguments),
                compare("PostgreSQL", [server.dsn for server in postgres], arguments),
            ]
    finally:
        for server in postgres:
            server.stop()
    return int(max(ratios) > arguments.bound)


if __name__ == "__main__":
    sys.exit(main())
