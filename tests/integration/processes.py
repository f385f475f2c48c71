"""Commands of belated in separate processes, and requests to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]


#: Waits longer than usual: a process loads for seconds before it does anything.
later = partial(eventually, seconds=120)


def pid_of(holder: str) -> int:
    """Return the process id in the name of a learner."""
    return int(holder.split("/")[-2])


class Process:
    """``belated …`` in a separate process, with its log.

    Args:
        log: the file for its log.
        arguments: of the command.
        belated: the command itself.
        folder: the working directory.
        environment: variables to set.
    """

    def __init__(
        self,
        log: Path,
        *arguments: str,
        belated: Sequence[str | Path] = (sys.executable, "-m", "belated"),
        folder: Path | None = None,
        **environment: str,
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*belated, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stderr=file,
                env=os.environ | environment,
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def said(self, message: str) -> dict[str, Any] | None:
        """Return the first log line with this message; every line must be JSON."""
        text, _, _ = self.log.rpartition("\n")
        lines = [json.loads(line) for line in text.splitlines()]
        return next((line for line in lines if line["message"] == message), None)

    @property
    def log(self) -> str:
        """Return the whole log."""
        return self._log.read_text(encoding="utf-8")

    def heard(self, message: str) -> dict[str, Any]:
        """Wait for a message in the log, and return its line."""

        def is_so() -> bool:
            assert self.runs(), self.log
            return self.said(message) is not None

        later(is_so, f"it has not said {message!r}")
        line = self.said(message)
        assert line is not None
        return line

    def mentions(self, text: str) -> bool:
        """Whether the log contains this text."""
        return text in self.log

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def runs(self) -> bool:
        """Return whether the process is still running."""
        return self._process.poll() is None

    def ended(self) -> int:
        """Wait for the process to end; return its exit code."""
        return self._process.wait(30)

    def kill(self) -> None:
        """Kill the process if it is still running."""
        self._process.kill()
        self._process.wait(30)

    def ask(
        self, method: str, path: str, body: object = None, timeout: float = 10
    ) -> tuple[int, dict[str, Any]]:
        """Send one request to the service, over its own connection."""
        connection = HTTPConnection("127.0.0.1", self.heard("serving")["port"], timeout=timeout)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def decide(self, **offer: object) -> str:
        """Request a decision; return its id."""
        status, response = self.ask("POST", "/v1/offers/decisions", {"rows": ROWS, **offer})
        assert status == 201, response
        id: str = response["id"]
        return id

    def reward(self, id: str, value: float = 1.0) -> None:
        """Report a reward."""
        status, response = self.ask("PUT", f"/v1/offers/decisions/{id}/reward", {"value": value})
        assert status == 202, response

    def state(self) -> dict[str, Any]:
        """Return the state of the bandit."""
        return self.ask("GET", "/v1/offers")[1]
