"""The Python client makes the exchanges of clients/conformance.json, like every other client."""

from __future__ import annotations

import base64
import json
import time
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from belated import exceptions
from belated.client import Client
from belated.core.ids import key_of, slot_of, time_of
from tests.unit.client.mock import Awaited

FILE = Path(__file__).parents[3] / "clients/conformance.json"
CASES = json.loads(FILE.read_text(encoding="utf-8"))["cases"]
NETWORK = {
    "timeout": httpx.ReadTimeout("timed out"),
    "refused": httpx.ConnectError("connection refused"),
}


class Recorded:
    """A service that expects the exchanges of a case, one step after the other."""

    def __init__(self) -> None:
        self.exchanges: list[dict[str, Any]] = []
        self.ids: set[str] = set()
        self.wait: float | None = None

    def sleep(self, seconds: float) -> None:
        """Note the wait before the next request."""
        self.wait = seconds

    async def sleep_async(self, seconds: float) -> None:
        """Note the wait before the next request."""
        self.wait = seconds

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Check a request, and return the recorded response."""
        exchange = self.exchanges.pop(0)
        expected, response = exchange["request"], exchange["response"]
        body = unpacked(json.loads(request.content)) if request.content else None
        actual: dict[str, Any] = {
            "method": request.method,
            "path": request.url.raw_path.decode().partition("?")[0],
            "body": body,
            "at": request.url.params.get("at"),
        }
        if "authorization" in expected:
            actual["authorization"] = request.headers.get("authorization")
        self.check(expected, actual, "request")
        if "wait" in exchange:
            least, most = exchange["wait"]
            assert self.wait is not None
            assert least <= self.wait <= most
        else:
            assert self.wait is None
        self.wait = None
        if "error" in response:
            raise NETWORK[response["error"]]
        content = response["body"]
        text = content if isinstance(content, str) else json.dumps(content)
        return httpx.Response(response["status"], text=text, headers=response.get("headers"))

    def check(self, expected: Any, actual: Any, where: str) -> None:
        """Compare values; a missing field is the same as null."""
        if isinstance(expected, dict):
            for name in expected.keys() | actual.keys():
                self.check(expected.get(name), actual.get(name), f"{where}.{name}")
        elif isinstance(expected, list):
            assert len(actual) == len(expected), where
            for n, (first, second) in enumerate(zip(expected, actual, strict=True)):
                self.check(first, second, f"{where}[{n}]")
        elif isinstance(expected, str):
            assert self.matches(expected, actual), f"{where} is {actual!r}, not {expected!r}"
        else:
            assert actual == expected, where

    def matches(self, expected: str, actual: Any) -> bool:
        """Return whether a text is the expected one, or of the expected kind."""
        if expected.startswith("<id"):
            self.ids.add(actual)
            made = time_of(actual)
            slot = expected.removeprefix("<id in slot ").removesuffix(">")
            in_slot = expected == "<id>" or slot_of(key_of(actual)) == int(slot)
            return made is not None and recent(made / 1e6) and in_slot and len(self.ids) == 1
        if expected == "<now>":
            return recent(datetime.fromisoformat(actual).timestamp())
        try:
            return datetime.fromisoformat(expected) == datetime.fromisoformat(actual)
        except ValueError:
            return bool(actual == expected)


def recent(seconds: float) -> bool:
    """Return whether a time since 1970 is about now."""
    return abs(seconds - time.time()) < 60


def unpacked(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with its rows as lists: this client sends them in base64."""
    if isinstance(body.get("rows"), str):
        numbers = np.frombuffer(base64.b64decode(body["rows"]), "<f4")
        body["rows"] = numbers.reshape(-1, body.pop("dim")).tolist()
    return body


def recorded_client(kind: type, recorded: Recorded, options: dict[str, Any]) -> Any:
    """Return a client whose requests and waits end in `recorded`."""
    client = kind("http://service", **options)
    transport, http = client._transport, client._transport._http
    transport._http = type(http)(
        base_url=http.base_url,
        headers=http.headers,
        transport=httpx.MockTransport(recorded.handle),
    )
    transport._sleep = recorded.sleep if kind is Client else recorded.sleep_async
    return client if kind is Client else Awaited(client)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_conformance(case: dict[str, Any], kind: type) -> None:
    """Requests, waits and results are those of the file."""
    recorded = Recorded()
    client = recorded_client(kind, recorded, case["client"])
    for step in case["steps"]:
        recorded.exchanges = list(step["exchanges"])
        call, error = getattr(client, step["method"]), step.get("error")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", exceptions.FallbackWarning)
            if error is not None:
                with pytest.raises(getattr(exceptions, error)):
                    call(**step["arguments"])
            else:
                result = msgspec.to_builtins(call(**step["arguments"]))
                if isinstance(step["result"], dict):  # it lists the fields that matter
                    result = {name: result.get(name) for name in step["result"]}
                recorded.check(step["result"], result, step["method"])
        assert recorded.exchanges == []
