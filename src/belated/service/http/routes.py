"""The routes of a bandit: how requests are parsed, handled and rendered.

The OpenAPI document is made from the same table, so that the two cannot disagree.
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

#: Rows of a batch that are held in memory until they are used, in bytes.
HELD_BYTES = 8 << 20
#: The content type of most responses.
JSON = b"application/json"

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Route:
    """A method and a path, and what is done for a request to them.

    Attributes:
        method: of HTTP.
        path: a part in braces is a parameter.
        handler: handles an exchange and its body, and finishes the exchange with the result. For a
            route of the service: takes the service and an exchange, and returns status and content.
        summary: in a few words.
        answer: type of the response; None unless it is JSON.
        status: of the response.
        body: type of the request's body; None if it has none.
        query: optional query parameters, each with its type.
        also: type of the response for further statuses that are no problems.
        content: content type of the response.
        scope: that a key must have; None if no key is needed. There is no default, so that it
            cannot be forgotten.
        everywhere: whether the key must be for all bandits.
        render: makes the response from the result; None if the result is one.
        of_service: whether it is about the service rather than a bandit.
        name: in the OpenAPI document; that of the handler if it is empty.
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

    #: From the bytes of a body to its type. Made at once: msgspec resolves the annotations of a
    #: type when it first meets it, and two threads that do so at the same time can crash.
    read: Callable[[bytes | bytearray], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        read = _nothing if self.body is None else msgspec.json.Decoder(self.body).decode
        object.__setattr__(self, "read", read)


def _nothing(data: bytes | bytearray) -> None:
    """Ignore the body: the route has none."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request over a connection, from its headers to its response.

    Attributes:
        connection: sends the response.
        method: of the request.
        keep_alive: whether another request may follow over the connection.
        query: the part of the URL after the question mark.
        body: as far as it has been received.
        error: why the request is refused, if that is known before its turn.
        route: None until it is found.
        bandit: set once the request is allowed, if it is about a bandit.
        tokens: of the bandit, if it makes any.
        id: in the path, empty if there is none.
        key: that came with the request; None without one.
        more: CORS headers of the response.
    """

    connection: Responder
    method: str
    keep_alive: bool
    query: bytes = b""
    body: bytes | bytearray = b""
    error: Exception | None = None
    route: Route | None = None
    bandit: ServedBandit = field(init=False)
    tokens: RewardTokens | None = None
    id: str = ""
    key: Key | None = None
    more: dict[str, str] | None = None

    @property
    def key_name(self) -> str:
        """The name of the key it came with, empty without one."""
        return "" if self.key is None else self.key.name

    def finish(self, result: Any) -> None:
        """Render a result and send it; if it is an error, send the problem."""
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
    """Sends the responses to requests: a connection."""

    def respond(self, exchange: Exchange, status: int, kind: bytes, data: bytes, /) -> None:
        """Send a response."""

    def refuse(self, exchange: Exchange, error: Exception, /) -> None:
        """Send a problem in place of the response."""


# --- parsing -------------------------------------------------------------------------------------


def parse_request(request: DecisionRequest, definition: Definition) -> tuple[ParsedRequest, bytes]:
    """Return a decision request and its rows, float32 numbers row after row.

    Raises:
        InvalidInput: it is not a request that this bandit can decide.
    """
    features, dim, context = definition.features, definition.policy.row_width, None
    actions = offered(request.actions, features)
    if request.id is not None:
        check_id(request.id)
    if features is None:
        if request.context is not None:
            raise InvalidInput("this bandit has no features: send rows instead of a context")
        rows = _packed_rows(request, dim)
    else:
        if request.rows is not None or request.dim is not None or actions is None:
            raise InvalidInput("this bandit has features: send a context and actions, no rows")
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
    """Return the subject that a request names, or its context; None without one."""
    if request.subject is None and definition.subject is not None:
        return in_context(request.context, definition.subject)
    return request.subject


def parse_fallback(
    request: DecisionRequest,
    names: Sequence[int | str] | None,
    count: int,
    definition: Definition,
) -> tuple[int, int]:
    """Return the index of the action that the caller chose, and when."""
    fallback = request.fallback
    assert fallback is not None
    if request.id is None:
        raise InvalidInput("fallback needs an id: that of the decision that the caller made", None)
    offered = list(range(count) if names is None else names)
    if fallback.action not in offered:
        message = f"fallback.action is {fallback.action!r}: one of the actions was expected"
        raise InvalidInput(message, fallback.action)
    at = checked_time(fallback.at, system_clock(), definition.clock_skew)
    return offered.index(fallback.action), at


def _check_sizes(context: Any, actions: Any, dim: int) -> None:
    """Refuse what would take features too much memory or time, before they begin."""
    count, of_context, of_actions = len(actions), 0, 0
    if isinstance(context, MAPPINGS):
        of_context = len(context)
    if isinstance(actions, Mapping):
        of_actions = sum(len(one) for one in actions.values() if isinstance(one, Mapping))
    if of_context + of_actions > MAX_FIELDS:
        message = f"context has {of_context:,} fields, and actions have {of_actions:,}"
        raise InvalidInput(f"{message}: at most {MAX_FIELDS:,} together are allowed")
    if of_context * (count + of_actions) > MAX_PAIRS:
        message = f"context has {of_context:,} fields, and actions has {count:,} actions"
        limit = f"context fields × (actions + action fields) may be at most {MAX_PAIRS:,}"
        raise InvalidInput(f"{message} with {of_actions:,} fields: {limit}")
    if count * dim > MAX_NUMBERS:
        message = f"actions has {count:,} actions, each with a row of {dim:,} numbers"
        raise InvalidInput(f"{message}: at most {MAX_NUMBERS // dim:,} actions are allowed")


def parse_rewards(
    rewards: Sequence[tuple[str, RewardBody]], bandit: ServedBandit, reporter: str
) -> list[Reward]:
    """Return rewards as they are reported.

    Args:
        rewards: each with its decision id.
        bandit: they are for.
        reporter: the name of the key that reports them.

    Raises:
        InvalidInput: one of them cannot be a reward of this bandit.
    """
    now = bandit.now()
    min_reward, max_reward = bandit.reward_range
    return [
        reported_reward(
            id,
            one.value,
            now if one.at is None else event_time(one.at, bandit, id),
            one.part,
            one.revision,
            min_reward=min_reward,
            max_reward=max_reward,
            reporter=reporter,
        )
        for id, one in rewards
    ]


def parse_subject_rewards(
    rewards: Sequence[SubjectRewardBody], bandit: ServedBandit, reporter: str
) -> list[SubjectReward]:
    """Return rewards of subjects as they are reported; the arguments of :func:`parse_rewards`."""
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
    """Return the time of an event as reported, in microseconds since 1970.

    Args:
        at: as it was sent.
        bandit: it is for.
        id: of the decision, if the event cannot be before it.

    Raises:
        InvalidInput: it was before the year 2000 or before its decision, or is in the future.
    """
    decided = bandit.decided_at(id) if id else None
    return checked_time(at, bandit.now(), bandit.definition.clock_skew, decided)


def checked_time(at: datetime | int, now: int, skew: int, decided: int | None = None) -> int:
    """Return a time in microseconds since 1970; refuse one that cannot be, as of `event_time`."""
    moment = as_microseconds(at)
    if moment < MIN_MICROSECONDS:
        message = f"at is {as_datetime(moment).isoformat()}, which is before the year 2000"
        raise InvalidInput(f"{message}: leave at out for now", at)
    check_reported(moment, now, decided, skew)
    return moment


def rewards_in(
    id: str, body: RewardBody | RewardsBody | SubjectRewardsBody
) -> list[tuple[str, RewardBody]]:
    """Return the rewards that a request reports, each with its decision id.

    Those of subjects have none, and never a token.
    """
    if isinstance(body, SubjectRewardsBody):
        return [("", RewardBody(one.value)) for one in body.rewards]
    if isinstance(body, RewardsBody):
        return [(one.id, one) for one in body.rewards]
    return [(id, body)]


def _packed_rows(request: DecisionRequest, dim: int) -> bytes:
    """The rows of an offer as float32 numbers, one row after the other."""
    if request.dim not in (None, dim):
        raise InvalidInput(f"rows of {request.dim} numbers: {dim} were expected", request.dim)
    rows = request.rows
    if rows is None:
        raise InvalidInput("rows is missing: a row of numbers for each action", None)
    return _unpacked(rows, dim) if isinstance(rows, str) else _packed(rows, dim)


def _unpacked(given: str, dim: int) -> bytes:
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("rows is a text, but no base64", None) from None
    if not data or len(data) % (4 * dim):
        message = f"rows has {len(data)} bytes: a multiple of {4 * dim} was expected"
        raise InvalidInput(message, None)
    if len(data) > 4 * dim * MAX_ACTIONS:
        count = len(data) // (4 * dim)
        raise InvalidInput(f"{count:,} rows: an offer may have {MAX_ACTIONS:,}", count)
    return data


def _packed(given: list[list[float]], dim: int) -> bytes:
    if set(map(len, given)) != {dim}:
        raise InvalidInput(f"rows: rows of {dim} numbers were expected, and at least one", None)
    numbers: list[float] = []
    for row in given:
        numbers += row
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:  # beyond float32, and so beyond what a row may hold: this says where
        return as_rows(given, dim).tobytes()


# --- handlers ------------------------------------------------------------------------------------


def _decide(call: Exchange, body: DecisionRequest) -> None:
    definition = call.bandit.definition
    if body.sticky is None:
        request, rows = parse_request(body, definition)
        call.bandit.decide([request], [rows], call.finish)
        return
    span = duration_us(as_duration(body.sticky, "sticky"))
    names = offered(body.actions, definition.features)
    parse = partial(parse_request, body, definition)
    call.bandit.decide_sticky(_subject_of(body, definition), names, span, parse, call.finish)


def _decided(call: Exchange, made: Sequence[Decision] | Repeated) -> Decided:
    (decision, *_) = made
    token = None if call.tokens is None else call.tokens.of(decision)
    return Decided.of(decision, token, call.bandit.slot, isinstance(made, Repeated))


def _rendered(tokens: RewardTokens | None, decision: Decision) -> Decided:
    return Decided.of(decision, None if tokens is None else tokens.of(decision))


def _decide_many(call: Exchange, body: DecisionRequests) -> None:
    call.bandit.decide_many(_parsed(body.requests, call.bandit.definition), call.finish)


def _parsed(
    requests: Sequence[DecisionRequest], definition: Definition
) -> Iterator[tuple[ParsedRequest, Rows]]:
    """Parse one request after the other; rows beyond `HELD_BYTES` are made when they are used."""
    held = 0
    for n, one in enumerate(requests):
        if one.sticky is not None:
            message = f"requests[{n}].sticky is {one.sticky!r}: batches have no sticky decisions"
            raise InvalidInput(f"{message}; ask for this one alone", one.sticky)
        request, rows = parse_request(one, definition)
        held += len(rows)
        yield request, rows if held <= HELD_BYTES else partial(_rows, one, definition)


def _rows(request: DecisionRequest, definition: Definition) -> bytes:
    return parse_request(request, definition)[1]


def _many_decided(call: Exchange, made: Sequence[Decision]) -> ManyDecided:
    return ManyDecided([_rendered(call.tokens, one) for one in made], call.bandit.slot)


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
    """Return the state of a bandit, by the model that decides now."""
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
    """Return the time in the query; now if there is none."""
    text = call.query.decode("latin-1")
    try:  # more than these are not taken apart: a query may be longer than a body
        given = parse_qs(text, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise InvalidInput("the query has more than 10 parameters: at is the only one") from None
    if given.keys() - {"at"}:
        raise InvalidInput(f"{sorted(given)} in the query: nothing but at can be there")
    if not given:
        return call.bandit.now()
    if len(given["at"]) > 1:
        raise InvalidInput("at occurs in the query more than once")
    (text,) = given["at"]
    try:
        at = _read_at(text.encode() if _NUMBER.fullmatch(text) else msgspec.json.encode(text))
    except msgspec.DecodeError as error:
        message = f"at in the query: {error}: {TIME_HINT}, and write + as %2B"
        raise InvalidInput(message) from None
    return event_time(at, call.bandit)


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_read_at: Callable[[bytes], Any] = msgspec.json.Decoder(EventTime).decode

_DECISIONS = "/v1/{bandit}/decisions"
_AT = {"at": EventTime}

#: The scope `decide` includes activations and voids: the caller reports what became of a decision.
BANDIT_ROUTES = (
    Route(
        "POST", _DECISIONS, _decide, "Choose one of some actions", Decided, 201,
        DecisionRequest, scope="decide", render=_decided,
    ),
    Route(
        "POST", f"{_DECISIONS}/batch", _decide_many,
        "Choose for many decision requests", ManyDecided, 201, DecisionRequests, scope="decide",
        render=_many_decided,
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/reward", _reward, "Report the reward of a decision",
        Accepted, 202, RewardBody, scope="reward", render=_accepted,
    ),
    Route(
        "POST", f"{_DECISIONS}/{{id}}/reward", _reward,
        "The same by POST, for navigator.sendBeacon", Accepted, 202, RewardBody, scope="reward",
        render=_accepted, name="post_reward",
    ),
    Route(
        "POST", "/v1/{bandit}/rewards/batch", _reward, "Report many rewards",
        ManyAccepted, 202, RewardsBody, scope="reward", name="reward_many",
        render=lambda call, positions: ManyAccepted(len(positions)),
    ),
    Route(
        "POST", "/v1/{bandit}/rewards", _reward_subjects, "Report rewards of subjects",
        ManyAccepted, 202, SubjectRewardsBody, scope="reward",
        render=lambda call, positions: ManyAccepted(len(positions)),
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/activation", _activate,
        "Say that a decision took effect: its window starts", Accepted, 202, query=_AT,
        scope="decide", render=_accepted,
    ),
    Route(
        "POST", f"{_DECISIONS}/{{id}}/void", _void,
        "Say that a decision was never carried out: nothing is learned from it", Accepted, 202,
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
        "Learn on, freeze the model, do without it, or decide nothing", Switch, 200, ModeBody,
        scope="admin", render=lambda call, event: Switch(event.mode, event.reason, event.at),
    ),
    Route(
        "GET", "/v1/{bandit}/models", _models, "List the models that an operator can choose",
        Models, scope="read", render=lambda call, models: Models(models),
    ),
    Route(
        "PUT", "/v1/{bandit}/model", _choose_model,
        "Decide with an earlier model, or with the newest again; learning goes on",
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
        "Erase a subject: all its decisions and rewards count as if they had never been",
        Erasure, scope="admin", render=lambda call, count: Erasure(count),
    ),
)  # fmt: skip

#: By method and the parts of the path after the bandit.
_TABLE = {(route.method, *route.path.split("/")[3:]): route for route in BANDIT_ROUTES}
#: What a part of a path names, by the part before it.
_NAMED = {"decisions": "{id}", "subjects": "{subject}"}
_METHODS = sorted({route.method for route in BANDIT_ROUTES})


def find(method: str, parts: list[str]) -> Route:
    """The route of a request.

    Args:
        method: of the request.
        parts: of the path, after the bandit.

    >>> find("PUT", ["decisions", "a1", "reward"]).path
    '/v1/{bandit}/decisions/{id}/reward'
    """
    found = _find(method, parts)
    if found is None or (parts and not parts[-1]):
        path = "…/" + "/".join(parts)
        if parts and not parts[-1]:
            raise no_slash(path)
        others = [other for other in _METHODS if _find(other, parts)]
        if not others and len(parts) > 2 and parts[0] in _NAMED:
            path += ": if the id holds a slash, write it as %2F"
        raise not_found(method, others, path)
    return found


def _find(method: str, parts: list[str]) -> Route | None:
    found = _TABLE.get((method, *parts))
    if found is None and len(parts) >= 2 and parts[0] in _NAMED:
        found = _TABLE.get((method, parts[0], _NAMED[parts[0]], *parts[2:]))
    return found


def no_slash(path: str) -> ProblemError:
    """Return the problem of a path that ends with a slash."""
    return ProblemError(404, "Not found", f"leave out the slash at the end of {path}")


def not_found(method: str, others: Sequence[str], path: str) -> ProblemError:
    """Return why there is no route: other methods may have one."""
    if not others:
        return ProblemError(404, "Not found", f"there is no {path}")
    message = f"this takes {' or '.join(others)}, not {method}"
    headers = {"allow": ", ".join(others)}
    return ProblemError(405, "Method not allowed", message, headers=headers)
