"""A real browser without a display: loads a page, and runs a line of JavaScript in it.

It talks to Chromium over two pipes (``--remote-debugging-pipe``: JSON that ends with a zero byte),
so that no driver and no further package is needed. ``.ci/chromium`` installs the browser.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# The browser reads from 3 and writes to 4.
_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null'


def find_chromium() -> str | None:
    """Return the path of the browser, from ``CHROMIUM`` or the PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Chromium:
    """A browser with one page.

    Args:
        profile: an empty folder of its own.
    """

    def __init__(self, profile: Path) -> None:
        program = find_chromium()
        if program is None:
            pytest.skip("no Chromium found: `apt-get install chromium`, or set CHROMIUM")
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--no-proxy-server",
            f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", _PIPES, "bash", program, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._numbers = count(1)
        self._read = b""
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = session["sessionId"]
        self._call("Page.enable")

    def open(self, url: str) -> None:
        """Load a page."""
        error = self._call("Page.navigate", url=url).get("errorText")
        assert not error, error
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        result = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while (answer := self._next()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        """Return the next message of the browser."""
        assert self._process.stdout is not None
        while b"\0" not in self._read:
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            assert part, "the browser has ended"
            self._read += part
        line, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
