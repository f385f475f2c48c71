"""The service behind uvicorn: one process, which ends when it is told to and not before."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from belated.exceptions import MissingExtra
from belated.service.http.app import Service

try:
    import uvicorn

    from belated.service.http.fast_path import protocol_for
except ModuleNotFoundError:
    raise MissingExtra("belated serve", "service") from None

#: Seconds in which requests under way may end, once it is told to stop.
GRACE = 10
#: Seconds for which an idle connection is kept: longer than balancers keep theirs, or they would
#: send requests down one that is being closed.
KEEP_ALIVE = 75
#: Connections that may wait to be taken.
BACKLOG = 2048

log = logging.getLogger("belated.service")


def serve(app: Service, host: str, port: int, *, drain: float = 0.0) -> int:
    """Serve until SIGTERM or SIGINT, then answer what is under way; returns the exit code.

    Args:
        app: what is served.
        host: the address to listen on.
        port: 0 for any that is free.
        drain: for how many seconds it goes on when it is told to stop: it says that it is not
            ready, so that balancers send nothing more, and has every connection closed after its
            next answer.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # uvicorn sends itself the signal again when all is done: then this ends the process with 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    config = uvicorn.Config(
        app,
        http=protocol_for(app),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on who asks
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config, drain)
    collect_rarely()
    try:
        server.run(sockets=[listening])
    except SystemExit:
        if not server.started:  # the log says why
            return 2
    log.info("stopped")
    return 0


def collect_rarely() -> None:
    """Have the collector of cycles look at new objects only, and at many at a time.

    A process that serves makes hardly any cycles, and at each turn of the event loop a few thousand
    objects that soon go by themselves.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class _Server(uvicorn.Server):
    """Says where it can be reached, once it can be; and that it will stop, before it does."""

    def __init__(self, config: uvicorn.Config, drain: float) -> None:
        super().__init__(config)
        self._drain = drain

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        await super().startup(list(sockets or ()))
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            app: Any = self.config.app
            log.info("serving", extra={"host": host, "port": port, "bandits": list(app.bandits)})

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        await self._let_go()
        log.info("stopping: what is under way is answered first")
        await super().shutdown(list(sockets or ()))

    async def _let_go(self) -> None:
        """Go on until those who send requests have had time to see that it will stop."""
        app: Any = self.config.app
        if self.started and self._drain > 0.0:
            app.draining = True
            log.info("draining: no longer ready", extra={"seconds": self._drain})
            deadline = time.monotonic() + self._drain
            while time.monotonic() < deadline and not self.force_exit:
                await asyncio.sleep(0.05)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(0)
