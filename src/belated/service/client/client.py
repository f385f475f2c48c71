"""The verbs of a bandit, over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np

from belated.exceptions import InvalidInput, ServiceError
from belated.features import Actions, as_actions
from belated.ids import check_id, new_id
from belated.inputs import as_numbers, as_reward, as_rows
from belated.journals.steady_clock import system_clock
from belated.ledger.receipts import Receipt
from belated.rewards import check_part
from belated.service.access.keys import check_key
from belated.service.wire.schemas import (
    MAX_BATCH,
    Accepted,
    BanditState,
    Decided,
    DecisionDetails,
    DecisionRequest,
    DecisionRequests,
    ManyAccepted,
    ManyDecided,
    NamedReward,
    RewardBody,
    RewardsBody,
)
from belated.times import Moment, as_microseconds

T = TypeVar("T")
Said = TypeVar("Said", bound=RewardBody)


class Client:
    """A bandit that a service has: the verbs of :class:`~belated.Bandit`, over HTTP.

    Any number of threads may share one. Needs the extra ``client``. There is no second class for
    asyncio: the routes are few, and any client of HTTP will do.

    **Retries.** Whatever the service takes may be sent twice, so a call that fails for want of a
    connection, an answer in time, or a server that can answer now (429, 502, 503, 504) is sent
    again, at most ``retries`` times, with waits that double. Rewards, activations and voids are
    sent with their time, so that the journal sees the same event again and keeps it once. A
    decision must have an id before it is sent, for what was lost may have been the answer: where
    none is given, one is made here. To look up every id would cost the service two queries for each
    decision, though an id that was just made cannot be known; and from the id alone it cannot tell
    a first try from a retry, which follows within a second. So the first try says that its id is
    ``fresh``, and is not looked up: nothing can be known under it, and if it is sent again before
    it is answered, then nobody waits for that answer any more. Further tries do not say so, and are
    answered with what the first has left in the journal. An id of your own is always looked up:
    only you know whether it was sent before.

    Args:
        url: where the service is, such as ``http://decisions:8080``.
        bandit: the name of the bandit.
        timeout: seconds to wait for a connection, and then for each part of the answer.
        retries: how many times a call that was not answered is tried again.
        headers: to be sent with every request.
        key: for a service that asks for one; it is never shown.
    """

    def __init__(
        self,
        url: str,
        *,
        bandit: str,
        timeout: float = 5.0,
        retries: int = 3,
        headers: dict[str, str] | None = None,
        key: str | None = None,
    ) -> None:
        from belated.service.client.transport import Transport  # needs httpx

        if key is not None:
            headers = {**(headers or {}), "authorization": f"Bearer {check_key(key)}"}

        if type(retries) is not int or retries < 0:
            message = f"retries is {retries!r}: a whole number of at least 0 was expected"
            raise InvalidInput(message, retries)
        self.bandit = check_id(bandit, "the bandit's name")
        self._base = f"v1/{_quoted(bandit)}"
        self._calls = Transport(url, timeout=timeout, retries=retries, headers=headers)

    # --- deciding ------------------------------------------------------------------------------

    def decide(
        self,
        rows: Any,
        actions: Actions | None = None,
        *,
        id: str | None = None,
        activated: bool = True,
    ) -> Decided:
        """Have an action chosen; when this returns, the choice is safely kept.

        Args:
            rows: one row per action; or the context, where the bandit has features.
            actions: the actions, in the order of the rows; needed where the bandit has features.
            id: your own name for the decision. The same id again gives the same decision back.
            activated: False if the outcome clock starts only with :meth:`activate`.

        Raises:
            InvalidInput: the service, or this method, refused what was given.
            ServiceUnavailable: no try was answered; go on with a default of your own.
            ServiceError: the service answered with another problem.
        """
        request = _offer(rows, actions, id, activated)
        return self._ask("POST", "decisions", request, Decided, again=_not_fresh(request))

    def decide_many(self, requests: Sequence[Any], *, activated: bool = True) -> list[Decided]:
        """Have many actions chosen in one request, each as if the ones before it were pending.

        Args:
            requests: at most 1,000: rows for each; or (context, actions) for each, where the bandit
                has features.
            activated: False if the outcome clock starts only with :meth:`activate`.
        """
        made = [_offer(*_divided(request), None, activated) for request in requests]
        if not made:
            return []
        again = DecisionRequests([_not_fresh(request) for request in made])
        return self._ask(
            "POST", "decisions/batch", DecisionRequests(made), ManyDecided, again=again
        ).decisions

    # --- being told ----------------------------------------------------------------------------

    def observe(
        self,
        id: str,
        value: float,
        *,
        at: Moment | None = None,
        part: str = "",
        revision: int = 0,
        token: str | None = None,
    ) -> Receipt:
        """Report the reward of a decision, or one part of it; safe to repeat.

        The receipt says ``accepted``: it is safe. What it means the learner finds out, and
        :meth:`entry` tells.

        Args:
            id: of the decision.
            value: the reward.
            at: when it happened: a datetime with its zone, or ISO 8601; now if None.
            part: of the reward, where it comes in several.
            revision: of this part: a higher one replaces it.
            token: that came with the decision, where there is no key; it alone allows neither a
                time, nor a part or revision.
        """
        check_part(part, revision)
        moment = None if at is None else as_microseconds(at)
        body = _timed(RewardBody(as_reward(value), moment, part, revision, token))
        return self._tell("PUT", f"{_place(id)}/reward", body)

    def observe_many(self, rewards: Iterable[tuple[str, float] | NamedReward]) -> list[Receipt]:
        """Report many rewards, 1,000 in one request.

        Args:
            rewards: an id and a value each; or, with more to say,
                :class:`~belated.service.wire.schemas.NamedReward`.
        """
        receipts: list[Receipt] = []
        todo = map(_named, rewards)
        while some := list(islice(todo, MAX_BATCH)):
            self._ask("POST", "rewards/batch", RewardsBody(some), ManyAccepted)
            receipts += [Receipt(one.id, "accepted") for one in some]
        return receipts

    def activate(self, id: str, *, at: Moment | None = None) -> Receipt:
        """The decision took effect: its window starts."""
        return self._tell("PUT", f"{_place(id)}/activation", query={"at": _time(at)})

    def void(self, id: str, *, at: Moment | None = None) -> Receipt:
        """The decision was never carried out: nothing is learned from it."""
        return self._tell("DELETE", _place(id), query={"at": _time(at)})

    # --- what is known -------------------------------------------------------------------------

    def entry(self, id: str) -> DecisionDetails:
        """All that is known of one decision."""
        return self._ask("GET", _place(id), None, DecisionDetails)

    def state(self) -> BanditState:
        """How it stands with the bandit."""
        return self._ask("GET", "", None, BanditState)

    def close(self) -> None:
        """Close all connections."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _tell(
        self, method: str, place: str, body: Any = None, query: dict[str, int] | None = None
    ) -> Receipt:
        told = self._ask(method, place, body, Accepted, query=query)
        return Receipt(told.id, told.status)

    def _ask(
        self,
        method: str,
        place: str,
        body: Any,
        kind: type[T],
        *,
        again: Any = None,
        query: dict[str, int] | None = None,
    ) -> T:
        answer = self._calls.call(
            method,
            f"{self._base}/{place}".rstrip("/"),
            None if body is None else msgspec.json.encode(body),
            again=None if again is None else msgspec.json.encode(again),
            query=query,
        )
        try:
            found: T = _READERS[kind](answer)
        except msgspec.DecodeError as error:
            message = f"what answered is no service of this release: {error}"
            raise ServiceError(message) from None
        return found


#: Made at import, as all decoders are: msgspec resolves the annotations of a type when it first
#: meets it, and two threads that do so at the same time can crash.
_READERS: dict[type, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(kind).decode
    for kind in (Accepted, BanditState, Decided, DecisionDetails, ManyAccepted, ManyDecided)
}


def _offer(rows: Any, actions: Actions | None, id: str | None, activated: bool) -> DecisionRequest:
    if type(activated) is not bool:
        raise InvalidInput(f"activated is {activated!r}: True or False was expected", activated)
    first_attempt = id is None
    id = new_id(system_clock()) if id is None else check_id(id)
    names = None if actions is None else _named_actions(actions)
    if rows is None or isinstance(rows, Mapping):
        context = None if rows is None else dict(rows)
        return DecisionRequest(
            context=_plain(context),
            actions=names,
            id=id,
            first_attempt=first_attempt,
            activated=activated,
        )
    given = as_numbers(rows, "rows")
    if given.ndim == 1:  # the numbers of a context
        return DecisionRequest(
            context=given.tolist(),
            actions=names,
            id=id,
            first_attempt=first_attempt,
            activated=activated,
        )
    dim = given.shape[-1] if given.ndim else 0
    table = as_rows(given, dim)
    packed = base64.b64encode(table.astype("<f4", copy=False).tobytes()).decode()
    return DecisionRequest(
        packed, dim, actions=names, id=id, first_attempt=first_attempt, activated=activated
    )


def _named_actions(actions: Actions) -> list[int | str] | dict[str, Any]:
    names = as_actions(actions)
    if isinstance(actions, Mapping):
        return {str(name): _plain(record) for name, record in actions.items()}
    return list(names)


def _plain(value: Any) -> Any:
    """A record as JSON has it; what numpy holds becomes what Python has."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def _divided(request: Any) -> tuple[Any, Actions | None]:
    """The rows of an offer; or its context and its actions, which are no numbers."""
    if isinstance(request, tuple) and len(request) == 2:
        context, actions = request
        if isinstance(context, Mapping | None) or any(isinstance(one, str) for one in actions):
            return context, actions
    return request, None


def _not_fresh(request: DecisionRequest) -> DecisionRequest:
    """The same, for a further try."""
    return msgspec.structs.replace(request, first_attempt=False)


def _named(reward: tuple[str, float] | NamedReward) -> NamedReward:
    if not isinstance(reward, NamedReward):
        id, value = reward
        reward = NamedReward(as_reward(value), id=check_id(id))
    return _timed(reward)


def _timed(reward: Said) -> Said:
    """With the time of now if it has none; under a token that is for the service to say."""
    if reward.at is None and reward.token is not None:
        return reward
    return msgspec.structs.replace(reward, at=_time(reward.at))


def _time(at: Moment | None) -> int:
    return system_clock() if at is None else as_microseconds(at)


def _place(id: str) -> str:
    return f"decisions/{_quoted(check_id(id))}"


def _quoted(text: str) -> str:
    """A part of a path; "." and ".." would otherwise mean another place."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")
