"""The routes: what can be asked, by whom it is answered, and what the OpenAPI document says of it.

One table for all of it, so that the document and what is served cannot disagree.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from belated.events import Activation, Decision, Switched, Void
from belated.exceptions import InvalidInput
from belated.ids import check_id
from belated.service.bodies import (
    Accepted,
    BanditState,
    Decided,
    DecisionStory,
    ManyAccepted,
    ManyDecided,
    Microseconds,
    ModeBody,
    Offer,
    Offers,
    RewardBody,
    RewardsBody,
    Switch,
)
from belated.service.desk import Desk, named
from belated.service.keys import KeyScope
from belated.service.problems import ProblemError
from belated.service.tokens import RewardTokens


@dataclass(frozen=True)
class Route:
    """What can be asked.

    Attributes:
        method: of HTTP.
        path: a part in braces stands for whatever is there.
        handler: gives the answer.
        summary: in a few words.
        answer: the type of the answer, None where it is no JSON.
        status: of the answer.
        body: the type of the request's body, None if it has none.
        query: parameters after the question mark, each with its type; none must be given.
        also: the type of the answer for further statuses that are no problems.
        content: the content type of the answer.
        scope: what a key must be for; None if all may ask. There is no default, so that none is
            forgotten.
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

    @cached_property
    def read(self) -> Callable[[bytes | bytearray], Any]:
        """From the bytes of a body to its type."""
        if self.body is None:
            return lambda data: None
        return msgspec.json.Decoder(self.body).decode


class Call(NamedTuple):
    """A request for one bandit.

    Attributes:
        desk: of the bandit.
        id: in its path, empty if there is none.
        body: as the route has it.
        query: what stands after the question mark.
        tokens: of the bandit, where it makes any.
    """

    desk: Desk
    id: str
    body: Any
    query: bytes
    tokens: RewardTokens | None


class Asking(NamedTuple):
    """What a handler answers.

    Attributes:
        waiting: for what was asked to be done; nothing that was sent is held by it.
        tell: makes the answer of what comes of it.
    """

    waiting: Future[Any] | Coroutine[Any, Any, Any]
    tell: Callable[[Any], Any]


def _decide(call: Call) -> Asking:
    return Asking(call.desk.decide_many([call.body]), partial(_decided, call.tokens))


def _decided(tokens: RewardTokens | None, made: Sequence[Decision]) -> Decided:
    (decision,) = made
    return Decided.of(decision, None if tokens is None else tokens.of(decision))


def _decide_many(call: Call) -> Asking:
    return Asking(call.desk.decide_many(call.body.offers), partial(_many_decided, call.tokens))


def _many_decided(tokens: RewardTokens | None, made: Sequence[Decision]) -> ManyDecided:
    return ManyDecided([_decided(tokens, [one]) for one in made])


def _reward(call: Call) -> Asking:
    return Asking(call.desk.reward_many([(call.id, call.body)]), partial(_accepted, call.id))


def _accepted(id: str, _: Any) -> Accepted:
    return Accepted(id)


def _reward_many(call: Call) -> Asking:
    rewards = rewards_in(call.id, call.body)
    return Asking(call.desk.reward_many(rewards), lambda _: ManyAccepted(len(rewards)))


def rewards_in(id: str, body: RewardBody | RewardsBody) -> list[tuple[str, RewardBody]]:
    """The rewards that a request reports, each with its id."""
    return named(body.rewards) if isinstance(body, RewardsBody) else [(id, body)]


def _activate(call: Call) -> Asking:
    event = Activation(check_id(call.id), _at(call))
    return Asking(call.desk.tell(event), partial(_accepted, call.id))


def _void(call: Call) -> Asking:
    event = Void(check_id(call.id), _at(call))
    return Asking(call.desk.tell(event), partial(_accepted, call.id))


def _story(call: Call) -> Asking:
    return Asking(call.desk.story(call.id), _as_it_is)


def _state(call: Call) -> Asking:
    return Asking(_at_once(call.desk.state()), _as_it_is)


async def _at_once(content: Any) -> Any:
    return content


def _switch(call: Call) -> Asking:
    return Asking(call.desk.switch(call.body.mode, call.body.reason), _switched)


def _switched(event: Switched) -> Switch:
    return Switch(event.mode, event.reason, event.at)


def _as_it_is(content: Any) -> Any:
    return content


def _at(call: Call) -> int:
    """When it happened: as the caller says, or now."""
    text = call.query.decode("latin-1")
    try:  # more than these are not taken apart: a query may be longer than a body
        given = parse_qs(text, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise InvalidInput("the query has more than 10 parameters: at is the only one") from None
    if given.keys() - {"at"}:
        raise InvalidInput(f"{sorted(given)} in the query: nothing but at can be there")
    if not given:
        return call.desk.when(None)
    if len(given["at"]) > 1:
        raise InvalidInput("at stands in the query more than once")
    try:
        at = msgspec.convert(given["at"][0], Microseconds, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"at in the query: {error}") from None
    return call.desk.when(at)


_DECISIONS = "/v1/{bandit}/decisions"
_AT = {"at": Microseconds}

#: What can be asked of a bandit. Whoever decides also says whether that was carried out.
BANDIT_ROUTES = (
    Route(
        "POST", _DECISIONS, _decide, "Choose one of some actions", Decided, 201, Offer,
        scope="decide",
    ),
    Route(
        "POST", f"{_DECISIONS}/batch", _decide_many, "Choose for many offers", ManyDecided, 201,
        Offers, scope="decide",
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/reward", _reward, "Report the reward of a decision", Accepted,
        202, RewardBody, scope="reward",
    ),
    Route(
        "POST", "/v1/{bandit}/rewards/batch", _reward_many, "Report many rewards", ManyAccepted,
        202, RewardsBody, scope="reward",
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/activation", _activate,
        "Say that a decision took effect: its window starts", Accepted, 202, query=_AT,
        scope="decide",
    ),
    Route(
        "DELETE", f"{_DECISIONS}/{{id}}", _void,
        "Say that a decision was never carried out: nothing is learned from it", Accepted, 202,
        query=_AT, scope="decide",
    ),
    Route(
        "GET", f"{_DECISIONS}/{{id}}", _story, "Tell all of one decision", DecisionStory,
        scope="read",
    ),
    Route(
        "GET", "/v1/{bandit}", _state, "Tell how a bandit stands", BanditState, scope="read"
    ),
    Route(
        "PUT", "/v1/{bandit}/mode", _switch,
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
