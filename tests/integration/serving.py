"""The service behind a real uvicorn in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from belated.service.http.app import Service
from belated.service.http.fast_path import protocol_for
from tests.waiting import eventually


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Serving:
    """A server that can be stopped, and started again with another application.

    Args:
        port: to listen on; any that is free if None.
        http: what speaks HTTP there; as ``belated serve`` has it if None.
    """

    def __init__(
        self, port: int | None = None, http: type[HttpToolsProtocol] | None = None
    ) -> None:
        self.port = port or free_port()
        self._http = http
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, app: Any) -> None:
        """Serve, and return when requests are taken."""
        http = self._http or protocol_for(app)
        config = uvicorn.Config(
            app, port=self.port, http=http, ws="none", log_config=None, access_log=False,
            timeout_graceful_shutdown=5,
        )  # fmt: skip
        self._server = server = uvicorn.Server(config)
        self._thread = thread = threading.Thread(target=server.run, name="uvicorn")
        thread.start()
        eventually(lambda: server.started or not thread.is_alive(), seconds=120)
        assert server.started, "the service did not start: the log says why"

    def stop(self) -> None:
        """Answer what is under way, and stop."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(30)
            assert not self._thread.is_alive()
            self._server = self._thread = None


@contextmanager
def served(app: Service, http: type[HttpToolsProtocol] | None = None) -> Iterator[Serving]:
    """An application behind a server."""
    serving = Serving(http=http)
    serving.start(app)
    try:
        yield serving
    finally:
        serving.stop()
