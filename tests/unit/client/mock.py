"""A service that answers as it is told, and both clients in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import numpy as np

from belated.client import AsyncClient, Client
from belated.client.transport import Transport
from belated.wire.messages import Decided

Answer = httpx.Response | Exception
ROWS = np.array([[1.0, 0.0], [0.0, 1.0]])


class Awaited:
    """An :class:`AsyncClient` whose verbs are awaited here."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)
        return lambda *arguments, **named: asyncio.run(verb(*arguments, **named))


class Mock:
    """A service that answers as told, and notes what it is asked and how long it is waited for."""

    kind: type = Client

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.waits: list[float] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        """The next answer; the last one for ever."""
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        # Another one each time: a client keeps what it has read in it.
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    async def sleep(self, seconds: float) -> None:
        """Note it."""
        self.waits.append(seconds)

    def client(self, retries: int = 3) -> Client:
        """A client whose calls end here."""
        here, url = httpx.MockTransport(self.handle), "http://mock"
        if self.kind is AsyncClient:
            awaited = httpx.AsyncClient(base_url=url, transport=here)
            waits = AsyncClient(url, bandit="offers")
            waits._transport = Transport(url, awaited, self.sleep, retries=retries)
            return Awaited(waits)  # type: ignore[return-value]  # it looks like one
        blocking = httpx.Client(base_url=url, transport=here)
        client = Client(url, bandit="offers")
        client._transport = Transport(url, blocking, self.waits.append, retries=retries)
        return client

    def bodies(self, kind: Any) -> list[Any]:
        """What came, as it is meant."""
        return [msgspec.json.decode(one.content, type=kind) for one in self.asked]


def answer(status: int, content: object = None, **headers: str) -> httpx.Response:
    """One of the service's."""
    data = b"" if content is None else msgspec.json.encode(content)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, content=data, headers=names)


DECIDED = Decided("a1", "red", 0, 0.5, 0.1, 7, datetime(2026, 11, 16, tzinfo=UTC))
