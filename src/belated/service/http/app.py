"""The service over HTTP: an ASGI application that decides, and takes rewards."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, unquote

from belated.exceptions import InvalidInput, UnknownBandit
from belated.journals import Store, open_store
from belated.journals.steady_clock import system_clock
from belated.service.access.authorizer import Auth, Authorizer
from belated.service.access.tokens import LIFETIME, NOBODY, RewardTokens, TokenSecrets
from belated.service.http.asgi_io import (
    Receive,
    Scope,
    Send,
    answer,
    answer_bytes,
    answer_empty,
    answer_problem,
    body_of,
    check_plain,
    last,
)
from belated.service.http.cors import NO_HEADERS, Cors, wanted_method
from belated.service.http.openapi import document
from belated.service.http.parsing import rewards_in
from belated.service.http.problems import ProblemError, headers_of, problem_of
from belated.service.http.routes import BANDIT_ROUTES, Call, DeferredResponse, Route, find
from belated.service.learning.learners import Learners, learning_service
from belated.service.learning.lease import SECONDS
from belated.service.runtime import Runtime, ThreadRuntime
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandit import MAX_MODEL_AGE, ServedBandit
from belated.service.serving.spools import Spools
from belated.service.wire.problem import Problem
from belated.service.wire.schemas import MAX_BODY_BYTES, Alive, Ready

log = logging.getLogger("belated.service")


def create_app(
    bandits: Sequence[Definition],
    store: str | Store,
    *,
    learn: bool = False,
    lease: float = SECONDS,
    max_body_bytes: int = MAX_BODY_BYTES,
    auth: Auth = "off",
    token_keys: TokenSecrets | None = None,
    cors: Sequence[str] = (),
    spools: Spools | None = None,
    clock: Callable[[], int] = system_clock,
    seed: int | None = None,
) -> Service:
    """The application, for uvicorn or any other server that speaks ASGI.

    Args:
        bandits: that are decided here.
        store: of their journals, or its address.
        learn: learn them too, in threads of this process; else ``belated learn`` does, elsewhere.
        lease: seconds for which a learner that has died is missed.
        max_body_bytes: how many bytes a request may have.
        auth: ``"keys"`` if every request must come with a key, ``"off"`` if anyone may ask.
        token_keys: that sign the tokens of rewards, for bandits that make them.
        cors: origins whose pages may send requests from a browser, such as
            ``"https://shop.example"``; requests of other pages are refused.
        spools: where events wait while the database is away; None to refuse them then.
        clock: gives microseconds since 1970.
        seed: of the choices.
    """
    return Service(
        bandits,
        open_store(store) if isinstance(store, str) else store,
        learn=learn,
        lease=lease,
        max_body_bytes=max_body_bytes,
        auth=auth,
        token_keys=token_keys,
        cors=cors,
        spools=spools,
        runtime=ThreadRuntime(clock),
        seed=seed,
    )


class Service:
    """An ASGI application; :func:`create_app` makes it."""

    def __init__(
        self,
        bandits: Sequence[Definition],
        store: Store,
        *,
        learn: bool,
        lease: float,
        max_body_bytes: int,
        auth: Auth,
        token_keys: TokenSecrets | None,
        cors: Sequence[str],
        spools: Spools | None,
        runtime: Runtime,
        seed: int | None,
    ) -> None:
        self.definitions = {one.name: one for one in bandits}
        self.bandits: dict[str, ServedBandit] = {}
        # What is asked most, by method and path, so that it need not be taken apart each time.
        self._quick: dict[tuple[str, bytes], tuple[str, Route, str]] = {}
        self._store = store
        #: How many bytes a request may have.
        self.max_body_bytes = max_body_bytes
        #: Knows the pages that may ask.
        self.cors = Cors(cors)
        self._auth = auth
        #: Knows the keys; None where anyone may ask.
        self.authorizer: Authorizer | None = None
        #: Of the bandits that make them.
        self.tokens = {
            one.name: _tokens(one, token_keys, auth == "keys", runtime.clock)
            for one in bandits
            if one.tokens != "off"
        }
        self._spools = spools
        self._runtime = runtime
        self._seed = seed
        self._learners = Learners(
            {
                name: partial(learning_service, one, store, lease=lease)
                for name, one in self.definitions.items()
                if learn
            }
        )
        #: Whether it will stop soon: requests are answered, but should be sent elsewhere.
        self.draining = False
        #: How many requests there were, by method and path of their route and status.
        self.requests: Counter[tuple[str, str, int]] = Counter()

        from belated.service.operating.metrics import Metrics  # needs prometheus-client

        self.metrics = Metrics(
            self.bandits, self._learners, self.requests, lambda: self.authorizer, self.tokens
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection event: a request, or the life of the server."""
        if scope["type"] == "http":
            await self._request(scope, receive, last(send) if self.draining else send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    # --- requests --------------------------------------------------------------------------------

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        route: Route | None = None
        headers, more = scope["headers"], NO_HEADERS
        try:
            # The raw path: in the other one a slash within an id cannot be told from one between.
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            if raw.startswith(b"/v1/"):
                if (wanted := wanted_method(scope["method"], headers)) is not None:
                    _, allowed, _ = self.find(wanted, raw)
                    more = self.cors.preflight(allowed, headers)
                    self.count(None, 204)
                    await answer_empty(send, more)
                    return
                name, route, id = self.find(scope["method"], raw)
                more = self.cors.admit(route, headers)
                key = self.admit(name, route, headers)
                body = await body_of(receive, self.max_body_bytes)
                query = scope.get("query_string", b"")
                waiting, render = self.ask(name, route, id, key, body, query)
                del body  # nothing of it need be kept while a commit is awaited
                status, content = route.status, render(await waiting)
            else:
                route = _around(scope["method"], scope["path"])
                if self.authorizer is not None and route.scope is not None:
                    self.authorizer.authorize(headers, route.scope, None)
                status, content = route.handler(self)
        except Exception as error:
            problem, why = self.refused(route, error)
            await answer_problem(send, problem, {**why, **more})
            return
        self.count(route, status)
        if isinstance(content, bytes):
            await answer_bytes(send, status, route.content.encode(), content, more)
        else:
            await answer(send, status, content, more)

    # The steps of a request for a bandit, whichever way it comes.

    def find(self, method: str, path: bytes) -> tuple[str, Route, str]:
        """The bandit that is meant, what is asked of it, and the id in the path."""
        return self._quick.get((method, path)) or _taken_apart(method, path)

    def admit(self, name: str, route: Route, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """The name of the key it comes with, before anything of the body is read."""
        key = None
        if self.authorizer is not None and route.scope is not None:
            key = self.authorizer.authorize(headers, route.scope, name)
        if name not in self.bandits and (key is not None or self.authorizer is None):
            raise _no_bandit(name)
        check_plain(headers)
        return key

    def ask(
        self,
        name: str,
        route: Route,
        id: str,
        key: str | None,
        body: bytes | bytearray,
        query: bytes,
    ) -> DeferredResponse:
        """Have it done."""
        read = route.read(body)
        if route.scope == "reward":
            self._check_tokens(name, id, read, key is not None)
        bandit = self.bandits.get(name)
        if bandit is None:  # without a key nobody comes as far as this
            raise _no_bandit(name)
        response: DeferredResponse = route.handler(
            Call(bandit, id, read, query, self.tokens.get(name), key or "")
        )
        return response

    def count(self, route: Route | None, status: int) -> None:
        """One more request was answered."""
        method, path = ("other", "other") if route is None else (route.method, route.path)
        self.requests[method, path, status] += 1

    def refused(self, route: Route | None, error: Exception) -> tuple[Problem, dict[str, str]]:
        """What is answered in place of what was asked, and the headers of that."""
        problem = problem_of(error)
        self.count(route, problem.status)
        if problem.status == 500:
            log.error("a request failed", exc_info=error)
        return problem, headers_of(error)

    def _check_tokens(self, name: str, id: str, body: Any, keyed: bool) -> None:
        tokens = self.tokens.get(name)
        if tokens is None:
            if keyed or self.authorizer is None:
                return
            tokens = NOBODY  # alike for a bandit that makes none, and one that is not here
        for one, reward in rewards_in(id, body):
            tokens.check(one, reward, keyed)

    def _livez(self) -> tuple[int, Any]:
        return 200, Alive()

    def _readyz(self) -> tuple[int, Any]:
        if self.draining:
            return 503, Ready("draining", [])
        stale = [name for name, one in self.bandits.items() if one.is_stale(MAX_MODEL_AGE)]
        if not stale:
            return 200, Ready("ready", [])
        # Anyone may ask this: where keys are needed, names of bandits are not for all.
        return 503, Ready("stale", stale if self.authorizer is None else [])

    def _metrics(self) -> tuple[int, Any]:
        return 200, self.metrics.text()

    def _openapi(self) -> tuple[int, Any]:
        return 200, self._document

    @cached_property
    def _document(self) -> bytes:
        routes = [*BANDIT_ROUTES, *AROUND]
        return document(routes, keys=self._auth == "keys", tokens=bool(self.tokens))

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
        if self._auth == "keys":
            keys = self._store.keys()
            self.authorizer = Authorizer(keys, self._runtime, tokens=bool(self.tokens))
        for definition in self.definitions.values():
            self.bandits[definition.name] = ServedBandit(
                definition,
                self._store,
                loop,
                self._runtime,
                spools=self._spools,
                seed=self._seed,
            )
            path = f"/v1/{quote(definition.name, safe='')}/decisions".encode()
            self._quick["POST", path] = definition.name, find("POST", ["decisions"]), ""
        self._learners.start()

    def close(self) -> None:
        """Answer what is under way, then let go of everything."""
        if self.bandits:
            with ThreadPoolExecutor(len(self.bandits)) as crew:  # each may have to wait
                list(crew.map(ServedBandit.close, self.bandits.values()))
        self._learners.stop()
        if self.authorizer is not None:
            self.authorizer.close()


def _tokens(
    definition: Definition, keys: TokenSecrets | None, guarded: bool, clock: Callable[[], int]
) -> RewardTokens:
    if keys is None:
        message = f"{definition.name} makes tokens, and there are no keys to sign them with"
        raise InvalidInput(f"{message}: add secrets_env under [tokens]", definition.name)
    least, most = definition.rewards.range(definition.policy.family.support)
    learned = definition.retention or definition.rewards.window_us or LIFETIME
    return RewardTokens(
        keys,
        definition.name,
        mode=definition.tokens,
        guarded=guarded,
        lifetime=definition.token_lifetime or learned,
        least=least,
        most=most,
        clock=clock,
    )


# --- what is not about one bandit ----------------------------------------------------------------

AROUND = (
    Route("GET", "/livez", Service._livez, "Whether the process runs", Alive, scope=None),
    Route(
        "GET",
        "/readyz",
        Service._readyz,
        "Whether requests should come here",
        Ready,
        also={503: Ready},
        scope=None,
    ),
    Route(
        "GET",
        "/metrics",
        Service._metrics,
        "Metrics for Prometheus",
        None,
        content="text/plain; version=0.0.4; charset=utf-8",
        scope="read",
    ),
    Route("GET", "/openapi.json", Service._openapi, "This document", None, scope="read"),
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


def _no_bandit(name: str) -> UnknownBandit:
    return UnknownBandit(f"there is no bandit {name!r} here")


def _taken_apart(method: str, raw: bytes) -> tuple[str, Route, str]:
    """The name of the bandit in a path, what is asked, and the id in it."""
    _, _, name, *parts = raw.decode("latin-1").split("/")
    return _text(name), find(method, parts), _text(parts[1]) if len(parts) > 1 else ""


def _text(part: str) -> str:
    """A part of a path as it is meant."""
    return unquote(part, errors="strict")
