"""What a request costs a service: a real one in a process of its own, asked over loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple, Self

import numpy as np

from belated.exceptions import InvalidInput
from belated.journals import open_store
from belated.planning.processes import PATIENCE, answer, wait_for_kernels
from belated.policies import Policy
from belated.rewards import Explicit

#: A service rests if it uses so much of a core in so many seconds.
RESTS, LOOK = 0.03, 0.5


def bandit_of(store: str) -> str:
    """Return the name of the bandit to measure a store with: Kafka may share a database.

    >>> bandit_of("kafka")
    'belated-plan-kafka'
    """
    return f"belated-plan-{store}"


class Used(NamedTuple):
    """What a service has used.

    Attributes:
        cpu: Seconds of CPU.
        commits: How many there were.
        events: How many they had in all.
        waited: Seconds that they took in all.
    """

    cpu: float
    commits: int
    events: int
    waited: float

    def since(self, before: Used) -> Used:
        """Return what was used since then."""
        return Used(
            self.cpu - before.cpu,
            self.commits - before.commits,
            self.events - before.events,
            self.waited - before.waited,
        )


class MeasuredService:
    """A service on a store that says what it uses; it decides, and does not learn.

    Args:
        policy: Of its only bandit.
        address: Of the store.
        learn: Whether it learns, too.
    """

    def __init__(self, policy: Policy, address: str, *, learn: bool = False) -> None:
        self.bandit = bandit_of(open_store(address).name)
        context = get_context("spawn")
        self._link, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self.bandit, policy, address, learn, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        self.port = int(str(answer(self._link)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._link.send(None)
        self._process.join(PATIENCE)

    def used(self) -> Used:
        """Return what it has used so far."""
        self._link.send("used")
        found = answer(self._link)
        assert isinstance(found, Used)
        return found

    def rest(self) -> None:
        """Wait until it has done all that there is to do."""
        until = time.monotonic() + PATIENCE
        before = self.used()
        while time.monotonic() < until:
            time.sleep(LOOK)
            now = self.used()
            if now.since(before).cpu < RESTS * LOOK:
                return
            before = now


def _serve(bandit: str, policy: Policy, address: str, learn: bool, link: Connection) -> None:
    from belated.service import Definition, create_app
    from belated.service.http.server import Server, collect_rarely

    wait_for_kernels()
    app = create_app([Definition(bandit, policy, Explicit())], address, learn=learn)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = Server(app, listening)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    if server.started.wait(PATIENCE):
        collect_rarely()
        link.send(listening.getsockname()[1])
        with suppress(EOFError):
            while link.recv() is not None:
                commits = app.commits
                assert commits is not None
                waited = commits.seconds.total
                link.send(Used(time.process_time(), commits.commits, commits.events, waited))
    server.stop()
    thread.join(PATIENCE)


class Call(NamedTuple):
    """A request.

    Attributes:
        method: Of HTTP.
        path: Below the bandit.
        body: Whatever JSON can say.
    """

    method: str
    path: str
    body: object


def decision_calls(count: int, dim: int, actions: int) -> list[Call]:
    """Return requests for decisions, with rows of numbers."""
    rng = np.random.default_rng(0)
    rows = [rng.uniform(-1, 1, (actions, dim)).round(3).tolist() for _ in range(50)]
    return [Call("POST", "decisions", {"rows": rows[n % 50]}) for n in range(count)]


def reward_calls(ids: Sequence[str]) -> list[Call]:
    """Return a reward for each decision."""
    return [Call("PUT", f"decisions/{id}/reward", {"value": n % 2}) for n, id in enumerate(ids)]


def ask_all(
    service: MeasuredService, calls: Sequence[Call], callers: int, *, rate: float = 0.0
) -> list[str]:
    """Send requests; returns the id that each answer names.

    Args:
        service: That is asked.
        calls: What is asked.
        callers: So many at a time, each over a connection of its own.
        rate: Requests a second that leave at random moments, if callers are free; 0: as fast as
            they can.

    Raises:
        InvalidInput: one was refused.
    """
    data = [_encoded(service.bandit, one) for one in calls]
    return asyncio.run(_ask_all(service.port, data, callers, rate))


def _encoded(bandit: str, call: Call) -> bytes:
    body = json.dumps(call.body).encode()
    head = f"{call.method} /v1/{bandit}/{call.path} HTTP/1.1\r\nHost: x\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _ask_all(port: int, data: list[bytes], callers: int, rate: float) -> list[str]:
    found = [""] * len(data)
    numbers = iter(range(len(data)))
    gaps = np.random.default_rng(0).exponential(1.0 / rate if rate else 0.0, len(data))
    due = (time.monotonic() + np.cumsum(gaps)).tolist()

    async def call() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in numbers:
            if rate:
                await asyncio.sleep(max(0.0, due[n] - time.monotonic()))
            writer.write(data[n])
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            if not head.startswith(b"http/1.1 2"):
                raise InvalidInput(f"the service that is measured answered {body.decode()}")
            found[n] = json.loads(body).get("id", "")
        writer.close()

    await asyncio.gather(*(call() for _ in range(callers)))
    return found
