"""Asking the service for what it should refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from belated.journals import PostgresJournal
from belated.service.problems import Problem
from tests.integration.listening import listening

#: Stands in whatever is sent here, and so must not stand in a log.
SECRET = "hush-7f3a"


class Asking:
    """Sends bytes to one bandit, and looks into its journal."""

    def __init__(self, http: httpx.Client, journal: PostgresJournal, bandit: str) -> None:
        self.http = http
        self.journal = journal
        self.base = f"/v1/{bandit}"

    def send(
        self, method: str, path: str, body: bytes | dict[str, Any], **headers: str
    ) -> httpx.Response:
        """As it is; a header's name has hyphens for underscores."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.request(method, self.base + path, content=content, headers=named)

    def decide(self, body: bytes | dict[str, Any]) -> httpx.Response:
        """Ask for a decision."""
        return self.send("POST", "/decisions", body)

    def reward(self, body: bytes | dict[str, Any], id: str = SECRET) -> httpx.Response:
        """Report a reward."""
        return self.send("PUT", f"/decisions/{id}/reward", body)

    @property
    def length(self) -> int:
        """Of the journal."""
        return sum(self.journal.end(partition) for partition in range(self.journal.partitions))

    def refused(self, ask: Callable[[], httpx.Response], *statuses: int) -> str:
        """Ask, and see that it is refused and nothing is kept; gives the detail."""
        before = self.length
        response = ask()
        assert response.status_code in statuses, response.text
        assert response.headers["content-type"] == "application/problem+json"
        problem = msgspec.json.decode(response.content, type=Problem)
        assert problem.status == response.status_code
        assert problem.detail
        assert len(problem.detail) < 500
        assert self.length == before
        return problem.detail


@contextmanager
def nothing_logged() -> Iterator[None]:
    """Sees that the secret is in no line that would stand on stderr."""
    with listening() as lines:
        yield
    assert not [line for line in lines if SECRET in line]
