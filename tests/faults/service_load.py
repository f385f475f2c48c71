"""Open-loop requests, as from many independent callers."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import count
from typing import ClassVar, NamedTuple, Self

from belated.core.events import Decision, Event, Opaque, Reward
from tests.faults.standstill import Standstill

_ROWS = [[1.0, 0.0], [0.0, 1.0]]
#: Seconds after which a caller gives an attempt up, and all of them.
GIVE_UP, GO_ON = 5.0, 60.0
#: Seconds within which callers are answered whatever fails: promised on a machine that does nothing
#: else, as at full size; and beside other tests. Without a spool an attempt fails or is given up.
PROMISED, BESIDE_OTHERS = 1.0, 4.0
#: How many of those who try again do so at a time: each needs a socket.
AT_ONCE = 50
#: All that goes wrong with a connection.
BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError)


class Answer(NamedTuple):
    """The outcome of a request.

    Attributes:
        kind: decision or reward.
        id: of the decision.
        status: HTTP status of the last attempt; 0 if there was no response.
        due: when the request was due, by the monotonic clock.
        seconds: latency since then.
        tries: number of attempts.
        chosen: the index of the chosen action, for a decision.
    """

    kind: str
    id: str
    status: int
    due: float
    seconds: float
    tries: int
    chosen: int | None = None

    @property
    def taken(self) -> bool:
        """Return whether the request was acknowledged."""
        return 200 <= self.status < 300


def value_of(id: str) -> float:
    """Return the reward of a decision: a function of its name, so that all reporters agree."""
    return float(sum(id.encode()) % 2)


class Load:
    """Decisions and rewards of most of them, at a constant rate, in a separate thread.

    Callers behave as in practice: without a response, or after 503, they repeat the request with
    the same id; some rewards are reported twice, and some before their decision is made.

    Args:
        ports: ports of the deciders, on loopback; they take turns, skipping unavailable ones.
        rate: requests per second.

    Attributes:
        answers: one per request.
        standstill: pauses of the machine while the load ran.
    """

    #: Seconds in which a caller tries again, and after which one gives an attempt up.
    patience: ClassVar[float] = GO_ON
    give_up: ClassVar[float] = GIVE_UP

    def __init__(self, *ports: int, rate: float = 100.0) -> None:
        self.answers: list[Answer] = []
        self.standstill = Standstill()
        self._ports, self._turns = ports, count()
        self._rate = rate
        self._idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {
            port: [] for port in ports
        }
        self._open: list[str] = []
        self._again = asyncio.Semaphore(AT_ONCE)
        self._stopped = threading.Event()
        self._rng = random.Random(0)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load")

    def __enter__(self) -> Self:
        self.standstill.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.standstill.__exit__()

    def acknowledged(self, kind: str) -> dict[str, Answer]:
        """Return the acknowledged requests, by id."""
        return {
            answer.id: answer for answer in self.answers if answer.kind == kind and answer.taken
        }

    def waited(self, one: Answer) -> float:
        """Return the latency in seconds, without the time in which the machine was paused."""
        return one.seconds - self.standstill.within(one.due, one.due + one.seconds)

    def share(self, within: float) -> float:
        """Return the share of requests that were acknowledged at once, within some seconds."""
        punctual = sum(
            answer.taken and answer.tries == 1 and self.waited(answer) <= within
            for answer in self.answers
        )
        return punctual / len(self.answers)

    def lost(self, events: Iterable[Event | Opaque]) -> set[tuple[str, str]]:
        """Return what was acknowledged but is missing in the journal."""
        expected = {(kind, id) for kind in ("decision", "reward") for id in self.acknowledged(kind)}
        for event in events:
            if isinstance(event, Decision | Reward):
                expected.discard((type(event).__name__.lower(), event.id))
        return expected

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        start, number, tasks = loop.time(), 0, set()
        while not self._stopped.is_set():
            due = start + number / self._rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            task = loop.create_task(self._one(number, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
        await asyncio.gather(*tasks)
        for port in self._ports:
            self._hang_up(port)

    def _hang_up(self, port: int) -> None:
        while self._idle[port]:
            _, writer = self._idle[port].pop()
            writer.close()

    async def _one(self, number: int, due: float) -> None:
        """Decide twice, then report a reward."""
        if number % 3 < 2 or not self._open:
            await self._decide(f"load-{number}", due)
        elif self._rng.random() < 0.1:
            await self._reward(f"load-{number + 1}", due)  # which is decided in a moment
        else:
            is_repeat = self._rng.random() < 0.1
            index = self._rng.randrange(len(self._open))
            await self._reward(self._open[index] if is_repeat else self._open.pop(index), due)

    async def _decide(self, id: str, due: float) -> None:
        body = {"rows": _ROWS, "id": id, "first_attempt": True}
        answer = await self._patiently("decision", id, "POST", "/v1/offers/decisions", body, due)
        if answer.taken:
            self._open.append(id)

    async def _reward(self, id: str, due: float) -> None:
        path = f"/v1/offers/decisions/{id}/reward"
        await self._patiently("reward", id, "PUT", path, {"value": value_of(id)}, due)

    async def _patiently(
        self, kind: str, id: str, method: str, path: str, body: dict[str, object], due: float
    ) -> Answer:
        """Retry until there is a response other than "try again"."""
        loop, wait, tries, turn = asyncio.get_running_loop(), 0.1, 0, next(self._turns)
        while True:
            tries += 1
            status, response = 0, dict[str, int]()
            try:
                async with self._again if tries > 1 else nullcontext():
                    request = self._send(turn + tries, method, path, body)
                    status, response = await asyncio.wait_for(request, self.give_up)
            except ConnectionRefusedError:
                pass  # nobody has seen it
            except BROKEN:
                body.pop("first_attempt", None)  # it may have been taken, although nobody said so
            seconds = loop.time() - due
            if status not in (0, 503) or seconds >= self.patience:
                break
            await asyncio.sleep(wait)
            wait = min(2 * wait, 1.0)
        answer = Answer(kind, id, status, due, seconds, tries, response.get("index"))
        self.answers.append(answer)
        return answer

    async def _send(
        self, turn: int, method: str, path: str, body: object
    ) -> tuple[int, dict[str, int]]:
        return await self._ask(self._ports[turn % len(self._ports)], method, path, body)

    async def _ask(
        self, port: int, method: str, path: str, body: object
    ) -> tuple[int, dict[str, int]]:
        idle = self._idle[port]
        while idle:
            reader, writer = idle.pop()
            if not reader.at_eof():
                break
            writer.close()  # the other side has ended it meanwhile
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            head = f"{method} {path} HTTP/1.1\r\nhost: load\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(answer.partition("content-length: ")[2].split("\r")[0])
            response = json.loads(await reader.readexactly(length))
        except BaseException:
            writer.close()
            raise
        if "connection: close" in answer:
            writer.close()
        else:
            idle.append((reader, writer))
        return int(answer.split(" ", 2)[1]), response
