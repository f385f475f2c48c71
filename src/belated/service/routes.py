"""The routes: what can be asked, by whom it is answered, and what the OpenAPI document says of it.

One table for all of it, so that the document and what is served cannot disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from belated.events import Activation, Decision, Void
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
    Offer,
    Offers,
    RewardBody,
    RewardsBody,
)
from belated.service.desk import Desk, named
from belated.service.problems import ProblemError


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

    @cached_property
    def read(self) -> Callable[[bytes], Any]:
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
    """

    desk: Desk
    id: str
    body: Any
    query: bytes


# These two await nothing themselves: with their return goes all that was sent.
def _decide(call: Call) -> Awaitable[Decided]:
    return _decided(call.desk.decide_many([call.body]))


def _decide_many(call: Call) -> Awaitable[ManyDecided]:
    return _many_decided(call.desk.decide_many(call.body.offers))


async def _decided(answer: Awaitable[list[Decision]]) -> Decided:
    (decision,) = await answer
    return Decided.of(decision)


async def _many_decided(answer: Awaitable[list[Decision]]) -> ManyDecided:
    return ManyDecided([Decided.of(decision) for decision in await answer])


async def _reward(call: Call) -> Accepted:
    await call.desk.reward(call.id, call.body)
    return Accepted(call.id)


async def _reward_many(call: Call) -> ManyAccepted:
    rewards = call.body.rewards
    await call.desk.reward_many(named(rewards))
    return ManyAccepted(len(rewards))


async def _activate(call: Call) -> Accepted:
    await call.desk.tell(Activation(check_id(call.id), _at(call)))
    return Accepted(call.id)


async def _void(call: Call) -> Accepted:
    await call.desk.tell(Void(check_id(call.id), _at(call)))
    return Accepted(call.id)


async def _story(call: Call) -> DecisionStory:
    return await call.desk.story(call.id)


async def _state(call: Call) -> BanditState:
    return call.desk.state()


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
        return call.desk.now()
    if len(given["at"]) > 1:
        raise InvalidInput("at stands in the query more than once")
    try:
        return msgspec.convert(given["at"][0], Microseconds, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"at in the query: {error}") from None


_DECISIONS = "/v1/{bandit}/decisions"
_AT = {"at": Microseconds}

#: What can be asked of a bandit.
BANDIT_ROUTES = (
    Route(
        "POST", _DECISIONS, _decide, "Choose one of some actions", Decided, 201, Offer
    ),
    Route(
        "POST", f"{_DECISIONS}/batch", _decide_many, "Choose for many offers", ManyDecided, 201,
        Offers,
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/reward", _reward, "Report the reward of a decision", Accepted,
        202, RewardBody,
    ),
    Route(
        "POST", "/v1/{bandit}/rewards/batch", _reward_many, "Report many rewards", ManyAccepted,
        202, RewardsBody,
    ),
    Route(
        "PUT", f"{_DECISIONS}/{{id}}/activation", _activate,
        "Say that a decision took effect: its window starts", Accepted, 202, query=_AT,
    ),
    Route(
        "DELETE", f"{_DECISIONS}/{{id}}", _void,
        "Say that a decision was never carried out: nothing is learned from it", Accepted, 202,
        query=_AT,
    ),
    Route("GET", f"{_DECISIONS}/{{id}}", _story, "Tell all of one decision", DecisionStory),
    Route("GET", "/v1/{bandit}", _state, "Tell how a bandit stands", BanditState),
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
