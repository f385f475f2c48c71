"""The service in a thread of the test, as ``belated serve`` runs it in a process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from belated.service.http.app import Service
from belated.service.http.asgi import AsgiApp
from belated.service.http.server import Server
from belated.service.operating.config import Limits
from tests.ports import free_port
from tests.waiting import eventually


class Serving:
    """A server that can be stopped and restarted with another application.

    Args:
        port: the port to listen on; None for any free one.
        limits: the limits of its connections.
    """

    def __init__(self, port: int | None = None, limits: Limits | None = None) -> None:
        self.port = port or free_port()
        self._limits = limits
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, app: Service) -> None:
        """Start serving; return once requests are accepted."""
        listening = socket.create_server(("127.0.0.1", self.port), backlog=2048)
        self._server = server = Server(app, listening, limits=self._limits)
        self._thread = thread = threading.Thread(target=server.run, name="server")
        thread.start()
        eventually(lambda: server.started.is_set() or not thread.is_alive(), seconds=120)
        assert server.started.is_set(), "the service did not start: the log says why"

    def stop_soon(self) -> None:
        """Start the shutdown without waiting for it."""
        assert self._server is not None
        self._server.stop()

    def stop(self) -> None:
        """Answer pending requests, and stop."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join(30)
            assert not self._thread.is_alive()
            self._server = self._thread = None


@contextmanager
def served(app: Service, limits: Limits | None = None) -> Iterator[Serving]:
    """Serve an application."""
    serving = Serving(limits=limits)
    serving.start(app)
    try:
        yield serving
    finally:
        serving.stop()


@contextmanager
def mounted(app: Service) -> Iterator[str]:
    """Mount an application in another one, behind uvicorn; yields its address."""
    decisions = AsgiApp(app)
    shop = FastAPI(lifespan=decisions.lifespan)
    shop.mount("/bandits", decisions)
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(shop, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    eventually(lambda: server.started or not thread.is_alive(), seconds=120)
    try:
        yield f"http://127.0.0.1:{port}/bandits"
    finally:
        server.should_exit = True
        thread.join(30)
