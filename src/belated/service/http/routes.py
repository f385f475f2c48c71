"""The routes: what can be asked, by whom it is answered, and what the OpenAPI document says of it.

One table for all of it, so that the document and what is served cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from belated.core.events import Activation, Decision, ModeChanged, Void
from belated.core.ids import check_id
from belated.decider import ParsedRequest
from belated.exceptions import InvalidInput
from belated.fold.decision_history import DecisionHistory
from belated.service.access.tokens import RewardTokens
from belated.service.http import console
from belated.service.http.parsing import event_time, parse_request, parse_rewards, rewards_in
from belated.service.http.problems import ProblemError
from belated.service.serving.definition import Definition
from belated.service.serving.request_batcher import Rows
from belated.service.serving.served_bandit import ServedBandit
from belated.wire.answers import (
    Accepted,
    BanditState,
    Decided,
    DecisionDetails,
    ManyAccepted,
    ManyDecided,
    Switch,
)
from belated.wire.keys import KeyScope
from belated.wire.requests import (
    TIME_HINT,
    DecisionRequest,
    DecisionRequests,
    EventTime,
    ModeBody,
    RewardBody,
    RewardsBody,
)

if TYPE_CHECKING:
    from belated.service.http.exchange import Exchange

#: Rows of a batch that are held in memory until they are used, in bytes.
HELD_BYTES = 8 << 20


@dataclass(frozen=True)
class Route:
    """What can be asked.

    Attributes:
        method: of HTTP.
        path: a part in braces stands for whatever is there.
        handler: takes the request and its body, and has the request told of what was done. Where it
            is about no bandit: takes the service, and returns status and content.
        render: makes the answer of what the request is told; None where it is about no bandit.
        summary: in a few words.
        answer: the type of the answer, None where it is no JSON.
        status: of the answer.
        body: the type of the request's body, None if it has none.
        query: parameters after the question mark, each with its type; none must be given.
        also: the type of the answer for further statuses that are no problems.
        content: the content type of the answer.
        scope: what a key must be for; None if all may ask. There is no default, so that none is
            forgotten.
        everywhere: whether the key must be for all bandits.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    render: Callable[[Exchange, Any], Any] | None
    summary: str
    answer: Any
    status: int = 200
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    also: dict[int, Any] = field(default_factory=dict)
    content: str = "application/json"
    scope: KeyScope | None = field(kw_only=True)
    everywhere: bool = False

    #: From the bytes of a body to its type. Made at once: msgspec resolves the annotations of a
    #: type when it first meets it, and two threads that do so at the same time can crash.
    read: Callable[[bytes | bytearray], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        read = _nothing if self.body is None else msgspec.json.Decoder(self.body).decode
        object.__setattr__(self, "read", read)


def _nothing(data: bytes | bytearray) -> None:
    """There is no body to read."""


def _decide(call: Exchange, body: DecisionRequest) -> None:
    request, rows = parse_request(body, call.bandit.definition)
    call.bandit.decide([request], [rows], call.settle)


def _decided(call: Exchange, made: Sequence[Decision]) -> Decided:
    (decision,) = made
    return _told(call.tokens, decision, call.bandit.slot)


def _told(tokens: RewardTokens | None, decision: Decision, slot: int | None = None) -> Decided:
    return Decided.of(decision, None if tokens is None else tokens.of(decision), slot)


def _decide_many(call: Exchange, body: DecisionRequests) -> None:
    call.bandit.decide_many(_parsed(body.requests, call.bandit.definition), call.settle)


def _parsed(
    requests: Sequence[DecisionRequest], definition: Definition
) -> Iterator[tuple[ParsedRequest, Rows]]:
    """Parse one request after the other; rows beyond `HELD_BYTES` are made when they are used."""
    held = 0
    for one in requests:
        request, rows = parse_request(one, definition)
        held += len(rows)
        yield request, rows if held <= HELD_BYTES else partial(_rows, one, definition)


def _rows(request: DecisionRequest, definition: Definition) -> bytes:
    return parse_request(request, definition)[1]


def _many_decided(call: Exchange, made: Sequence[Decision]) -> ManyDecided:
    return ManyDecided([_told(call.tokens, one) for one in made], call.bandit.slot)


def _reward(call: Exchange, body: RewardBody) -> None:
    rewards = parse_rewards([(call.id, body)], call.bandit, call.key_name)
    call.bandit.report(rewards, call.settle)


def _post_reward(call: Exchange, body: RewardBody) -> None:
    """The same by POST, the only method that ``navigator.sendBeacon`` has."""
    _reward(call, body)


def _accepted(call: Exchange, _: Any) -> Accepted:
    return Accepted(call.id)


def _reward_many(call: Exchange, body: RewardsBody) -> None:
    rewards = parse_rewards(rewards_in(call.id, body), call.bandit, call.key_name)
    call.bandit.report(rewards, call.settle)


def _many_accepted(call: Exchange, positions: Sequence[int]) -> ManyAccepted:
    return ManyAccepted(len(positions))


def _activate(call: Exchange, _: None) -> None:
    call.bandit.append_event(Activation(check_id(call.id), _at(call)), call.settle)


def _void(call: Exchange, _: None) -> None:
    call.bandit.append_event(Void(check_id(call.id), _at(call)), call.settle)


def _story(call: Exchange, _: None) -> None:
    call.bandit.details(call.id, call.settle)


def _told_story(call: Exchange, history: DecisionHistory) -> DecisionDetails:
    return DecisionDetails.of(history)


def _state(call: Exchange, _: None) -> None:
    call.settle(call.bandit)


def _state_of(call: Exchange, bandit: ServedBandit) -> BanditState:
    model = bandit.decider.model
    return BanditState(
        bandit=bandit.definition.name,
        policy=repr(bandit.definition.policy),
        version=bandit.version,
        observations=model.n,
        pending=model.pending,
        model_age_seconds=bandit.age,
        mode=bandit.decider.mode,
    )


def _switch(call: Exchange, body: ModeBody) -> None:
    call.bandit.change_mode(body.mode, body.reason, call.key_name, call.settle)


def _switched(call: Exchange, event: ModeChanged) -> Switch:
    return Switch(event.mode, event.reason, event.at)


def _at(call: Exchange) -> int:
    """When it happened: as the caller says, or now."""
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
        raise InvalidInput("at stands in the query more than once")
    (text,) = given["at"]
    try:
        at = _read_at(text.encode() if _NUMBER.fullmatch(text) else msgspec.json.encode(text))
    except msgspec.DecodeError as error:
        message = f"at in the query: {error}: {TIME_HINT}, and write + as %2B"
        raise InvalidInput(message) from None
    return event_time(at, call.bandit.now())


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_read_at: Callable[[bytes], Any] = msgspec.json.Decoder(EventTime).decode

_DECISIONS = "/v1/{bandit}/decisions"
_AT = {"at": EventTime}

#: What can be asked of a bandit. Whoever decides also says whether that was carried out.
BANDIT_ROUTES = (
    Route(
        "POST", _DECISIONS, _decide, _decided, "Choose one of some actions", Decided, 201,
        DecisionRequest, scope="decide",
    ),
    Route(
        "POST", f"{_DECISIONS}/batch", _decide_many, _many_decided,
        "Choose for many decision requests", ManyDecided, 201, DecisionRequests, scope="decide",
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/reward", _reward, _accepted,
        "Report the reward of a decision", Accepted, 202, RewardBody, scope="reward",
    ),
    Route(
        "POST", f"{_DECISIONS}/{{id}}/reward", _post_reward, _accepted,
        "The same by POST, for navigator.sendBeacon", Accepted, 202, RewardBody, scope="reward",
    ),
    Route(
        "POST", "/v1/{bandit}/rewards/batch", _reward_many, _many_accepted, "Report many rewards",
        ManyAccepted, 202, RewardsBody, scope="reward",
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/activation", _activate, _accepted,
        "Say that a decision took effect: its window starts", Accepted, 202, query=_AT,
        scope="decide",
    ),
    Route(
        "DELETE", f"{_DECISIONS}/{{id}}", _void, _accepted,
        "Say that a decision was never carried out: nothing is learned from it", Accepted, 202,
        query=_AT, scope="decide",
    ),
    Route(
        "GET", f"{_DECISIONS}/{{id}}", _story, _told_story, "Tell all of one decision",
        DecisionDetails, scope="read",
    ),
    Route(
        "GET", "/v1/{bandit}", _state, _state_of, "Tell how a bandit stands", BanditState,
        scope="read",
    ),
    Route(
        "GET", "/v1/{bandit}/report", console.report, console.reported, "Tell what a bandit earns",
        console.ReportPage, scope="read",
    ),
    Route(
        "PUT", "/v1/{bandit}/mode", _switch, _switched,
        "Learn on, freeze the model, do without it, or decide nothing", Switch, 200, ModeBody,
        scope="admin",
    ),
)  # fmt: skip

#: By method and the parts of the path after the bandit.
_TABLE = {(route.method, *route.path.split("/")[3:]): route for route in BANDIT_ROUTES}
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
    if found is None:
        others = [other for other in _METHODS if _find(other, parts)]
        if others:
            raise ProblemError(
                405,
                "Method not allowed",
                f"this takes {' or '.join(others)}, not {method}",
                headers={"allow": ", ".join(others)},
            )
        raise ProblemError(404, "Not found", f"there is no …/{'/'.join(parts)}")
    return found


def _find(method: str, parts: list[str]) -> Route | None:
    found = _TABLE.get((method, *parts))
    if found is None and len(parts) >= 2 and parts[0] == "decisions":
        found = _TABLE.get((method, "decisions", "{id}", *parts[2:]))
    return found
