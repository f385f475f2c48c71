"""The routes of a bandit: parsing and handling of requests, and rendering of responses.

The OpenAPI document is generated from the same table of routes, so it always matches the code.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs

import msgspec

from belated.core.events import Activation, Decision, Reward, SubjectReward, Void
from belated.core.ids import check_id
from belated.core.inputs import as_rows
from belated.core.rewards import reported_outcome, reported_reward
from belated.core.times import (
    MIN_MICROSECONDS,
    as_datetime,
    as_duration,
    as_microseconds,
    check_reported,
    duration_us,
)
from belated.decider import ParsedRequest
from belated.decider.actions import ActionState
from belated.decider.requests import in_context, offered
from belated.exceptions import InvalidInput
from belated.features.records import MAPPINGS, action_names
from belated.fold.contexts import pack_context
from belated.journals.steady_clock import system_clock
from belated.service.access.tokens import RewardTokens
from belated.service.http.problems import ProblemError
from belated.service.serving.definition import Definition
from belated.service.serving.request_batcher import Rows
from belated.service.serving.served_bandits import Repeated, ServedBandit
from belated.wire.keys import Key, KeyScope
from belated.wire.messages import (
    MAX_ACTIONS,
    MAX_FIELDS,
    MAX_NUMBERS,
    MAX_PAIRS,
    TIME_HINT,
    Accepted,
    ActionBody,
    BanditState,
    Decided,
    DecisionDetails,
    DecisionRequest,
    DecisionRequests,
    Erasure,
    EventTime,
    ManyAccepted,
    ManyDecided,
    ModeBody,
    ModelBody,
    Models,
    ModelSwitch,
    ReportPage,
    RewardBody,
    RewardsBody,
    SubjectRewardBody,
    SubjectRewardsBody,
    Switch,
)

#: Maximum size of a batch's parsed rows to keep in memory, in bytes. Any further rows are parsed
#: again when needed.
HELD_BYTES = 8 << 20
#: The content type of most responses.
JSON = b"application/json"

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Route:
    """A method and path, and the handler for requests to them.

    Attributes:
        method: HTTP method.
        path: Path, with parameters in braces.
        handler: Handles an exchange and its parsed body, and finishes the exchange with the result.
            The handler of a service route instead takes the service and an exchange, and returns
            the status and content, or None if it sends the response later.
        summary: Summary for the OpenAPI document.
        answer: Type of the response; None unless the response is JSON.
        status: Status of a successful response.
        body: Type of the request body; None if the route has no body.
        query: Types of the optional query parameters, by name.
        also: Types of additional responses that are not problems, by status.
        content: Content type of the response.
        scope: Scope that the API key must have; None if no key is required. There is no default, so
            that a route cannot be left unprotected by mistake.
        everywhere: Whether the key must be valid for all bandits.
        render: Converts the result of the handler to the response; None if the result already is
            the response.
        of_service: Whether the route belongs to the service as a whole rather than to a bandit.
        name: Operation id in the OpenAPI document; if empty, derived from the handler's name.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    summary: str
    answer: Any
    status: int = 200
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    also: dict[int, Any] = field(default_factory=dict)
    content: str = "application/json"
    scope: KeyScope | None = field(kw_only=True)
    everywhere: bool = False
    render: Callable[[Exchange, Any], Any] | None = None
    of_service: bool = False
    name: str = ""

    #: Parses a request body. The decoder is created at import, because msgspec resolves a type's
    #: annotations on first use, and two threads that do so at the same time can crash.
    parse: Callable[[bytes | bytearray], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parse = _nothing if self.body is None else msgspec.json.Decoder(self.body).decode
        object.__setattr__(self, "parse", parse)


def _nothing(data: bytes | bytearray) -> None:
    """Ignore the body of a request to a route that has none."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its response.

    Attributes:
        connection: Sends the response.
        method: HTTP method of the request.
        keep_alive: Whether the connection may be used for another request.
        query: Query string of the URL.
        body: Part of the body that has been received so far.
        error: Reason to reject the request, if known before the request is dispatched.
        route: Route of the request; None until the route has been found.
        bandit: Bandit that the request is for, set once the request is authorized.
        bandits: Bandits that the key may access, with their reward tokens, for requests that
            concern several bandits.
        tokens: Reward tokens of the bandit; None if the bandit does not issue tokens.
        id: Decision id or subject in the path; empty if there is none.
        key: API key of the request; None if there is none.
        none_match: Entity tags of responses that the client already has (``If-None-Match``).
        headers: Additional response headers.
    """

    connection: Responder
    method: str
    keep_alive: bool
    query: bytes = b""
    body: bytes | bytearray = b""
    error: Exception | None = None
    route: Route | None = None
    bandit: ServedBandit = field(init=False)
    bandits: Sequence[tuple[ServedBandit, RewardTokens | None]] = ()
    tokens: RewardTokens | None = None
    id: str = ""
    key: Key | None = None
    none_match: bytes = b""
    headers: dict[str, str] | None = None

    @property
    def key_name(self) -> str:
        """The name of the request's API key; empty if there is no key."""
        return "" if self.key is None else self.key.name

    def finish(self, result: Any) -> None:
        """Render a result and send it. If the result is an exception, send it as a problem."""
        if isinstance(result, Exception):
            self.connection.refuse(self, result)
            return
        route = self.route
        assert route is not None
        try:
            content = encode(result if route.render is None else route.render(self, result))
        except Exception as error:
            self.connection.refuse(self, error)
            return
        self.connection.respond(self, route.status, JSON, content)


class Responder(Protocol):
    """Sends the response to a request; implemented by connections."""

    def respond(self, exchange: Exchange, status: int, kind: bytes, data: bytes, /) -> None:
        """Send a response."""

    def refuse(self, exchange: Exchange, error: Exception, /) -> None:
        """Send an error as a problem."""


# --- parsing -------------------------------------------------------------------------------------


def parse_request(request: DecisionRequest, definition: Definition) -> tuple[ParsedRequest, bytes]:
    """Validate a decision request. Return it with its rows, packed as float32 numbers.

    Raises:
        InvalidInput: the request is not valid for this bandit.
    """
    features, dim, context = definition.features, definition.policy.row_width, None
    actions = offered(request.actions, features)
    if request.id is not None:
        check_id(request.id)
    if features is None:
        if request.context is not None:
            raise InvalidInput("this bandit has no features: send `rows` instead of `context`")
        rows = _packed_rows(request, dim)
    else:
        if request.rows is not None or request.dim is not None or actions is None:
            raise InvalidInput(
                "this bandit has features: send `context` and `actions`, without `rows` and `dim`"
            )
        _check_sizes(request.context, actions, dim)
        rows = features.rows(request.context, actions).tobytes()
        if definition.contexts:
            context = pack_context(request.context, actions, features)
    count = len(rows) // (4 * dim)
    names = None if actions is None else action_names(actions, count)
    holdout = definition.holdout
    unit = None if holdout is None else holdout.unit_of(request.context)
    chosen = None if request.fallback is None else parse_fallback(request, names, count, definition)
    parsed = ParsedRequest(
        count, names, request.id, request.first_attempt, request.activated, context, unit,
        subject=_subject_of(request, definition), fallback=chosen,
    )  # fmt: skip
    return parsed, rows


def _subject_of(request: DecisionRequest, definition: Definition) -> str | None:
    """Return the subject of a request, which may be in its context; None if there is none."""
    if request.subject is None and definition.subject is not None:
        return in_context(request.context, definition.subject)
    return request.subject


def parse_fallback(
    request: DecisionRequest,
    names: Sequence[int | str] | None,
    count: int,
    definition: Definition,
) -> tuple[int, int]:
    """Return the index of the fallback action that the client chose, and when it was chosen."""
    fallback = request.fallback
    assert fallback is not None
    if request.id is None:
        raise InvalidInput(
            "`fallback` requires `id`: send the id of the decision that the caller made", None
        )
    actions = list(range(count) if names is None else names)
    if fallback.action not in actions:
        message = f"fallback.action is {fallback.action!r}, which is not one of the actions"
        raise InvalidInput(message, fallback.action)
    at = checked_time(fallback.at, system_clock(), definition.clock_skew)
    return actions.index(fallback.action), at


def _check_sizes(context: Any, actions: Any, dim: int) -> None:
    """Refuse a request if computing its features would take too much memory or time."""
    count, context_fields, action_fields = len(actions), 0, 0
    if isinstance(context, MAPPINGS):
        context_fields = len(context)
    if isinstance(actions, Mapping):
        action_fields = sum(len(row) for row in actions.values() if isinstance(row, Mapping))
    if context_fields + action_fields > MAX_FIELDS:
        message = f"`context` has {context_fields:,} fields, and `actions` has {action_fields:,}"
        raise InvalidInput(f"{message}: at most {MAX_FIELDS:,} fields in total are allowed")
    if context_fields * (count + action_fields) > MAX_PAIRS:
        message = f"`context` has {context_fields:,} fields, and `actions` has {count:,} actions"
        limit = f"context fields × (actions + action fields) may be at most {MAX_PAIRS:,}"
        raise InvalidInput(f"{message} with {action_fields:,} fields: {limit}")
    if count * dim > MAX_NUMBERS:
        message = f"`actions` has {count:,} actions, each with a row of {dim:,} numbers"
        raise InvalidInput(f"{message}: at most {MAX_NUMBERS // dim:,} actions are allowed")


def parse_rewards(
    rewards: Sequence[tuple[str, RewardBody]], bandit: ServedBandit, reporter: str
) -> list[Reward]:
    """Validate the rewards in a request and return their events.

    Args:
        rewards: Rewards as sent, each with its decision id.
        bandit: The bandit.
        reporter: Name of the API key that reports the rewards.

    Raises:
        InvalidInput: a reward is not valid for this bandit.
    """
    now = bandit.now()
    min_reward, max_reward = bandit.reward_range
    return [
        reported_reward(
            id,
            reward.value,
            now if reward.at is None else event_time(reward.at, bandit, id),
            reward.part,
            reward.revision,
            min_reward=min_reward,
            max_reward=max_reward,
            reporter=reporter,
        )
        for id, reward in rewards
    ]


def parse_subject_rewards(
    rewards: Sequence[SubjectRewardBody], bandit: ServedBandit, reporter: str
) -> list[SubjectReward]:
    """Validate the subject rewards in a request and return their events.

    The arguments are those of :func:`parse_rewards`.
    """
    now = bandit.now()
    min_reward, max_reward = bandit.reward_range
    return [
        reported_outcome(
            reward.subject,
            reward.value,
            now if reward.at is None else event_time(reward.at, bandit),
            reward.event_id,
            min_reward=min_reward,
            max_reward=max_reward,
            reporter=reporter,
        )
        for reward in rewards
    ]


def event_time(at: datetime | int, bandit: ServedBandit, id: str = "") -> int:
    """Validate the time of an event and return it in microseconds since 1970.

    Args:
        at: Time as sent.
        bandit: The bandit.
        id: Id of the decision, if the event must not precede the decision.

    Raises:
        InvalidInput: the time is before the year 2000, before the decision, or in the future.
    """
    decided = bandit.decided_at(id) if id else None
    return checked_time(at, bandit.now(), bandit.definition.clock_skew, decided)


def checked_time(at: datetime | int, now: int, skew: int, decided: int | None = None) -> int:
    """Return ``at`` in microseconds since 1970; raise InvalidInput as `event_time` does."""
    at_us = as_microseconds(at)
    if at_us < MIN_MICROSECONDS:
        message = f"`at` is {as_datetime(at_us).isoformat()}, which is before the year 2000"
        raise InvalidInput(f"{message}: omit `at` to use the current time", at)
    check_reported(at_us, now, decided, skew)
    return at_us


def rewards_in(
    id: str, body: RewardBody | RewardsBody | SubjectRewardsBody
) -> list[tuple[str, RewardBody]]:
    """Return the rewards in a request, each with its decision id.

    Subject rewards have an empty decision id and no token.
    """
    if isinstance(body, SubjectRewardsBody):
        return [("", RewardBody(reward.value)) for reward in body.rewards]
    if isinstance(body, RewardsBody):
        return [(reward.id, reward) for reward in body.rewards]
    return [(id, body)]


def _packed_rows(request: DecisionRequest, dim: int) -> bytes:
    """Return the rows of a request, packed as float32 numbers."""
    if request.dim not in (None, dim):
        message = f"each row has {request.dim} numbers, but this bandit expects {dim}"
        raise InvalidInput(message, request.dim)
    rows = request.rows
    if rows is None:
        raise InvalidInput("`rows` is missing: send a row of numbers for each action", None)
    return _decoded(rows, dim) if isinstance(rows, str) else _packed(rows, dim)


def _decoded(text: str, dim: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("`rows` is a string, but not valid base64", None) from None
    if not data or len(data) % (4 * dim):
        message = f"`rows` has {len(data)} bytes, which is not a multiple of {4 * dim}"
        raise InvalidInput(f"{message}: send {dim} float32 numbers for each action", None)
    if len(data) > 4 * dim * MAX_ACTIONS:
        count = len(data) // (4 * dim)
        raise InvalidInput(f"`rows` has {count:,} rows: at most {MAX_ACTIONS:,} are allowed", count)
    return data


def _packed(rows: list[list[float]], dim: int) -> bytes:
    if set(map(len, rows)) != {dim}:
        raise InvalidInput(f"`rows` must have at least one row, each of {dim} numbers", None)
    numbers: list[float] = []
    for row in rows:
        numbers += row
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:  # exceeds float32: let `as_rows` raise an error with the number
        return as_rows(rows, dim).tobytes()


# --- handlers ------------------------------------------------------------------------------------


def decide(bandit: ServedBandit, body: DecisionRequest, done: Callable[[Any], None]) -> None:
    """Make one decision, or return the current decision of the subject if the request is sticky."""
    definition = bandit.definition
    if body.sticky is None:
        request, rows = parse_request(body, definition)
        bandit.decide([request], [rows], done)
        return
    span = duration_us(as_duration(body.sticky, "sticky"))
    names = offered(body.actions, definition.features)
    parse = partial(parse_request, body, definition)
    bandit.decide_sticky(_subject_of(body, definition), names, span, parse, done)


def _decide(call: Exchange, body: DecisionRequest) -> None:
    decide(call.bandit, body, call.finish)


def _decided(call: Exchange, decisions: Sequence[Decision] | Repeated) -> Decided:
    (decision, *_) = decisions
    token = None if call.tokens is None else call.tokens.of(decision)
    return Decided.of(decision, token, call.bandit.slot, isinstance(decisions, Repeated))


def _rendered(tokens: RewardTokens | None, decision: Decision) -> Decided:
    return Decided.of(decision, None if tokens is None else tokens.of(decision))


def _decide_many(call: Exchange, body: DecisionRequests) -> None:
    call.bandit.decide_many(_parsed(body.requests, call.bandit.definition), call.finish)


def _parsed(
    requests: Sequence[DecisionRequest], definition: Definition
) -> Iterator[tuple[ParsedRequest, Rows]]:
    """Parse the requests of a batch. Rows beyond `HELD_BYTES` are parsed again when needed."""
    size = 0
    for n, request in enumerate(requests):
        if request.sticky is not None:
            message = (
                f"requests[{n}].sticky is {request.sticky!r}, but batches do not support sticky"
            )
            remedy = "send this request to POST /v1/{bandit}/decisions"
            raise InvalidInput(f"{message} decisions: {remedy}", request.sticky)
        parsed, rows = parse_request(request, definition)
        size += len(rows)
        yield parsed, rows if size <= HELD_BYTES else partial(_rows, request, definition)


def _rows(request: DecisionRequest, definition: Definition) -> bytes:
    return parse_request(request, definition)[1]


def _many_decided(call: Exchange, decisions: Sequence[Decision]) -> ManyDecided:
    rendered = [_rendered(call.tokens, decision) for decision in decisions]
    return ManyDecided(rendered, call.bandit.slot)


def _reward(call: Exchange, body: RewardBody | RewardsBody) -> None:
    rewards = parse_rewards(rewards_in(call.id, body), call.bandit, call.key_name)
    call.bandit.append_rewards(rewards, call.finish)


def _reward_subjects(call: Exchange, body: SubjectRewardsBody) -> None:
    rewards = parse_subject_rewards(body.rewards, call.bandit, call.key_name)
    call.bandit.append_rewards(rewards, call.finish)


def _accepted(call: Exchange, _: Any) -> Accepted:
    return Accepted(call.id)


def _activate(call: Exchange, _: None) -> None:
    call.bandit.append_event(Activation(check_id(call.id), _at(call)), call.finish)


def _void(call: Exchange, _: None) -> None:
    call.bandit.append_event(Void(check_id(call.id), _at(call)), call.finish)


def _erase(call: Exchange, _: None) -> None:
    call.bandit.erase(check_id(call.id), call.key_name, call.finish)


def _story(call: Exchange, _: None) -> None:
    call.bandit.details(call.id, call.finish)


def _erase_subject(call: Exchange, _: None) -> None:
    call.bandit.erase_subject(check_id(call.id, "the subject"), call.key_name, call.finish)


def _state(call: Exchange, _: None) -> None:
    call.finish(state_of(call.bandit))


def state_of(bandit: ServedBandit) -> BanditState:
    """Return the state of a bandit, as of the current model of this process."""
    model = bandit.decider.model
    return BanditState(
        bandit=bandit.definition.name,
        policy=repr(bandit.definition.policy),
        version=bandit.version,
        observations=model.n,
        pending=model.pending,
        model_age_seconds=bandit.age,
        mode=bandit.decider.mode,
        actions=bandit.actions,
        issues=bandit.issues,
        chosen_version=None if bandit.chosen is None else bandit.chosen.version,
    )


def _report(call: Exchange, _: None) -> None:
    report = call.bandit.report_page
    page = None if report is None else report.look()
    why = "" if report is None else report.error
    status = "ready" if page is not None else "unavailable" if why else "computing"
    call.finish(ReportPage(status, why, None if page is None else msgspec.Raw(page)))


def _switch(call: Exchange, body: ModeBody) -> None:
    call.bandit.change_mode(body.mode, body.reason, call.key_name, call.finish)


def _models(call: Exchange, _: None) -> None:
    call.bandit.models(call.finish)


def _choose_model(call: Exchange, body: ModelBody) -> None:
    call.bandit.choose_model(body.version, body.reason, call.key_name, call.finish)


def _change_action(call: Exchange, body: ActionBody) -> None:
    change = msgspec.structs.asdict(body)
    call.bandit.change_action(call.finish, actor=call.key_name, **change)


def _at(call: Exchange) -> int:
    """Return the time in the query string, or the current time if there is none."""
    text = call.query.decode("latin-1")
    try:  # limit the work, because a query string can be long
        parameters = parse_qs(text, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        message = "the query string has more than 10 parameters: only `at` is allowed"
        raise InvalidInput(message) from None
    if unknown := sorted(parameters.keys() - {"at"}):
        names = ", ".join(map(repr, unknown))
        raise InvalidInput(f"unknown query parameter {names}: only `at` is allowed")
    if not parameters:
        return call.bandit.now()
    if len(parameters["at"]) > 1:
        raise InvalidInput("the query parameter `at` occurs more than once")
    (text,) = parameters["at"]
    try:
        at = _parse_at(text.encode() if _NUMBER.fullmatch(text) else msgspec.json.encode(text))
    except msgspec.DecodeError as error:
        message = f"invalid query parameter `at`: {error}: {TIME_HINT}, and write + as %2B"
        raise InvalidInput(message) from None
    return event_time(at, call.bandit)


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_parse_at: Callable[[bytes], Any] = msgspec.json.Decoder(EventTime).decode

_DECISIONS = "/v1/{bandit}/decisions"
_AT = {"at": EventTime}

#: Activations and voids require the scope `decide`, because the caller that requested a decision
#: reports whether it was carried out.
BANDIT_ROUTES = (
    Route(
        "POST", _DECISIONS, _decide, "Choose one of the actions", Decided, 201,
        DecisionRequest, scope="decide", render=_decided,
    ),
    Route(
        "POST", f"{_DECISIONS}/batch", _decide_many,
        "Make many decisions", ManyDecided, 201, DecisionRequests, scope="decide",
        render=_many_decided,
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/reward", _reward, "Report the reward of a decision",
        Accepted, 202, RewardBody, scope="reward", render=_accepted,
    ),
    Route(
        "POST", f"{_DECISIONS}/{{id}}/reward", _reward,
        "Report the reward of a decision by POST, for navigator.sendBeacon", Accepted, 202,
        RewardBody, scope="reward", render=_accepted, name="post_reward",
    ),
    Route(
        "POST", "/v1/{bandit}/rewards/batch", _reward, "Report many rewards",
        ManyAccepted, 202, RewardsBody, scope="reward", name="reward_many",
        render=lambda call, positions: ManyAccepted(len(positions)),
    ),
    Route(
        "POST", "/v1/{bandit}/rewards", _reward_subjects, "Report rewards for subjects",
        ManyAccepted, 202, SubjectRewardsBody, scope="reward",
        render=lambda call, positions: ManyAccepted(len(positions)),
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/activation", _activate,
        "Report that a decision took effect, which starts its window", Accepted, 202, query=_AT,
        scope="decide", render=_accepted,
    ),
    Route(
        "POST", f"{_DECISIONS}/{{id}}/void", _void,
        "Report that a decision was never carried out, and exclude it from learning", Accepted, 202,
        query=_AT, scope="decide", render=_accepted,
    ),
    Route(
        "DELETE", f"{_DECISIONS}/{{id}}", _erase,
        "Erase a decision: it counts as if it had never been made", Erasure, scope="admin",
        render=lambda call, count: Erasure(count),
    ),
    Route(
        "GET", f"{_DECISIONS}/{{id}}", _story, "Return all records of a decision", DecisionDetails,
        scope="read", render=lambda call, history: DecisionDetails.of(history),
    ),
    Route(
        "GET", "/v1/{bandit}", _state, "Return the state of a bandit", BanditState,
        scope="read",
    ),
    Route(
        "GET", "/v1/{bandit}/report", _report, "Return the report of a bandit",
        ReportPage, scope="read",
    ),
    Route(
        "PUT", "/v1/{bandit}/mode", _switch,
        "Set the mode: learn, freeze the model, use the baseline, or stop deciding", Switch, 200,
        ModeBody, scope="admin",
        render=lambda call, event: Switch(event.mode, event.reason, event.at),
    ),
    Route(
        "GET", "/v1/{bandit}/models", _models, "List the models that an operator can choose",
        Models, scope="read", render=lambda call, models: Models(models),
    ),
    Route(
        "PUT", "/v1/{bandit}/model", _choose_model,
        "Switch to an earlier model, or back to the newest; learning continues",
        ModelSwitch, 200, ModelBody, scope="admin",
        render=lambda call, event: ModelSwitch(
            event.version if event.model else "latest", event.reason, event.at
        ),
    ),
    Route(
        "PUT", "/v1/{bandit}/actions", _change_action, "Pause, resume or retire an action",
        ActionState, 200, ActionBody, scope="admin",
    ),
    Route(
        "DELETE", "/v1/{bandit}/subjects/{subject}", _erase_subject,
        "Erase a subject: its decisions and rewards count as if they had never been made",
        Erasure, scope="admin", render=lambda call, count: Erasure(count),
    ),
)  # fmt: skip

#: Routes by method and path segments after the bandit.
_TABLE = {(route.method, *route.path.split("/")[3:]): route for route in BANDIT_ROUTES}
#: Path parameters by preceding path segment.
_NAMED = {"decisions": "{id}", "subjects": "{subject}"}
_METHODS = sorted({route.method for route in BANDIT_ROUTES})


def find(method: str, name: str, parts: list[str]) -> Route:
    """Return the route for a request.

    Args:
        method: HTTP method.
        name: Name of the bandit in the path.
        parts: Path segments after the bandit.

    Raises:
        ProblemError: there is no such route.

    >>> find("PUT", "offers", ["decisions", "a1", "reward"]).path
    '/v1/{bandit}/decisions/{id}/reward'
    """
    route = _find(method, parts)
    if route is None or (parts and not parts[-1]):
        path = "/".join(["/v1", name, *parts])
        if parts and not parts[-1]:
            raise no_slash(path)
        allowed = [method for method in _METHODS if _find(method, parts)]
        if not allowed and name == "v1":
            path += ": remove the second /v1"
        elif not allowed and len(parts) > 2 and parts[0] in _NAMED:
            path += ": if the id contains a slash, write it as %2F"
        raise not_found(method, allowed, path)
    return route


def _find(method: str, parts: list[str]) -> Route | None:
    route = _TABLE.get((method, *parts))
    if route is None and len(parts) >= 2 and parts[0] in _NAMED:
        route = _TABLE.get((method, parts[0], _NAMED[parts[0]], *parts[2:]))
    return route


def no_slash(path: str) -> ProblemError:
    """Return the problem for a path that ends with a slash."""
    return ProblemError(404, "Not found", f"remove the slash at the end of {path}")


def not_found(method: str, allowed: Sequence[str], path: str) -> ProblemError:
    """Return the problem for a path that has no route, or only routes for other methods."""
    if not allowed:
        return ProblemError(404, "Not found", f"there is no {path}")
    message = f"use {' or '.join(allowed)} here, not {method}"
    headers = {"allow": ", ".join(allowed)}
    return ProblemError(405, "Method not allowed", message, headers=headers)
