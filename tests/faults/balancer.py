"""The load behind a balancer, which sends requests to deciders that are ready, and each once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar

from tests.faults.service_load import BROKEN, Answer, Load

#: Seconds between two looks at whether a process is ready.
LOOK = 0.1


class Balanced(Load):
    """Polls the readiness of each process ten times per second, and sends to those that are ready.

    They take turns; a request whose connection is refused goes to the next. Nothing is sent
    twice: a connection that breaks later is a failed request.

    Attributes:
        refused: refused connections, whose requests went to the next process.
        taken_out: how often a process stopped being ready.
    """

    patience: ClassVar = 0.0

    def __init__(self, *ports: int, rate: float = 100.0) -> None:
        super().__init__(*ports, rate=rate)
        self.refused = self.taken_out = 0
        self._ready = list(ports)

    @property
    def failed(self) -> list[Answer]:
        """Return the failed requests: refused with any status, cut off, or never answered."""
        return [answer for answer in self.answers if not answer.taken]

    async def _run(self) -> None:
        probes = [asyncio.create_task(self._look(port)) for port in self._ports]
        await super()._run()
        for probe in probes:
            probe.cancel()

    async def _look(self, port: int) -> None:
        """Take a process out while it is not ready."""
        while True:
            status = 0
            with suppress(*BROKEN):
                request = self._ask(port, "GET", "/readyz", None)
                status, _ = await asyncio.wait_for(request, self.give_up)
            if status == 200 and port not in self._ready:
                self._ready.append(port)
            elif status != 200 and port in self._ready:
                self._ready.remove(port)
                self.taken_out += 1
                self._hang_up(port)
            await asyncio.sleep(LOOK)

    async def _one(self, number: int, due: float) -> None:
        """Decide twice, then report a reward."""
        if number % 3 < 2 or not self._open:
            await self._decide(f"load-{number}", due)
        else:
            await self._reward(self._open.pop(self._rng.randrange(len(self._open))), due)

    async def _send(
        self, turn: int, method: str, path: str, body: object
    ) -> tuple[int, dict[str, int]]:
        """Send to the next process that accepts connections."""
        ready = list(self._ready)
        self._ready = ready[1:] + ready[:1]
        for port in ready:
            try:
                return await self._ask(port, method, path, body)
            except ConnectionRefusedError:
                self.refused += 1
        return 0, {}
