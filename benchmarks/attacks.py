"""Attacks on a service alongside honest load: memory, and latency of the honest callers.

Each attack runs for some seconds in its own process and from its own address, while honest callers
request decisions at a steady rate. Before it, well-formed requests run in its place, as many as the
attack sends if it consists of requests: the p99 is compared with that of this run. For each attack
the table shows the resident memory before, at most and afterwards, the p99 of the honest callers
with the ratio, and the outcome of their requests.

It fails if memory grows by more than 64 MB, or if an honest request gets no response.

Run: python benchmarks/attacks.py [--seconds 60] [--attack NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import NamedTuple

from open_loop import Answer, Caller, at_rate
from service_processes import Server

#: Honest requests per second, and their body.
RATE = 100.0
BODY = b'{"rows":[' + b",".join([b"[" + b",".join([b"0.25"] * 20) + b"]"] * 10) + b"]}"
PATH = "/v1/offers/decisions"
#: Addresses from which attacks come.
SOURCE = ("127.0.0.2", 0)
MB = 1 << 20
MAX_GROWTH = 64 * MB
#: Requests over one connection that a well-behaved client sends before it reads.
PIPELINE = 12

Attack = Callable[[int, float], Awaitable[None]]


async def flood(port: int, until: float, data: bytes, count: int) -> None:
    """Send the same bytes over some connections repeatedly, and read nothing."""

    async def one() -> None:
        while time.monotonic() < until:
            try:
                async with asyncio.timeout(max(0.01, until - time.monotonic())):
                    _, writer = await asyncio.open_connection(
                        "127.0.0.1", port, local_addr=SOURCE, limit=1
                    )
                    try:
                        while True:
                            writer.write(data)
                            await writer.drain()
                            await asyncio.sleep(0.01)
                    finally:
                        writer.transport.abort()
            except OSError:  # refused, closed or out of time: reconnect
                await asyncio.sleep(0.05)

    await asyncio.gather(*[one() for _ in range(count)])


async def hold(port: int, until: float, data: bytes, drip: bytes, count: int) -> None:
    """Open connections, send the beginning of a request over each, then a byte now and then."""

    async def one() -> None:
        while time.monotonic() < until:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=SOURCE)
                try:
                    writer.write(data)
                    while time.monotonic() < until and not writer.is_closing():
                        await asyncio.sleep(0.5)
                        writer.write(drip)
                        await writer.drain()
                finally:
                    writer.transport.abort()
            except OSError:
                await asyncio.sleep(0.2)

    await asyncio.gather(*[one() for _ in range(count)])


def _head(*lines: str) -> bytes:
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: x", *lines, ""]).encode()


_GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
_SMALL = b"".join(b"X-%d: y\r\n" % n for n in range(4_000))
_KIND = "Content-Type: application/json"
ATTACKS: dict[str, Attack] = {
    "pipelined requests, answers unread": lambda port, until: flood(port, until, _GET * 500, 8),
    "a few at a time, answers unread": lambda port, until: flood(port, until, _GET * 12, 64),
    "small headers without an end": lambda port, until: flood(port, until, _head() + _SMALL, 8),
    "one long header": lambda port, until: flood(port, until, _head() + b"X: " + b"y" * 65_000, 8),
    "half-sent headers": lambda port, until: hold(port, until, _head(), b"X: y\r\n", 1_500),
    "half-sent bodies": lambda port, until: hold(
        port, until, _head(_KIND, "Content-Length: 1000000") + b"\r\n" + b" " * 200_000, b" ", 400
    ),
    "idle connections": lambda port, until: hold(port, until, b"", b"", 1_500),
    "upgrades": lambda port, until: flood(
        port, until, _head("Connection: upgrade", "Upgrade: websocket") + b"\r\n" + _GET, 8
    ),
    "malformed": lambda port, until: flood(port, until, b"\0" * 100, 8),
}


#: Connections and pipelined requests of attacks that consist of requests; and of all others.
REQUESTS = {
    "pipelined requests, answers unread": (8, 500),
    "a few at a time, answers unread": (64, 12),
}
FEW = (8, 10)


async def well_formed(port: int, until: float, count: int, at_once: int) -> None:
    """Send as many well-formed requests as an attack does, and read the responses."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=SOURCE)
        try:
            while time.monotonic() < until:
                for _ in range(0, at_once, PIPELINE):
                    count = min(PIPELINE, at_once)
                    writer.write(_GET * count)
                    for _ in range(count):
                        await reader.readuntil(b"}")
                await asyncio.sleep(0.01)
        finally:
            writer.close()

    await asyncio.gather(*[one() for _ in range(count)])


class Found(NamedTuple):
    """The results of honest callers during a phase, and the maximum memory."""

    p99: float
    good: int
    bad: int
    most: int


def beside(server: Server, seconds: float, name: str, as_well_formed: bool = False) -> Found:
    """Send honest requests during an attack, or during as many well-formed requests."""
    processes = get_context("spawn")
    begun = processes.Event()
    arguments = (name, as_well_formed, server.port, seconds, begun)
    attack = processes.Process(target=_attack, args=arguments)
    attack.start()
    begun.wait(60)
    try:
        return asyncio.run(_ask(server, seconds))
    finally:
        attack.join()


def _attack(name: str, as_well_formed: bool, port: int, seconds: float, begun: Event) -> None:
    async def run() -> None:
        until = time.monotonic() + seconds
        if as_well_formed:
            await well_formed(port, until, *REQUESTS.get(name, FEW))
        else:
            await ATTACKS[name](port, until)

    begun.set()
    asyncio.run(run())


async def _ask(server: Server, seconds: float) -> Found:
    caller, most = Caller(server.port), server.resident()
    answers: list[Answer] = []

    async def ask(number: int, due: float) -> None:
        answers.append(await caller.ask("POST", PATH, BODY, due))

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, server.resident())
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    await at_rate(RATE, seconds, ask)
    watching.cancel()
    caller.close()
    good = sum(answer.status == 201 for answer in answers)
    return Found(_p99(answers), good, len(answers) - good, most)


def _p99(answers: list[Answer]) -> float:
    seconds = sorted(answer.seconds for answer in answers)
    return seconds[int(0.99 * (len(seconds) - 1))]


def run(server: Server, name: str, seconds: float, base: Found) -> tuple[Found, int, int]:
    """Run one attack; return the results, and the memory before and after it."""
    before = server.resident()
    result = beside(server, seconds, name)
    time.sleep(min(4.0, seconds))
    after = server.resident()
    print(
        f"{name:36s} memory {before / MB:5.0f} MB, at most +{(result.most - before) / MB:4.1f},"
        f" after +{(after - before) / MB:4.1f} MB; p99 {1e3 * result.p99:6.1f} ms,"
        f" {result.p99 / base.p99:4.1f}x; {result.good} answered, {result.bad} not",
        flush=True,
    )
    return result, before, after


def main() -> int:
    """Run all attacks; return 1 if one of them does harm."""
    harm = 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--attack", choices=ATTACKS, action="append")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Server("service", f"sqlite:///{folder}/attacked.db") as server,
    ):
        beside(server, 2.0, "malformed", as_well_formed=True)  # warm
        for name in options.attack or ATTACKS:
            # Measured again each time: on a shared disk it differs from minute to minute.
            base = beside(server, max(2.0, options.seconds / 4), name, as_well_formed=True)
            print(f"beside well-formed requests: p99 {1e3 * base.p99:.1f} ms, {base.bad} failed")
            result, before, _ = run(server, name, options.seconds, base)
            harm |= result.most - before > MAX_GROWTH or result.bad > 0
    return harm


if __name__ == "__main__":
    sys.exit(main())
