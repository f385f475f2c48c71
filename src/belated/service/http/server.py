"""The server process, which runs until it gets SIGTERM or SIGINT, then drains and stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from belated.exceptions import BelatedError, InvalidInput, MissingExtra
from belated.service.http.app import Service
from belated.service.operating.config import Limits

try:
    from belated.service.http.connection import Connection, Connections
    from belated.service.http.processes import Supervised
except ModuleNotFoundError:
    raise MissingExtra("belated serve", "service") from None

#: Seconds to wait for requests in flight during shutdown.
GRACE = 10.0
#: Seconds to keep idle connections open during shutdown, so that requests already in flight from
#: the client still get a response.
IDLE_SECONDS = 1.0
#: Maximum number of connections waiting to be accepted.
BACKLOG = 2048
#: Number of file descriptors reserved for the store, the spool and the log.
SPARE_FILES = 128
#: Seconds after which a busy thread, such as a learner, must release the GIL. With Python's default
#: of 5 ms, requests would wait that long whenever a model is being fitted.
SWITCH_INTERVAL = 0.0005

log = logging.getLogger("belated.service")


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.

    Raises:
        InvalidInput: the port is in use.
        OSError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        message = f"port {port} on {host} is in use: choose another with --port"
        raise InvalidInput(f"{message} or under [server], or 0 for any free port", port) from None


def serve(
    app: Service,
    listening: socket.socket,
    *,
    drain: float = 0.0,
    limits: Limits | None = None,
    supervised: Supervised | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, finish requests in flight, and return the exit code.

    Args:
        app: Service to run.
        listening: Listening socket.
        drain: Seconds for which the server continues to serve after the signal. During this time,
            it reports that it is not ready, so that load balancers stop sending requests, and
            closes each connection after its next response.
        limits: Connection limits.
        supervised: Supervisor of this process; None if this is the only process.
    """
    server = Server(app, listening, drain=drain, limits=limits, supervised=supervised)
    for number in (signal.SIGTERM, signal.SIGINT):  # signals may arrive during startup
        signal.signal(number, lambda number, frame: server.stop())
    collect_rarely()
    sys.setswitchinterval(SWITCH_INTERVAL)
    return server.run()


def collect_rarely() -> None:
    """Make the garbage collector ignore existing objects and run less often.

    In each turn of the event loop, a server creates a few thousand objects but hardly any reference
    cycles, so reference counting frees nearly all of the objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@dataclass(eq=False)
class Server:
    """Runs a service on a socket, in the thread that calls :meth:`run`.

    Args:
        app: Service to run.
        listening: Listening socket.
        drain: Seconds to continue after a request to stop, as in :func:`serve`.
        limits: Connection limits.
        supervised: Supervisor of this process; None if this is the only process.

    Attributes:
        started: Set once the server accepts requests.
    """

    app: Service
    listening: socket.socket
    drain: float = 0.0
    limits: Limits | None = None
    supervised: Supervised | None = None
    started: threading.Event = field(default_factory=threading.Event, init=False)
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)

    def stop(self) -> None:
        """Ask the server to stop. Can be called from any thread and from signal handlers."""
        self._stopped.set()

    def _leave(self) -> None:
        """Stop without draining, because other processes serve the port."""
        self.drain = 0.0
        self.stop()

    def run(self) -> int:
        """Serve until :meth:`stop` is called; return the exit code."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(self._serve())

    async def _serve(self) -> int:
        app = self.app
        loop = asyncio.get_running_loop()
        try:
            app.start(loop)
        except Exception as error:
            if isinstance(error, BelatedError):  # the message explains what to do
                log.error("the service cannot start", extra={"why": str(error)})
            else:
                log.exception("the service cannot start")
            await asyncio.to_thread(app.close)
            self.listening.close()
            return 2
        connections = Connections(app, loop, _affordable(self.limits or Limits()))
        server = await loop.create_server(
            lambda: Connection(connections), sock=self.listening, backlog=BACKLOG
        )
        host, port = self.listening.getsockname()[:2]
        log.info("serving", extra={"host": host, "port": port, "bandits": list(app.bandits)})
        self.started.set()
        if self.supervised is not None:
            app.scrape = self.supervised.metrics
            self.supervised.follow(app.metrics, self._leave)
        while not self._stopped.is_set():
            await asyncio.sleep(0.1)
        if self.drain > 0.0:
            app.draining = True
            log.info("draining: no longer ready", extra={"seconds": self.drain})
            await asyncio.sleep(self.drain)
        log.info("stopping after answering the requests in flight")
        app.draining = True  # close each connection after its next response
        backlog = self.listening.dup()
        server.close()
        await _accept_all(backlog, connections)
        await connections.close(IDLE_SECONDS, GRACE)
        await asyncio.to_thread(app.close)
        log.info("stopped")
        return 0


async def _accept_all(listening: socket.socket, connections: Connections) -> None:
    """Accept the connections in the backlog, then close the socket.

    Otherwise, the operating system would reset the connections that have not been accepted.
    """
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    with listening, contextlib.suppress(OSError):
        while True:
            accepted, _ = listening.accept()
            await loop.connect_accepted_socket(lambda: Connection(connections), accepted)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _affordable(limits: Limits) -> Limits:
    """Raise the limit on open files if necessary. If that fails, reduce the connection limit."""
    if sys.platform == "win32":
        return limits
    import resource

    needed = limits.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            connections = max(1, soft - SPARE_FILES)
            log.warning(
                "the limit on open files reduces the number of connections",
                extra={"connections": connections},
            )
            return replace(limits, connections=connections)
    return limits
