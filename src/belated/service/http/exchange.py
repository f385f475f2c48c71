"""A request and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from belated.service.access.tokens import RewardTokens
from belated.service.http.cors import NO_HEADERS
from belated.service.http.routes import Route
from belated.service.serving.served_bandit import ServedBandit
from belated.wire.keys import Key

if TYPE_CHECKING:
    from belated.service.http.connection import Connection

JSON, PROBLEM = b"application/json", b"application/problem+json"
encode = msgspec.json.Encoder().encode


class Exchange:
    """One request over a connection, from its headers to its answer.

    Attributes:
        method: of the request.
        keep_alive: whether another request may follow over the connection.
        body: as far as it has come.
        error: why it is refused, if that was plain before its turn came.
        route: what is asked; None as long as that is not known.
        bandit: that is asked, once that is allowed; None if it is about none.
        tokens: of the bandit, where it makes any.
        id: in its path, empty if there is none.
        query: what stands after the question mark.
        key: it came with; None without one.
        more: headers with which a page may read the answer.
    """

    __slots__ = (
        "_connection",
        "bandit",
        "body",
        "error",
        "id",
        "keep_alive",
        "key",
        "method",
        "more",
        "query",
        "route",
        "tokens",
    )

    bandit: ServedBandit

    def __init__(self, connection: Connection, method: str, keep_alive: bool) -> None:
        self._connection = connection
        self.method = method
        self.keep_alive = keep_alive
        self.body: bytes | bytearray = b""
        self.error: Exception | None = None
        self.route: Route | None = None
        self.tokens: RewardTokens | None = None
        self.id = ""
        self.query = b""
        self.key: Key | None = None
        self.more: Mapping[str, str] = NO_HEADERS

    @property
    def key_name(self) -> str:
        """The name of the key it came with, empty without one."""
        return "" if self.key is None else self.key.name

    def ask(self) -> None:
        """Have it answered: now, or later."""
        if self.error is not None:
            # Raised here it would keep this frame, and that the error: and all that was received,
            # in the frames that called, until the collector of cycles looks.
            self.refuse(self.error)
            return
        body, self.body = self.body, b""  # nothing of it need be kept while a commit is awaited
        try:
            self._connection.service.ask(self, body)
        except Exception as error:
            self.refuse(error)

    def settle(self, found: Any) -> None:
        """What was waited for has come, or an error in its place."""
        if isinstance(found, Exception):
            self.refuse(found)
            return
        route = self.route
        assert route is not None
        assert route.render is not None
        try:
            content = encode(route.render(self, found))
        except Exception as error:
            self.refuse(error)
            return
        self.respond(route.status, JSON, content)

    def respond(self, status: int, kind: bytes, content: bytes) -> None:
        """Send the answer."""
        self._connection.service.count(self.route, status)
        self._connection.send(self, status, kind, content, self.more)

    def refuse(self, error: Exception) -> None:
        """Send a problem in place of the answer."""
        problem, headers = self._connection.service.refused(self.route, error)
        more = {**headers, **self.more}
        self._connection.send(self, problem.status, PROBLEM, encode(problem), more)
