"""The service over HTTP: routing, authorization and the routes that are about no bandit."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from belated.exceptions import (
    InvalidInput,
    JournalError,
    JournalUnavailable,
    NotIndexed,
    UnknownBandit,
)
from belated.journals import Store, open_store
from belated.journals.steady_clock import system_clock
from belated.service.access.authorizer import Auth, Authorizer
from belated.service.access.origins import Cors
from belated.service.access.tokens import (
    LIFETIME,
    NOBODY,
    RewardTokens,
    TokenSecrets,
    check_bounded,
)
from belated.service.console.page import console_page
from belated.service.console.reports import Reports
from belated.service.http.openapi import describe
from belated.service.http.problems import ProblemError, malformed_json, problem_of
from belated.service.http.routes import (
    BANDIT_ROUTES,
    Exchange,
    Route,
    encode,
    find,
    no_slash,
    not_found,
    rewards_in,
    state_of,
)
from belated.service.learning.learners import learners_of
from belated.service.learning.lease import SECONDS
from belated.service.runtime import ThreadRuntime, dead_workers
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandits import MAX_MODEL_AGE, ServedBandit, ServedBandits
from belated.service.serving.spools import Spools
from belated.wire.keys import ALL, Key
from belated.wire.messages import (
    MAX_BODY_BYTES,
    Alive,
    BanditHealth,
    Bandits,
    Dead,
    DecisionRequests,
    Problem,
    Ready,
    RewardsBody,
    SubjectRewardsBody,
)

#: Seconds between two log lines about a store that refuses.
TROUBLE_LOG_SECONDS = 60.0

#: Bandits that an error names.
SHOWN = 10

log = logging.getLogger("belated.service")


class Service:
    """The decision service, for :func:`belated.service.http.server.serve`.

    Args:
        bandits: that are decided here.
        store: of their journals, or its address.
        learn: learn them too, in threads of this process; otherwise ``belated learn`` does.
        lease: seconds after which a learner that has died is replaced.
        max_body_bytes: how many bytes a request may have.
        auth: ``"keys"`` if every request must come with a key, ``"off"`` if anyone may ask.
        token_keys: that sign the tokens of rewards, for bandits that make them.
        cors: origins whose pages may send requests from a browser, such as
            ``"https://shop.example"``; requests of other pages are refused.
        spools: where events wait while the store is unavailable; None to refuse them then.
        clock: gives microseconds since 1970.
        seed: of the choices.

    Attributes:
        authorizer: knows the keys; None if none are needed.
        tokens: of the bandits that make them.
        draining: whether it will stop soon: requests are answered, but should be sent elsewhere.
        requests: how many there were, by method and path of their route and status.
        reports: of all bandits, for the console and the metrics.
    """

    def __init__(
        self,
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
    ) -> None:
        self.definitions = {one.name: one for one in bandits}
        self.bandits: dict[str, ServedBandit] = {}
        self._served: ServedBandits | None = None
        # The route of the most common request by its path, which need not be parsed each time.
        self._quick: dict[tuple[str, bytes], tuple[str, Route, str]] = {}
        self._store = open_store(store) if isinstance(store, str) else store
        self.max_body_bytes = max_body_bytes
        self._cors = Cors(cors)
        self._auth = auth
        self.authorizer: Authorizer | None = None
        self.tokens = {
            one.name: _tokens_of(one, token_keys, auth == "keys", clock)
            for one in bandits
            if one.tokens != "off"
        }
        self._spools = spools
        self._runtime = ThreadRuntime(clock)
        self._seed = seed
        self._learners = learners_of(list(bandits) if learn else [], self._store, lease=lease)
        self._trouble_due = -math.inf
        self.draining = False
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.reports = Reports(self._store, {one.name: one.actions for one in bandits})

        from belated.service.operating.metrics import Metrics  # needs prometheus-client

        self.metrics = Metrics(
            self.bandits, self._learners, self.requests, self.tokens, self.reports
        )

    # --- requests --------------------------------------------------------------------------------

    def admit(self, exchange: Exchange, path: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Find the route and authorize the request, before anything of the body is read.

        Raises:
            Exception: the request is refused; :meth:`problem_for` makes the response.
        """
        method = "GET" if exchange.method == "HEAD" else exchange.method
        if not path.startswith(b"/v1/"):
            exchange.route = route = _service_route(method, path)
            if self.authorizer is not None and route.scope is not None:
                about = ALL if route.everywhere else None
                exchange.key = self.authorizer.authorize(headers, route.scope, about)
            return
        wanted = headers.get(b"access-control-request-method")
        if wanted is not None and exchange.method == "OPTIONS":
            _, route, _ = self._find(wanted.decode("latin-1"), path)
            exchange.more = self._cors.preflight(route.method, route.scope, headers)
            exchange.route = PREFLIGHT
            return
        name, route, exchange.id = self._find(method, path)
        exchange.route = route
        if (origin := headers.get(b"origin")) is not None:
            keyed = self.authorizer is not None
            exchange.more = self._cors.admit(origin, route.scope, headers, keyed=keyed)
        if self.authorizer is not None and route.scope is not None:
            exchange.key = self.authorizer.authorize(headers, route.scope, name)
        bandit = self.bandits.get(name)
        if bandit is not None:
            exchange.bandit = bandit
            exchange.tokens = self.tokens.get(name)
        elif exchange.key is not None or self.authorizer is None:
            raise self._unknown_bandit(name, exchange.key)
        else:  # without a key nobody learns whether there is such a bandit: no token is valid
            exchange.tokens = NOBODY
        _check_content(headers, json=route.body is not None)

    def _unknown_bandit(self, name: str, key: Key | None) -> UnknownBandit:
        """Return the error for a bandit that is not here: it lists those that the key is for."""
        known = [
            repr(one)
            for one in self.bandits
            if key is None or key.everywhere or one in key.bandits
        ]  # fmt: skip
        known[SHOWN:] = [f"{len(known) - SHOWN} more"] if len(known) > SHOWN else []
        others = f", but {', '.join(known)}" if known else ""
        return UnknownBandit(f"there is no bandit {name!r} here{others}")

    def dispatch(self, exchange: Exchange, body: bytes | bytearray) -> None:
        """Handle a request; the response may be sent later."""
        route = exchange.route
        assert route is not None
        if route.of_service:
            status, content = route.handler(self, exchange)
            exchange.connection.respond(exchange, status, route.content.encode(), content)
            return
        try:
            read = route.read(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            raise malformed_json(error, body) from None
        if exchange.key is not None:
            self._charge(exchange.key, read)
        if route.scope == "reward":
            self._check_tokens(exchange, read)
        route.handler(exchange, read)

    def _find(self, method: str, path: bytes) -> tuple[str, Route, str]:
        """Return the bandit in the path, the route, and the decision id in the path."""
        return self._quick.get((method, path)) or _parse_path(method, path)

    def count(self, route: Route | None, status: int) -> None:
        """Count a response."""
        method, path = ("other", "other") if route is None else (route.method, route.path)
        self.requests[method, path, status] += 1

    def problem_for(self, route: Route | None, error: Exception) -> tuple[Problem, dict[str, str]]:
        """Return the problem for an error and the headers of the response; log what needs it."""
        problem, headers = problem_of(error, None if route is None else route.body)
        self.count(route, problem.status)
        if problem.status == 500:
            log.error("a request failed", exc_info=error)
        elif isinstance(error, JournalError) and not isinstance(
            error, JournalUnavailable | NotIndexed
        ):
            self._log_trouble(error)
        return problem, headers

    def _log_trouble(self, error: JournalError) -> None:
        """Log that the store refuses requests, though it is up; not for every request."""
        now = self._runtime.monotonic()
        if now >= self._trouble_due:
            self._trouble_due = now + TROUBLE_LOG_SECONDS
            log.error("the store refuses what is asked of it", extra={"why": str(error)})

    def _charge(self, key: Key, body: Any) -> None:
        """Count the items of a batch; the first was counted when the key was checked."""
        assert self.authorizer is not None
        if isinstance(body, DecisionRequests):
            self.authorizer.charge(key, len(body.requests) - 1)
        elif isinstance(body, RewardsBody | SubjectRewardsBody):
            self.authorizer.charge(key, len(body.rewards) - 1)

    def _check_tokens(self, exchange: Exchange, body: Any) -> None:
        tokens, keyed = exchange.tokens, exchange.key is not None
        if tokens is None:
            if keyed or self.authorizer is None:
                return
            tokens = NOBODY  # alike for a bandit that makes none, and one that is not here
        for one, reward in rewards_in(exchange.id, body):
            tokens.check(one, reward, keyed)

    def readyz(self, _: object = None) -> tuple[int, bytes]:
        """Return whether requests should come here."""
        if self.draining:
            return 503, encode(Ready("draining"))
        if self._served is not None and self._served.poll.replaced:
            return 503, encode(Ready("journal replaced"))
        # Anyone may ask this: where keys are needed, names of bandits are not for all.
        shown = self.bandits if self.authorizer is None else {}
        others = [name for name, one in shown.items() if one.has_other_features]
        stale = {name: one for name, one in self.bandits.items() if one.is_stale(MAX_MODEL_AGE)}
        if not stale:
            return 200, encode(Ready("ready", other_features=others))
        status = "no model" if all(one.age is None for one in stale.values()) else "stale"
        names = [name for name in stale if name in shown]
        return 503, encode(Ready(status, names, others, len(stale)))

    @cached_property
    def document(self) -> bytes:
        """The OpenAPI document."""
        routes = [*BANDIT_ROUTES, *SERVICE_ROUTES]
        return encode(describe(routes, keys=self._auth == "keys", tokens=bool(self.tokens)))

    # --- the life of the server ------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the journals, load the models, and start the learners of this process."""
        self._served = ServedBandits(
            list(self.definitions.values()),
            self._store,
            loop,
            self._runtime,
            spools=self._spools,
            seed=self._seed,
        )
        self.bandits.update(self._served)
        self.metrics.commits = self._served.commits
        if self._auth == "keys":
            keys = self._served.polling.keys()
            self.authorizer = Authorizer(keys, self._runtime, tokens=bool(self.tokens))
            self.metrics.authorizer = self.authorizer
        for name, bandit in self.bandits.items():
            bandit.report_page = self.reports[name]
            path = f"/v1/{quote(name, safe='')}/decisions".encode()
            self._quick["POST", path] = name, find("POST", ["decisions"]), ""
        self._learners.start()

    def close(self) -> None:
        """Answer what is under way, then close the store."""
        self.reports.close()
        if self.authorizer is not None:
            self.authorizer.close()
        if self._served is not None:
            self._served.close()
        self._learners.stop()


# --- routes of the service -----------------------------------------------------------------------


def _livez(service: Service, _: Exchange) -> tuple[int, bytes]:
    if dead := dead_workers():  # anyone may ask this: why they fail is in the log
        return 503, encode(Dead(dead))
    return 200, encode(Alive())


def _metrics(service: Service, _: Exchange) -> tuple[int, bytes]:
    return 200, service.metrics.text()


def _openapi(service: Service, _: Exchange) -> tuple[int, bytes]:
    return 200, service.document


def _page(service: Service, _: Exchange) -> tuple[int, bytes]:
    return 200, console_page()


def _to_console(service: Service, exchange: Exchange) -> tuple[int, bytes]:
    exchange.more = {"location": "/console"}
    return 307, b""


def _bandits(service: Service, exchange: Exchange) -> tuple[int, bytes]:
    key = exchange.key
    return 200, encode(
        Bandits(
            [
                BanditHealth(
                    **msgspec.structs.asdict(state_of(bandit)),
                    stale=bandit.is_stale(MAX_MODEL_AGE),
                    decisions=bandit.stats.decisions,
                    rewards=bandit.stats.rewards,
                    url=f"/v1/{quote(name, safe='')}",
                )
                for name, bandit in sorted(service.bandits.items())
                if key is None or key.may("read", name)
            ]
        )
    )


def _nothing(service: Service, _: Exchange) -> tuple[int, bytes]:
    return 204, b""


SERVICE_ROUTES = (
    Route(
        "GET", "/livez", _livez, "Whether the process and its workers run", Alive,
        also={503: Dead}, scope=None, of_service=True,
    ),
    Route(
        "GET", "/readyz", Service.readyz, "Whether requests should come here", Ready,
        also={503: Ready}, scope=None, of_service=True,
    ),
    Route(
        "GET", "/metrics", _metrics, "Metrics for Prometheus", None,
        content="text/plain; version=0.0.4; charset=utf-8", scope="read", everywhere=True,
        of_service=True,
    ),
    Route(
        "GET", "/openapi.json", _openapi, "This document", None, scope="read", of_service=True
    ),
    Route(
        "GET", "/console", _page, "The console, for people", None,
        content="text/html; charset=utf-8", scope=None, of_service=True,
    ),
    Route(
        "GET", "/", _to_console, "Redirect to the console", None, 307, scope=None,
        content="text/html; charset=utf-8", of_service=True,
    ),
    Route(
        "GET", "/v1", _bandits, "List the bandits that the key may read", Bandits, scope="read",
        of_service=True,
    ),
)  # fmt: skip
_BY_PATH = {route.path.encode(): route for route in SERVICE_ROUTES}
#: A CORS preflight request; counted as "other".
PREFLIGHT = Route("other", "other", _nothing, "", None, scope=None, of_service=True)


def _service_route(method: str, path: bytes) -> Route:
    route = _BY_PATH.get(path)
    if route is None and path[:-1] in _BY_PATH and path.endswith(b"/"):
        raise no_slash(path.decode("latin-1"))
    if route is None or method != route.method:
        others = [] if route is None else [route.method]
        raise not_found(method, others, path.decode("latin-1"))
    return route


def _parse_path(method: str, raw: bytes) -> tuple[str, Route, str]:
    """Parse a path: the name of the bandit, the route, and the decision id."""
    _, _, name, *parts = raw.decode("latin-1").split("/")
    return _text(name), find(method, parts), _text(parts[1]) if len(parts) > 1 else ""


def _text(part: str) -> str:
    """Decode a part of a path."""
    return unquote(part, errors="strict")


def _check_content(headers: Mapping[bytes, bytes], *, json: bool) -> None:
    """Refuse a body that is compressed, or not declared as JSON.

    The size of a compressed body is not known before it is decompressed. And any page can have a
    browser send other content types, but this one only if the service allows it.
    """
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        raise ProblemError(
            415,
            "Unsupported encoding",
            "a body must be sent as it is, without Content-Encoding",
            headers={"accept-encoding": "identity"},
        )
    if json:
        kind = headers.get(b"content-type", b"")
        if kind != b"application/json" and (
            kind.partition(b";")[0].strip().lower() != b"application/json"
        ):
            detail = "send the body as JSON, with Content-Type: application/json"
            raise ProblemError(415, "Unsupported type", detail)


def _tokens_of(
    definition: Definition, keys: TokenSecrets | None, guarded: bool, clock: Callable[[], int]
) -> RewardTokens:
    """Return the object that makes and checks the reward tokens of a bandit."""
    if keys is None:
        message = f"{definition.name} makes tokens, and there are no keys to sign them with"
        raise InvalidInput(f"{message}: add secrets_env under [tokens]", definition.name)
    check_bounded(definition.rewards, definition.policy.family.support)
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
