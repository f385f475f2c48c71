"""Gates between processes and a server, which can cut them off.

:class:`Toxiproxy` is used if it is found: in ``TOXIPROXY``, or on the PATH as
``toxiproxy-server``; at full size it is installed with Go's own tool if that exists.
:class:`Gate` does what these tests need in a few lines, for machines without it.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast
from urllib.error import URLError

from tests.ports import free_port

_PACKAGE = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"


class Between(Protocol):
    """A connection path to a server."""

    port: int

    def cut(self) -> None:
        """End all connections, and refuse new ones."""

    def swallow(self) -> None:
        """Keep connections open, but pass nothing on."""

    def open(self) -> None:
        """Restore normal operation."""

    def close(self) -> None:
        """Close the gate."""


def between(port: int, folder: Path, full: bool) -> Between:
    """Open a gate to the server at a port; the real Toxiproxy if it exists.

    Args:
        port: of the server.
        folder: to install it in.
        full: install it if it is missing and Go exists.
    """
    program = os.environ.get("TOXIPROXY") or shutil.which("toxiproxy-server")
    if program is None and full and shutil.which("go") is not None:
        environment = os.environ | {"GOBIN": str(folder)}
        subprocess.run(["go", "install", _PACKAGE], env=environment, check=True, timeout=600)
        program = str(folder / "server")
    return Gate(port) if program is None else Toxiproxy(program, port)


class Toxiproxy:
    """The Toxiproxy program, controlled over HTTP."""

    def __init__(self, program: str, port: int) -> None:
        self._api = free_port()
        command = [program, "-host", "127.0.0.1", "-port", str(self._api)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.port = free_port()
            self._make(port)
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._ask("POST", "/proxies/server", {"enabled": False})

    def swallow(self) -> None:
        """Keep connections open, but pass nothing on in either direction."""
        for stream in ("upstream", "downstream"):
            toxic = {"name": stream, "type": "timeout", "stream": stream}
            self._ask("POST", "/proxies/server/toxics", {**toxic, "attributes": {"timeout": 0}})

    def open(self) -> None:
        """Restore normal operation."""
        self._ask("POST", "/reset")

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait(60)

    def _make(self, port: int) -> None:
        proxy = {
            "name": "server",
            "listen": f"127.0.0.1:{self.port}",
            "upstream": f"127.0.0.1:{port}",
        }
        deadline = time.monotonic() + 30
        while True:
            try:
                self._ask("POST", "/proxies", proxy)
                return
            except URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _ask(self, method: str, path: str, body: object = None) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._api}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json", "User-Agent": "belated"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()


class Gate:
    """A gate in Python."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._ends: list[socket.socket] = []
        self._swallowing = False
        self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        with suppress(OSError):  # a thread that waits in accept() would keep it open
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self._hang_up()

    def swallow(self) -> None:
        """Keep connections open, but pass nothing on."""
        self._swallowing = True

    def open(self) -> None:
        """Restore normal operation; connections that lost data are closed."""
        if self._swallowing:
            self._swallowing = False
            self._hang_up()
        else:
            self._listen(self.port)

    def close(self) -> None:
        """End all connections."""
        self.cut()

    def _listen(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _hang_up(self) -> None:
        while self._ends:
            sock = self._ends.pop()
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                client.close()
                continue
            self._ends += [client, server]
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _delay(self, sender: socket.socket, server: socket.socket, size: int) -> None:
        """Delay nothing."""

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """Forward in both directions, until one end closes."""
        with client, server, selectors.DefaultSelector() as ready, suppress(OSError):
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for source, _ in ready.select():
                    sender = cast(socket.socket, source.fileobj)
                    data = sender.recv(1 << 16)
                    if not data:
                        return
                    self._delay(sender, server, len(data))
                    if not self._swallowing:
                        source.data.sendall(data)


class Slow(Gate):
    """A slow line: the server's data arrive at a limited rate.

    Args:
        port: of the server.
        rate: bytes per second.
    """

    def __init__(self, port: int, rate: float) -> None:
        self._rate = rate
        super().__init__(port)

    def _delay(self, sender: socket.socket, server: socket.socket, size: int) -> None:
        if sender is server:
            time.sleep(size / self._rate)
