"""The service over HTTP: an ASGI application that decides, and takes rewards."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, unquote

from belated.fold import Fold
from belated.identity import identify
from belated.journals import PostgresBoard, PostgresJournal
from belated.journals.arrivals import system_clock
from belated.service.bodies import Alive, Ready
from belated.service.desk import Definition, Desk
from belated.service.exchange import (
    Receive,
    Scope,
    Send,
    answer,
    answer_bytes,
    answer_problem,
    body_of,
    check_plain,
)
from belated.service.learners import Learners
from belated.service.learning import LearningService
from belated.service.lease import SECONDS
from belated.service.openapi import document
from belated.service.problems import ProblemError, headers_of, problem_of
from belated.service.routes import BANDIT_ROUTES, Call, Route, find

log = logging.getLogger("belated.service")

#: The largest body, in bytes.
BODY = 1 << 20
#: A model older than this, in seconds, is not fresh enough to be ready.
FRESH = 600.0


def create_app(
    bandits: Sequence[Definition],
    dsn: str,
    *,
    learn: bool = False,
    lease: float = SECONDS,
    body_limit: int = BODY,
    clock: Callable[[], int] = system_clock,
    seed: int | None = None,
) -> Service:
    """The application, for uvicorn or any other server that speaks ASGI.

    Args:
        bandits: that are decided here.
        dsn: of the database with their journals.
        learn: learn them too, in threads of this process; else ``belated learn`` does, elsewhere.
        lease: seconds for which a learner that has died is missed.
        body_limit: how many bytes a request may have.
        clock: gives microseconds since 1970.
        seed: of the choices.
    """
    return Service(
        bandits, dsn, learn=learn, lease=lease, body_limit=body_limit, clock=clock, seed=seed
    )


class Service:
    """An ASGI application; :func:`create_app` makes it."""

    def __init__(
        self,
        bandits: Sequence[Definition],
        dsn: str,
        *,
        learn: bool,
        lease: float,
        body_limit: int,
        clock: Callable[[], int],
        seed: int | None,
    ) -> None:
        self.definitions = {one.name: one for one in bandits}
        self.desks: dict[str, Desk] = {}
        # What is asked most, by method and path, so that it need not be taken apart each time.
        self._quick: dict[tuple[str, bytes], tuple[Desk, Route, str]] = {}
        self._dsn = dsn
        self._limit = body_limit
        self._clock = clock
        self._seed = seed
        self._learners = Learners(
            {
                name: partial(learning, one, dsn, clock=clock, lease=lease)
                for name, one in self.definitions.items()
                if learn
            }
        )
        #: How many requests there were, by method and path of their route and status.
        self.requests: Counter[tuple[str, str, int]] = Counter()

        from belated.service.metrics import Metrics  # needs prometheus-client

        self.metrics = Metrics(self.desks, self._learners, self.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection event: a request, or the life of the server."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    # --- requests --------------------------------------------------------------------------------

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        route: Route | None = None
        try:
            # The raw path: in the other one a slash within an id cannot be told from one between.
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            found = self._quick.get((scope["method"], raw))
            if found is None and not raw.startswith(b"/v1/"):
                route = _around(scope["method"], scope["path"])
                status, content = route.handler(self)
            else:
                desk, route, id = found or self._find(scope["method"], raw)
                check_plain(scope["headers"])
                data = await body_of(receive, self._limit)
                query = scope.get("query_string", b"")
                content = await route.handler(Call(desk, id, route.read(data), query))
                status = route.status
        except Exception as error:
            problem = problem_of(error)
            self._count(route, problem.status)
            if problem.status == 500:
                log.exception("a request failed")
            await answer_problem(send, problem, headers_of(error))
            return
        self._count(route, status)
        if isinstance(content, bytes):
            await answer_bytes(send, status, route.content.encode(), content)
        else:
            await answer(send, status, content)

    def _find(self, method: str, raw: bytes) -> tuple[Desk, Route, str]:
        """Whose request it is, what it asks for, and the id in its path."""
        _, _, name, *parts = raw.decode("latin-1").split("/")
        desk = self.desks.get(_text(name))
        if desk is None:
            raise ProblemError(404, "Not found", f"there is no bandit {_text(name)!r} here")
        return desk, find(method, parts), _text(parts[1]) if len(parts) > 1 else ""

    def _count(self, route: Route | None, status: int) -> None:
        method, path = ("other", "other") if route is None else (route.method, route.path)
        self.requests[method, path, status] += 1

    def _livez(self) -> tuple[int, Any]:
        return 200, Alive()

    def _readyz(self) -> tuple[int, Any]:
        stale = [name for name, desk in self.desks.items() if desk.age is None or desk.age > FRESH]
        return (503, Ready("stale", stale)) if stale else (200, Ready("ready", []))

    def _metrics(self) -> tuple[int, Any]:
        return 200, self.metrics.text()

    def _openapi(self) -> tuple[int, Any]:
        return 200, self._document

    @cached_property
    def _document(self) -> bytes:
        return document([*BANDIT_ROUTES, *AROUND])

    # --- the life of the server ------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self.start(asyncio.get_running_loop())
        except Exception as error:
            log.exception("the service cannot start")
            await asyncio.to_thread(self.close)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(self.close)
        await send({"type": "lifespan.shutdown.complete"})

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the journals, take the models, and learn if that is to be done here."""
        for definition in self.definitions.values():
            desk = Desk(definition, self._dsn, loop, clock=self._clock, seed=self._seed)
            self.desks[definition.name] = desk
            path = f"/v1/{quote(definition.name, safe='')}/decisions".encode()
            self._quick["POST", path] = desk, find("POST", ["decisions"]), ""
        self._learners.start()

    def close(self) -> None:
        """Answer what is under way, then let go of everything."""
        for desk in self.desks.values():
            desk.close()
        self._learners.stop()


def learning(
    definition: Definition,
    dsn: str,
    *,
    clock: Callable[[], int] = system_clock,
    lease: float = SECONDS,
) -> LearningService:
    """The learner of a bandit."""
    journal = PostgresJournal(dsn, bandit=definition.name, partitions=definition.partitions)
    identify(journal, definition.policy, definition.features)

    def fold() -> Fold:
        return Fold(
            definition.policy,
            definition.rewards,
            partitions=journal.partitions,
            retention=definition.retention,
        )

    board = PostgresBoard(dsn, bandit=definition.name)
    return LearningService(journal, board, fold, clock=clock, lease=lease)


# --- what is not about one bandit ----------------------------------------------------------------

AROUND = (
    Route("GET", "/livez", Service._livez, "Whether the process runs", Alive),
    Route(
        "GET",
        "/readyz",
        Service._readyz,
        "Whether requests should come here",
        Ready,
        also={503: Ready},
    ),
    Route(
        "GET",
        "/metrics",
        Service._metrics,
        "Metrics for Prometheus",
        None,
        content="text/plain; version=0.0.4; charset=utf-8",
    ),
    Route("GET", "/openapi.json", Service._openapi, "This document", None),
)
_AROUND = {route.path: route for route in AROUND}


def _around(method: str, path: str) -> Route:
    route = _AROUND.get(path)
    if route is None:
        raise ProblemError(404, "Not found", f"there is no {path}")
    if method != route.method:
        message = f"this takes {route.method}, not {method}"
        raise ProblemError(405, "Method not allowed", message, headers={"allow": route.method})
    return route


def _text(part: str) -> str:
    """A part of a path as it is meant."""
    return unquote(part, errors="strict")
