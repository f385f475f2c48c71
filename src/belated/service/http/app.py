"""The HTTP service: routing, authorization, and routes that are not specific to a bandit."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from belated.exceptions import (
    BelatedError,
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
from belated.service.http import ofrep
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
from belated.service.operating.config import Config
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

#: Minimum interval between log messages about a store that rejects requests, in seconds.
TROUBLE_LOG_SECONDS = 60.0

#: Maximum number of bandits listed in an error.
SHOWN = 10

log = logging.getLogger("belated.service")


class Service:
    """The decision service, to be run by :func:`belated.service.http.server.serve`.

    Args:
        bandits: Bandits that this process serves.
        store: Store that contains the journals, or its address.
        learn: Whether this process also runs a learner, in threads. If not, run ``belated learn``.
        lease: Seconds after which a dead learner is replaced.
        max_body_bytes: Maximum size of a request body, in bytes.
        auth: ``"keys"`` to require an API key, or ``"off"`` to require none.
        token_keys: Secrets that sign reward tokens. Required if a bandit issues tokens.
        cors: Origins whose pages may send requests from a browser, such as
            ``"https://shop.example"``. Requests from other pages are rejected.
        spools: Local spools for events that arrive while the store is unavailable; None to refuse
            events during an outage.
        clock: Returns the time in microseconds since 1970.
        seed: Seed for random choices.

    Attributes:
        authorizer: Checks API keys; None if keys are not required.
        tokens: Reward tokens by bandit, for bandits that issue tokens.
        draining: Whether the process is about to stop. The process still answers requests, but load
            balancers should send new requests elsewhere.
        requests: Number of requests by method, route path and status.
        reports: Reports on all bandits, for the console and the metrics.
        scrape: Returns the metrics of all processes that serve the port; None if this is the only
            process.
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
        self.definitions = {definition.name: definition for definition in bandits}
        self.bandits: dict[str, ServedBandit] = {}
        self._served: ServedBandits | None = None
        # Cache of parsed paths for the most common request, `POST …/decisions`.
        self._parsed_paths: dict[tuple[str, bytes], tuple[str, Route, str]] = {}
        self._store = open_store(store) if isinstance(store, str) else store
        self.max_body_bytes = max_body_bytes
        self._cors = Cors(cors)
        self._auth = auth
        self.authorizer: Authorizer | None = None
        self.tokens = {
            definition.name: _tokens_of(definition, token_keys, auth == "keys", clock)
            for definition in bandits
            if definition.tokens != "off"
        }
        self._spools = spools
        self._runtime = ThreadRuntime(clock)
        self._seed = seed
        self._learners = learners_of(list(bandits) if learn else [], self._store, lease=lease)
        self._trouble_due = -math.inf
        self.draining = False
        self.scrape: Callable[[], bytes] | None = None
        self.requests: Counter[tuple[str, str, int]] = Counter()
        actions = {definition.name: definition.actions for definition in bandits}
        self.reports = Reports(self._store, actions)

        from belated.service.operating.metrics import Metrics  # needs prometheus-client

        self.metrics = Metrics(
            self.bandits, self._learners, self.requests, self.tokens, self.reports
        )

    @classmethod
    def from_config(cls, config: Config, *, auth: Auth) -> Service:
        """Create the service that a configuration describes."""
        server = config.server
        return cls(
            config.bandits,
            config.store,
            learn=server.learn,
            lease=server.lease,
            max_body_bytes=server.max_body_bytes,
            auth=auth,
            token_keys=config.token_keys(),
            cors=server.cors,
            spools=server.spool,
        )

    # --- requests --------------------------------------------------------------------------------

    def admit(self, exchange: Exchange, path: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Find the route and authorize the request before its body is read.

        Raises:
            Exception: the request is rejected. Call :meth:`problem_for` to get the problem to send.
        """
        method = "GET" if exchange.method == "HEAD" else exchange.method
        if not path.startswith((b"/v1/", _OFREP)):
            exchange.route = route = _service_route(method, path)
            if self.authorizer is not None and route.scope is not None:
                bandit_name = ALL if route.everywhere else None
                exchange.key = self.authorizer.authorize(headers, route.scope, bandit_name)
            return
        requested_method = headers.get(b"access-control-request-method")
        if requested_method is not None and exchange.method == "OPTIONS":
            _, route, _ = self._find(requested_method.decode("latin-1"), path)
            exchange.headers = self._cors.preflight(route.method, route.scope, headers)
            exchange.route = PREFLIGHT
            return
        name, route, exchange.id = self._find(method, path)
        exchange.route = route
        if (origin := headers.get(b"origin")) is not None:
            keyed = self.authorizer is not None
            exchange.headers = self._cors.admit(origin, route.scope, headers, keyed=keyed)
        if self.authorizer is not None and route.scope is not None:
            exchange.key = self.authorizer.authorize(headers, route.scope, name)
        if name is None:
            exchange.bandits = [
                (bandit, self.tokens.get(name))
                for name, bandit in self.bandits.items()
                if exchange.key is None or exchange.key.may("decide", name)
            ]
            exchange.none_match = headers.get(b"if-none-match", b"")
            _check_content(headers, json=True)
            return
        bandit = self.bandits.get(name)
        if bandit is not None:
            exchange.bandit = bandit
            exchange.tokens = self.tokens.get(name)
        elif exchange.key is not None or self.authorizer is None:
            raise self._unknown_bandit(name, exchange.key)
        else:  # reject any token, so that callers without a key cannot find out which bandits exist
            exchange.tokens = NOBODY
        _check_content(headers, json=route.body is not None)

    def _unknown_bandit(self, name: str, key: Key | None) -> UnknownBandit:
        """Return the error for an unknown bandit. It lists the bandits that the key may access."""
        names = [
            repr(bandit)
            for bandit in self.bandits
            if key is None or key.everywhere or bandit in key.bandits
        ]  # fmt: skip
        names[SHOWN:] = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        listing = f"; known bandits: {', '.join(names)}" if names else ""
        return UnknownBandit(f"unknown bandit {name!r}{listing}")

    def dispatch(self, exchange: Exchange, body: bytes | bytearray) -> None:
        """Handle a request; the response may be sent later."""
        route = exchange.route
        assert route is not None
        if route.of_service:
            response = route.handler(self, exchange)
            if response is not None:
                status, content = response
                exchange.connection.respond(exchange, status, route.content.encode(), content)
            return
        try:
            message = route.parse(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            raise malformed_json(error, body) from None
        if exchange.key is not None:
            self._charge(exchange.key, message, len(exchange.bandits))
        if route.scope == "reward":
            self._check_tokens(exchange, message)
        route.handler(exchange, message)

    def _find(self, method: str, path: bytes) -> tuple[str | None, Route, str]:
        """Return the bandit named in the path, the route, and the decision id in the path.

        The bandit is None if the request concerns several bandits.
        """
        return self._parsed_paths.get((method, path)) or _parse_path(method, path)

    def count(self, route: Route | None, status: int) -> None:
        """Count a response."""
        method, path = ("other", "other") if route is None else (route.method, route.path)
        self.requests[method, path, status] += 1

    def problem_for(self, exchange: Exchange, error: Exception) -> tuple[Problem, dict[str, str]]:
        """Return the problem and response headers for an error, and log unexpected errors."""
        if isinstance(error, BelatedError) and error.issue:
            exchange.bandit.note_refused(error)
        route = exchange.route
        problem, headers = problem_of(error, None if route is None else route.body)
        if route in (ofrep.EVALUATE, ofrep.EVALUATE_ALL):
            problem = ofrep.failure_of(exchange.id, problem)
        self.count(route, problem.status)
        if problem.status == 500:
            log.error("a request failed", exc_info=error)
        elif isinstance(error, JournalError) and not isinstance(
            error, JournalUnavailable | NotIndexed
        ):
            self._log_trouble(error)
        return problem, headers

    def _log_trouble(self, error: JournalError) -> None:
        """Log, at a limited rate, that the store is up but rejects requests."""
        now = self._runtime.monotonic()
        if now >= self._trouble_due:
            self._trouble_due = now + TROUBLE_LOG_SECONDS
            log.error("the store rejects requests", extra={"why": str(error)})

    def _charge(self, key: Key, body: Any, bandits: int) -> None:
        """Count the items of a batch. The first item was counted when the key was checked."""
        assert self.authorizer is not None
        if isinstance(body, DecisionRequests):
            self.authorizer.charge(key, len(body.requests) - 1)
        elif isinstance(body, RewardsBody | SubjectRewardsBody):
            self.authorizer.charge(key, len(body.rewards) - 1)
        elif bandits:
            self.authorizer.charge(key, bandits - 1)

    def _check_tokens(self, exchange: Exchange, body: Any) -> None:
        tokens, keyed = exchange.tokens, exchange.key is not None
        if tokens is None:
            if keyed or self.authorizer is None:
                return
            tokens = NOBODY  # reject the request as if the bandit were unknown
        for decision_id, reward in rewards_in(exchange.id, body):
            tokens.check(decision_id, reward, keyed)

    def readyz(self, _: object = None) -> tuple[int, bytes]:
        """Return a status and a body that report whether this process is ready for requests."""
        if self.draining:
            return 503, encode(Ready("draining"))
        if self._served is not None and self._served.poll.replaced:
            return 503, encode(Ready("journal replaced"))
        # This route is public, so do not reveal the names of bandits if the service requires keys.
        shown = self.bandits if self.authorizer is None else {}
        outdated = [name for name, bandit in shown.items() if bandit.has_other_features]
        stale = {
            name: bandit
            for name, bandit in self.bandits.items()
            if bandit.is_stale(MAX_MODEL_AGE)
        }  # fmt: skip
        if not stale:
            return 200, encode(Ready("ready", other_features=outdated))
        status = "no model" if all(bandit.age is None for bandit in stale.values()) else "stale"
        names = [name for name in stale if name in shown]
        return 503, encode(Ready(status, names, outdated, len(stale)))

    @cached_property
    def document(self) -> bytes:
        """The OpenAPI document."""
        return encode(describe(ROUTES, keys=self._auth == "keys", tokens=bool(self.tokens)))

    # --- start and stop --------------------------------------------------------------------------

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
            self._parsed_paths["POST", path] = name, find("POST", name, ["decisions"]), ""
        self._learners.start()

    def close(self) -> None:
        """Finish requests in flight, stop the learners, and close the store."""
        self.reports.close()
        if self.authorizer is not None:
            self.authorizer.close()
        if self._served is not None:
            self._served.close()
        self._learners.stop()


# --- routes of the service -----------------------------------------------------------------------


def _livez(service: Service, _: Exchange) -> tuple[int, bytes]:
    if dead := dead_workers():  # this route is public, so the errors are only logged
        return 503, encode(Dead(dead))
    return 200, encode(Alive())


def _metrics(service: Service, exchange: Exchange) -> tuple[int, bytes] | None:
    if service.scrape is None:
        return 200, service.metrics.text()
    scrape = asyncio.get_running_loop().run_in_executor(None, service.scrape)
    scrape.add_done_callback(partial(_send_scrape, exchange))
    return None


def _send_scrape(exchange: Exchange, scrape: asyncio.Future[bytes]) -> None:
    """Send the metrics of all processes."""
    try:
        text = scrape.result()
    except Exception as error:
        exchange.connection.refuse(exchange, error)
    else:
        assert exchange.route is not None
        exchange.connection.respond(exchange, 200, exchange.route.content.encode(), text)


def _openapi(service: Service, _: Exchange) -> tuple[int, bytes]:
    return 200, service.document


def _page(service: Service, _: Exchange) -> tuple[int, bytes]:
    return 200, console_page()


def _to_console(service: Service, exchange: Exchange) -> tuple[int, bytes]:
    exchange.headers = {"location": "console"}  # relative: the service may be mounted
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
        "GET", "/livez", _livez, "Check that the process and its workers are running", Alive,
        also={503: Dead}, scope=None, of_service=True,
    ),
    Route(
        "GET", "/readyz", Service.readyz, "Check whether the process is ready for requests", Ready,
        also={503: Ready}, scope=None, of_service=True,
    ),
    Route(
        "GET", "/metrics", _metrics, "Return metrics for Prometheus", None,
        content="text/plain; version=0.0.4; charset=utf-8", scope="read", everywhere=True,
        of_service=True,
    ),
    Route(
        "GET", "/openapi.json", _openapi, "Return this document", None, scope="read",
        of_service=True,
    ),
    Route(
        "GET", "/console", _page, "Return the web page of the console", None,
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
_OFREP = ofrep.PREFIX.encode()
_BY_PATH = {route.path.encode(): route for route in SERVICE_ROUTES}
#: All routes.
ROUTES = (*BANDIT_ROUTES, ofrep.EVALUATE, ofrep.EVALUATE_ALL, *SERVICE_ROUTES)
#: Route for CORS preflight requests, which the metrics count as "other".
PREFLIGHT = Route("other", "other", _nothing, "", None, scope=None, of_service=True)


def _service_route(method: str, path: bytes) -> Route:
    route = _BY_PATH.get(path)
    if route is None and path[:-1] in _BY_PATH and path.endswith(b"/"):
        raise no_slash(path.decode("latin-1"))
    if route is None or method != route.method:
        allowed = [] if route is None else [route.method]
        raise not_found(method, allowed, path.decode("latin-1"))
    return route


def _parse_path(method: str, raw: bytes) -> tuple[str | None, Route, str]:
    """Parse a path into the name of the bandit, the route, and the decision id."""
    if raw.startswith(_OFREP):
        return _parse_flag(method, raw.decode("latin-1"))
    _, _, name, *parts = raw.decode("latin-1").split("/")
    return _decoded(name), find(method, name, parts), _decoded(parts[1]) if len(parts) > 1 else ""


def _parse_flag(method: str, path: str) -> tuple[str | None, Route, str]:
    """Parse an OpenFeature path. The id returned is the name of the bandit."""
    flag = path.removeprefix(ofrep.PREFIX)
    if flag[:1] not in ("", "/") or "/" in flag[1:] or flag == "/":
        raise not_found(method, [], path)
    if method != "POST":
        raise not_found(method, ["POST"], path)
    name = _decoded(flag[1:])
    return (name, ofrep.EVALUATE, name) if flag else (None, ofrep.EVALUATE_ALL, "")


def _decoded(part: str) -> str:
    """Decode a percent-encoded part of a path."""
    return unquote(part, errors="strict")


def _check_content(headers: Mapping[bytes, bytes], *, json: bool) -> None:
    """Refuse a body that is compressed or not declared as JSON.

    The size of a compressed body is unknown until it is decompressed. Content types other than JSON
    are rejected because web pages from any origin can send some of them without a CORS preflight.
    """
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        raise ProblemError(
            415,
            "Unsupported encoding",
            "send the body uncompressed, without Content-Encoding",
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
    """Create the object that issues and verifies a bandit's reward tokens."""
    if keys is None:
        message = f"bandit {definition.name!r} issues tokens, but there is no secret to sign them"
        raise InvalidInput(f"{message}: set secrets_env under [tokens]", definition.name)
    check_bounded(definition.rewards, definition.policy.family.support)
    least, most = definition.rewards.range(definition.policy.family.support)
    lifetime = definition.token_lifetime or definition.retention or definition.rewards.window_us
    return RewardTokens(
        keys,
        definition.name,
        mode=definition.tokens,
        guarded=guarded,
        lifetime=lifetime or LIFETIME,
        least=least,
        most=most,
        clock=clock,
    )
