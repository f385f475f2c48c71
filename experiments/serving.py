"""A service for experiments: ``belated serve`` in a process, and calls to it."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.integration.processes import Process, later


@contextmanager
def serving(
    dsn: str, bandits: Mapping[str, Mapping[str, str]], *, head: str = "", **environment: str
) -> Iterator[int]:
    """Start a service that also learns; yield its port once every bandit has a model.

    Args:
        dsn: the address of the database, whose tables exist.
        bandits: the settings of each bandit, by name.
        head: further lines of the configuration.
        environment: environment variables of the process.
    """
    lines = [head, "[store]", f'address = "{dsn}"']
    for name, settings in bandits.items():
        lines += [f"[bandits.{name}]", *(f'{key} = "{value}"' for key, value in settings.items())]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "belated.toml"
        file.write_text("\n".join(lines), encoding="utf-8")
        process = Process(Path(folder) / "log", "serve", str(file), "--port", "0", **environment)
        try:
            port = process.heard("serving")["port"]
            later(lambda: process.ask("GET", "/readyz")[0] == 200, "it is not ready")
            yield port
            process.send(signal.SIGTERM)
            process.ended()
        finally:
            process.kill()


class Caller:
    """Calls a service over one persistent connection."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the response."""
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def tell(self, method: str, path: str, body: object = None) -> Any:
        """Return the response, which must be a success."""
        status, response = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{path}: {status} {response}")
        return response

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
