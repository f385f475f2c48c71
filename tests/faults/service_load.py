"""Requests that come whether those before were answered or not, as from many callers."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from contextlib import suppress
from typing import NamedTuple, Self

from belated.events import Decision, Reward
from belated.journals import PostgresJournal

_ROWS = [[1.0, 0.0], [0.0, 1.0]]
#: Seconds after which a caller gives up.
GIVE_UP = 5.0
#: Seconds between two looks at whether a process is ready.
LOOK = 0.1
#: All that goes wrong with a connection.
BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError)


class Answer(NamedTuple):
    """What became of a request.

    Attributes:
        kind: decision or reward.
        id: of the decision.
        status: of HTTP; 0 if there was no answer.
        seconds: since the moment at which the request was due.
    """

    kind: str
    id: str
    status: int
    seconds: float


class Load:
    """Decisions, and a reward for every other one, at a constant rate, in a thread of its own.

    With several ports it is a balancer too. It asks each process ten times a second whether it is
    ready, sends requests in turn to those that are, and a request whose connection is refused to
    the next. Nothing is sent twice: a connection that breaks later is a request that has failed.

    Args:
        ports: of the processes of the service, on loopback.
        rate: requests a second.

    Attributes:
        answers: one for each request.
        refused: connections that were; their requests went to the next process.
        taken_out: how often a process that had been ready was not any more.
    """

    def __init__(self, *ports: int, rate: float = 100.0) -> None:
        self.answers: list[Answer] = []
        self.refused = self.taken_out = 0
        self._ready = list(ports)
        self._ports = ports
        self._rate = rate
        self._idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
        self._idle = {port: [] for port in ports}
        self._open: list[str] = []
        self._stopped = threading.Event()
        self._rng = random.Random(0)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def acknowledged(self, kind: str) -> set[str]:
        """Ids of what was taken."""
        return {one.id for one in self.answers if one.kind == kind and 200 <= one.status < 300}

    @property
    def failed(self) -> list[Answer]:
        """Requests that were not taken: refused with any status, cut off, or never answered."""
        return [one for one in self.answers if not 200 <= one.status < 300]

    def share(self, within: float) -> float:
        """Of the requests, those that were taken in so many seconds."""
        good = sum(200 <= one.status < 300 and one.seconds <= within for one in self.answers)
        return good / len(self.answers)

    def lost(self, dsn: str) -> set[tuple[str, str]]:
        """What was acknowledged, and is not in the journal."""
        with PostgresJournal(dsn, bandit="offers") as journal:
            events = [
                record.event
                for partition in range(journal.partitions)
                for record in journal.read(partition, 0, 1_000_000)
            ]
        decided = {event.id for event in events if isinstance(event, Decision)}
        rewarded = {event.id for event in events if isinstance(event, Reward)}
        return {("decision", id) for id in self.acknowledged("decision") - decided} | {
            ("reward", id) for id in self.acknowledged("reward") - rewarded
        }

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        start, number, under_way = loop.time(), 0, set()
        balanced = self._ports if len(self._ports) > 1 else ()
        looking = [loop.create_task(self._look(port)) for port in balanced]
        while not self._stopped.is_set():
            due = start + number / self._rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            task = loop.create_task(self._one(number, due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            number += 1
        await asyncio.gather(*under_way)
        for task in looking:
            task.cancel()
        for port in self._ports:
            self._hang_up(port)

    async def _look(self, port: int) -> None:
        """Take a process out while it is not ready."""
        while True:
            status = 0
            with suppress(*BROKEN):
                status = await asyncio.wait_for(self._ask(port, "GET", "/readyz", None), GIVE_UP)
            if status == 200 and port not in self._ready:
                self._ready.append(port)
            elif status != 200 and port in self._ready:
                self._ready.remove(port)
                self.taken_out += 1
                self._hang_up(port)
            await asyncio.sleep(LOOK)

    def _hang_up(self, port: int) -> None:
        while self._idle[port]:
            _, writer = self._idle[port].pop()
            writer.close()

    async def _one(self, number: int, due: float) -> None:
        if number % 3 == 2 and self._open:
            kind, id = "reward", self._open.pop(self._rng.randrange(len(self._open)))
            method, path = "PUT", f"/v1/offers/decisions/{id}/reward"
            body: dict[str, object] = {"value": number % 2}
        else:
            kind, id = "decision", f"load-{number}"
            method, path = "POST", "/v1/offers/decisions"
            body = {"rows": _ROWS, "id": id, "fresh": True}
        try:
            status = await asyncio.wait_for(self._send(method, path, body), GIVE_UP)
        except BROKEN:
            status = 0
        took = asyncio.get_running_loop().time() - due
        self.answers.append(Answer(kind, id, status, took))
        if kind == "decision" and status == 201:
            self._open.append(id)

    async def _send(self, method: str, path: str, body: object) -> int:
        """To the process whose turn it is, or the next that takes connections."""
        turn = list(self._ready)
        self._ready = turn[1:] + turn[:1]
        for port in turn:
            try:
                return await self._ask(port, method, path, body)
            except ConnectionRefusedError:
                self.refused += 1
        return 0

    async def _ask(self, port: int, method: str, path: str, body: object) -> int:
        if self._idle[port]:
            reader, writer = self._idle[port].pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            head = f"{method} {path} HTTP/1.1\r\nhost: load\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(answer.partition("content-length: ")[2].split("\r")[0]))
        except BaseException:
            writer.close()
            raise
        if "connection: close" in answer:
            writer.close()
        else:
            self._idle[port].append((reader, writer))
        return int(answer.split(" ", 2)[1])
