"""Requests that the service should reject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from belated.journals import Journal
from belated.service.http.openapi import describe
from belated.service.http.routes import BANDIT_ROUTES, find
from belated.wire.messages import Problem
from tests.integration.listening import listening

#: Stands in whatever is sent here, and so must not stand in a log or a metric.
SECRET = "hush-7f3a"

_PATHS = describe(BANDIT_ROUTES, keys=True, tokens=True)["paths"]


class Asking:
    """Sends bytes to one bandit, and inspects its journal."""

    def __init__(self, http: httpx.Client, journal: Journal, bandit: str) -> None:
        self.http = http
        self.journal = journal
        self.base = f"/v1/{bandit}"

    def send(
        self, method: str, path: str, body: bytes | dict[str, Any] = b"", **headers: str
    ) -> httpx.Response:
        """Send a request unchanged; header names have hyphens for underscores."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        fields = {"content-type": "application/json"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.request(method, self.base + path, content=content, headers=fields)

    def decide(self, body: bytes | dict[str, Any]) -> httpx.Response:
        """Request a decision."""
        return self.send("POST", "/decisions", body)

    def decide_many(self, *offers: dict[str, Any]) -> httpx.Response:
        """Request several decisions."""
        return self.send("POST", "/decisions/batch", {"requests": offers})

    def reward(self, body: bytes | dict[str, Any], id: str = SECRET) -> httpx.Response:
        """Report a reward."""
        return self.send("PUT", f"/decisions/{id}/reward", body)

    def reward_many(self, *rewards: dict[str, Any]) -> httpx.Response:
        """Report several."""
        return self.send("POST", "/rewards/batch", {"rewards": rewards})

    def story(self, id: str) -> dict[str, Any]:
        """Return everything known about a decision."""
        story: dict[str, Any] = self.send("GET", f"/decisions/{id}").json()
        return story

    @property
    def length(self) -> int:
        """Return the length of the journal."""
        return sum(self.journal.end(partition) for partition in range(self.journal.partitions))

    def refused(self, ask: Callable[[], httpx.Response], *statuses: int) -> str:
        """Assert that a request is rejected as documented, storing nothing; return the detail."""
        length = self.length
        response = ask()
        assert response.status_code in statuses, response.text[:500]
        assert response.headers["content-type"] == "application/problem+json"
        problem = msgspec.json.decode(response.content, type=Problem)
        assert problem.status == response.status_code
        assert problem.detail
        assert len(problem.detail) < 500
        assert self.length == length
        if response.status_code not in (404, 405):
            method, path = response.request.method, response.request.url.raw_path.decode()
            route = find(method, "", path.partition("?")[0].split("/")[3:])
            assert str(response.status_code) in _PATHS[route.path][method.lower()]["responses"]
        return problem.detail


@contextmanager
def nothing_told(http: httpx.Client, *secrets: str) -> Iterator[None]:
    """Assert that none of these texts is logged on stderr or in the metrics."""
    with listening() as lines:
        yield
        lines.append(http.get("/metrics").text)
    assert not [line for line in lines for secret in secrets if secret in line]
