"""All connections of a server: how many there may be, what they may hold, how long they may take.

Whatever a stranger can make the server keep has a bound here or in :mod:`.connection`; none of them
depends on how many strangers there are.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

from belated.service.access.limits import Limits
from belated.service.http import freed_memory

if TYPE_CHECKING:
    from belated.service.http.app import Service
    from belated.service.http.connection import Connection

#: Bytes of requests that are not complete, or wait for their turn, and of answers that nobody
#: reads; of all connections together, and at least this many bodies of the greatest size.
MAX_HELD, MIN_BODIES = 16 << 20, 4
#: After so many bytes were held, memory is given back once most of them were let go.
MUCH = 4 << 20
#: Seconds between two looks at the connections: deadlines are this much late at most.
LOOK_SECONDS = 1.0


class Connections:
    """The connections of one server, on one event loop.

    Args:
        service: answers their requests.
        loop: theirs.
        limits: of them.
        monotonic: gives seconds that only grow.
    """

    def __init__(
        self,
        service: Service,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.limits = limits
        #: Seconds as of the last look: exact enough for deadlines, and costs nothing to read.
        self.now = monotonic()
        #: Bytes that all of them hold.
        self.held = 0
        self._most = 0  # of them at any look, since memory was given back
        self._room = max(MAX_HELD, MIN_BODIES * service.max_body_bytes)
        self._loop = loop
        self._monotonic = monotonic
        self._all: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._heads: dict[tuple[int, bytes], bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, address: str) -> bool:
        """Count one more, if there may be one more."""
        limits = self.limits
        if (
            len(self._all) >= limits.connections
            or self._addresses[address] >= limits.per_address
        ):  # fmt: skip
            return False
        if self._timer is None:  # nobody has looked since the last one went
            self._look()
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        self._all.add(connection)
        self._addresses[address] += 1
        return True

    def remove(self, connection: Connection, address: str) -> None:
        """Count one less."""
        self._all.discard(connection)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def hold(self, more: int) -> None:
        """Count bytes that are held; when they are too many, whoever holds most has to go."""
        self.held += more
        if self.held <= self._room:
            return
        # An eighth at once: to look for the greatest of a crowd at each piece of a flood would take
        # more time than the flood itself.
        enough = self._room - self._room // 8
        for one in sorted(self._all, key=lambda one: one.held, reverse=True):
            if self.held <= enough or not one.held:
                return
            one.give_up()

    def head(self, status: int, kind: bytes) -> bytes:
        """The beginning of an answer, up to the number of its bytes."""
        found = self._heads.get((status, kind))
        if found is None:
            phrase = HTTPStatus(status).phrase
            date = formatdate(usegmt=True)
            length = b"" if status == 204 else b"content-type: %b\r\ncontent-length: " % kind
            found = f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\n".encode() + length
            self._heads[status, kind] = found
        return found

    def message(
        self, status: int, kind: bytes, data: bytes, more: Mapping[str, str], whole: bool = True
    ) -> bytes:
        """An answer with further headers; only those if it is not whole."""
        head = self.head(status, kind)
        parts = [head if status == 204 else b"%b%d\r\n" % (head, len(data))]
        parts += [f"{name}: {value}\r\n".encode("latin-1") for name, value in more.items()]
        return b"".join([*parts, b"\r\n", data if whole else b""])

    def stop(self) -> None:
        """Have all of them end, once what is under way is answered."""
        for one in list(self._all):
            one.stop()

    async def wait(self, seconds: float) -> None:
        """Wait until all have ended, or for so many seconds."""
        deadline = self._monotonic() + seconds
        while self._all and self._monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until all have ended; those that last longer are cut."""
        await self.wait(seconds)
        for one in list(self._all):
            one.cut()

    def _look(self) -> None:
        self.now = now = self._monotonic()
        self._heads.clear()  # they tell the time
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look) if self._all else None
        for one in list(self._all):
            if one.due <= now:
                one.expire()
        self._most = max(self._most, self.held)
        if self._most > MUCH and self.held < self._most // 4:
            self._most = self.held
            freed_memory.give_back()
