"""Clients of the service: one for asyncio, and one with the same verbs, whose calls block."""

from __future__ import annotations

import inspect
import math
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import msgspec

from belated.client.requests import (
    batches,
    decision_request,
    decision_requests,
    encode,
    event_time,
    named_rewards,
    place_of,
    quoted,
    reward_body,
    sent_again,
    subject_rewards,
)
from belated.core.ids import check_id
from belated.core.inputs import as_reward
from belated.core.rewards import check_alone
from belated.core.times import Duration, Moment
from belated.decider.actions import ActionState, Change
from belated.decider.models import ModelState, Version
from belated.exceptions import FallbackWarning, InvalidInput, ServiceError, ServiceUnavailable
from belated.features import Actions
from belated.fold.receipts import Receipt
from belated.wire.keys import check_key
from belated.wire.messages import (
    MAX_BATCH,
    Accepted,
    ActionBody,
    BanditHealth,
    Bandits,
    BanditState,
    Decided,
    DecisionDetails,
    DecisionRequest,
    DecisionRequests,
    Erasure,
    Fallback,
    ManyAccepted,
    ManyDecided,
    ModelBody,
    Models,
    ModelSwitch,
    RewardsBody,
    SubjectRewardsBody,
)

#: Decisions made without the service that a client remembers until it has reported them.
MAX_UNREPORTED = 10_000

P = ParamSpec("P")
T = TypeVar("T")


class _Calls:
    """Calls to a service for one bandit, as coroutines.

    With a blocking transport, they never suspend.
    """

    _blocks: bool

    def __init__(
        self,
        url: str,
        *,
        bandit: str,
        timeout: float = 5.0,
        retries: int = 3,
        headers: dict[str, str] | None = None,
        key: str | None = None,
        fallback: int | str | None = None,
    ) -> None:
        from belated.client.transport import Transport  # needs httpx

        sent = {} if headers is None else dict(headers)
        if key is not None:
            sent["authorization"] = f"Bearer {check_key(key)}"
        self.bandit = check_id(bandit, "the bandit's name")
        self._base = f"v1/{quoted(bandit)}"
        self._transport = Transport.to(
            url, blocking=self._blocks, timeout=timeout, headers=sent, retries=retries
        )
        # Of new ids: from the last response, so that they share a partition with those of others.
        self._slot: int | None = None
        self._fallback = fallback
        # Decisions that were made here, and that the service does not know yet.
        self._unreported: deque[DecisionRequest] = deque(maxlen=MAX_UNREPORTED)

    async def _report(
        self, method: str, place: str, body: Any = None, query: dict[str, str] | None = None
    ) -> Receipt:
        accepted = await self._call(method, place, body, Accepted, query=query)
        return Receipt(accepted.id, accepted.status)

    async def _change_action(
        self, change: Change, action: int | str, reason: str, *times: Moment | None
    ) -> ActionState:
        sent = [None if at is None else event_time(at) for at in times]
        body = ActionBody(str(action), change, reason, *sent)
        return await self._call("PUT", "actions", body, ActionState)

    async def _call(
        self,
        method: str,
        place: str | None,
        body: Any,
        kind: type[T],
        *,
        again: Any = None,
        query: dict[str, str] | None = None,
    ) -> T:
        answer = await self._transport.call(
            method,
            "v1" if place is None else f"{self._base}/{place}".rstrip("/"),
            None if body is None else encode(body),
            again=None if again is None else encode(again),
            query=query,
        )
        try:
            found: T = _READERS[kind](answer)
        except msgspec.DecodeError as error:
            message = f"what answered is no service of this release: {error}"
            raise ServiceError(message) from None
        return found

    def _fallback_of(
        self, action: int | str | None, requests: list[DecisionRequest]
    ) -> int | str | None:
        """Return the fallback of a call, checked also while none is needed."""
        action = self._fallback if action is None else action
        if action is not None:
            for request in requests:
                place_of(action, request)
        return action

    def _fall_back(
        self, request: DecisionRequest, action: int | str, error: ServiceUnavailable
    ) -> Decided:
        """Decide without the service; the decision is reported later."""
        warnings.warn(f"{error}: took the fallback {action!r}", FallbackWarning, stacklevel=2)
        at, again = event_time(None), sent_again(request)
        self._unreported.append(
            msgspec.structs.replace(again, sticky=None, fallback=Fallback(action, at))
        )
        place = place_of(action, request)
        return Decided(request.id or "", action, place, 1.0, math.nan, 0, at, fallback=True)

    async def _report_fallbacks(self, limit: int = MAX_BATCH) -> None:
        """Report decisions that were made here while the service was unavailable."""
        made: list[DecisionRequest] = []
        with suppress(IndexError):  # other threads take from it, too
            while len(made) < limit:
                made.append(self._unreported.popleft())
        reported = 0
        try:
            with suppress(ServiceUnavailable):
                for some in batches(made):
                    await self._report_made(some)
                    reported += len(some)
        finally:
            self._unreported.extendleft(reversed(made[reported:]))

    async def _report_made(self, made: list[DecisionRequest]) -> None:
        body = DecisionRequests(made)
        try:
            answer = await self._call("POST", "decisions/batch", body, ManyDecided)
            for request, decision in zip(made, answer.decisions, strict=True):
                assert request.fallback is not None
                if decision.action != request.fallback.action:  # an answer of the service was lost
                    await self._report("POST", f"{_place(decision.id)}/void", query=_query(None))
        except ServiceUnavailable:
            raise
        except (InvalidInput, ServiceError) as error:
            if len(made) == 1:
                message = f"a fallback decision could not be recorded: {error}"
                warnings.warn(message, FallbackWarning, stacklevel=2)
                return
            for one in made:  # one of them is refused, and the others are not
                await self._report_made([one])


class AsyncClient(_Calls):
    """A bandit that a service has, for asyncio: the verbs of :class:`Client`, to be awaited.

    Any number of tasks may share one; make it once, when the program starts. Close it with ``await
    client.close()``, or use it in ``async with``. Arguments and retries are those of
    :class:`Client`. Needs the extra ``client``.
    """

    _blocks = False

    # --- deciding ------------------------------------------------------------------------------

    async def decide(
        self,
        context: Any = None,
        actions: Actions | None = None,
        *,
        rows: Any = None,
        id: str | None = None,
        activated: bool = True,
        subject: str | None = None,
        sticky: Duration | None = None,
        fallback: int | str | None = None,
    ) -> Decided:
        """Choose an action; the decision is durable before this returns.

        Args:
            context: what is known at this moment: a mapping of fields, or a list of numbers.
            actions: the actions on offer; all that the features know if None.
            rows: one row of numbers per action, for a bandit without features.
            id: your own decision id. The same id again returns the same decision.
            activated: False if the window starts only with :meth:`activate`.
            subject: whom the decision is for, such as a user: :meth:`observe` can report rewards
                of subjects. It is stored as given: treat it as personal data, or send a hash.
            sticky: return the latest decision for the subject, as it was made, until this time has
                passed since, its action is paused or not on offer, or it was voided.
            fallback: the action to take if the service is unavailable; that of the client if None.

        Raises:
            InvalidInput: the service, or this method, refused what was given.
            ServiceUnavailable: no attempt was answered, and there is no fallback.
            ServiceError: the service answered with another problem.
        """
        request = decision_request(
            context, actions, rows, id, activated, self._slot, subject, sticky
        )
        again, action = sent_again(request), self._fallback_of(fallback, [request])
        try:
            answer = await self._call("POST", "decisions", request, Decided, again=again)
        except ServiceUnavailable as error:
            if action is None:
                raise
            return self._fall_back(request, action, error)
        # It is for the next id: the same decision always gives the same answer.
        self._slot = answer.slot
        await self._report_fallbacks()
        return msgspec.structs.replace(answer, slot=None)

    async def decide_many(
        self,
        contexts: Any = None,
        actions: Actions | None = None,
        *,
        rows: Any = None,
        ids: Any = None,
        subjects: Any = None,
        activated: bool = True,
        fallback: int | str | None = None,
    ) -> list[Decided]:
        """Choose many actions, each as if the ones before it were pending.

        They are sent in bodies of at most 1,000 requests and 1 MiB. If one of them fails, the
        bodies before it are decided: give ``ids``, and call again with the same ones.

        Args:
            contexts: a list of contexts, or of (context, actions) pairs; or a frame of pandas or
                polars with one context per line.
            actions: the actions of all requests, unless they come in pairs.
            rows: a list of row tables, for a bandit without features.
            ids: your own decision id for each; or the name of a column of the frame.
            subjects: whom each decision is for, None for nobody; or the name of a column of the
                frame.
            activated: False if the window starts only with :meth:`activate`.
            fallback: as in :meth:`decide`.
        """
        found: list[Decided] = []
        requests = decision_requests(contexts, actions, rows, ids, subjects, activated, self._slot)
        action = self._fallback_of(fallback, requests)
        for some in batches(requests):
            again = DecisionRequests(list(map(sent_again, some)))
            body = DecisionRequests(some)
            try:
                answer = await self._call("POST", "decisions/batch", body, ManyDecided, again=again)
            except ServiceUnavailable as error:
                if action is None:
                    raise
                found += [self._fall_back(request, action, error) for request in some]
                continue
            found += answer.decisions
            self._slot = answer.slot
            await self._report_fallbacks()
        return found

    # --- rewards -------------------------------------------------------------------------------

    async def observe(
        self,
        id: str | Decided | None = None,
        value: float | None = None,
        *,
        at: Moment | None = None,
        part: str = "",
        revision: int = 0,
        token: str | None = None,
        subject: str | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """Report the reward of a decision, or one part of it; or a reward of a subject.

        It is safe to repeat.

        The receipt is ``accepted``: the reward is durable. What it came to is in :meth:`entry`,
        once the learner has read it.

        Args:
            id: a decision, or its id; none with a subject.
            value: the reward.
            at: when it happened: a datetime with its zone, or ISO 8601; now if None.
            part: of the reward, if it comes in several.
            revision: of this part: a higher one replaces it.
            token: that came with the decision, if there is no key; it alone allows neither a
                time, nor a part or revision.
            subject: whose reward it is, instead of the id of a decision; with ``event_id``.
            event_id: names the outcome of the subject, such as an order number: it counts once.
        """
        if subject is not None:
            check_alone(subject, id, part, revision)
            reports = SubjectRewardsBody(subject_rewards([(subject, value, event_id, at)]))
            await self._call("POST", "rewards", reports, ManyAccepted)
            return Receipt(reports.rewards[0].event_id, "accepted")
        id, value = check_id(id), as_reward(value)
        body = reward_body(value, at, part, revision, token)
        return await self._report("PUT", f"{_place(id)}/reward", body)

    async def observe_many(self, rewards: Any) -> list[Receipt]:
        """Report many rewards, in bodies of at most 1,000; returns a receipt for each.

        Args:
            rewards: (id, value) pairs; or mappings with the keys id and value, and if need be at,
                part and revision; or a frame of pandas or polars with such columns.
        """
        receipts: list[Receipt] = []
        for some in batches(named_rewards(rewards)):
            await self._call("POST", "rewards/batch", RewardsBody(some), ManyAccepted)
            receipts += [Receipt(one.id, "accepted") for one in some]
        return receipts

    async def observe_subjects(self, rewards: Iterable[tuple[Any, ...]]) -> list[Receipt]:
        """Report many rewards of subjects, in bodies of at most 1,000.

        Args:
            rewards: (subject, value, event_id) or (subject, value, event_id, at) of each.
        """
        receipts: list[Receipt] = []
        for some in batches(subject_rewards(rewards)):
            await self._call("POST", "rewards", SubjectRewardsBody(some), ManyAccepted)
            receipts += [Receipt(reward.event_id, "accepted") for reward in some]
        return receipts

    async def activate(self, id: str | Decided, *, at: Moment | None = None) -> Receipt:
        """Report that a decision took effect: its window starts."""
        return await self._report("PUT", f"{_place(id)}/activation", query=_query(at))

    async def void(self, id: str | Decided, *, at: Moment | None = None) -> Receipt:
        """Report that a decision was never carried out: nothing is learned from it."""
        return await self._report("POST", f"{_place(id)}/void", query=_query(at))

    async def erase(self, id: str) -> int:
        """Erase a decision: it counts as if it had never been made.

        Returns:
            How many decisions were erased: 0 if the service has no record of it.
        """
        return (await self._call("DELETE", _place(id), None, Erasure)).decisions

    async def erase_subject(self, subject: str) -> int:
        """Erase a subject: all its decisions and rewards count as if they had never been.

        Returns:
            How many decisions were erased.
        """
        place = f"subjects/{quoted(check_id(subject, 'the subject'))}"
        return (await self._call("DELETE", place, None, Erasure)).decisions

    # --- actions -------------------------------------------------------------------------------

    async def pause(
        self,
        action: int | str,
        *,
        reason: str = "",
        start: Moment | None = None,
        until: Moment | None = None,
    ) -> ActionState:
        """Do not choose an action any more; all deciders obey within two seconds.

        Args:
            action: its name.
            reason: why, recorded in the journal.
            start: from when on: a datetime with its zone, or ISO 8601; at once if None.
            until: when the pause ends; None: when the action is resumed.
        """
        return await self._change_action("pause", action, reason, start, until)

    async def resume(self, action: int | str, *, reason: str = "") -> ActionState:
        """Choose an action again that was paused or retired."""
        return await self._change_action("resume", action, reason)

    async def retire(
        self, action: int | str, *, reason: str = "", start: Moment | None = None
    ) -> ActionState:
        """Pause an action for good: only :meth:`resume` brings it back."""
        return await self._change_action("retire", action, reason, start)

    # --- models --------------------------------------------------------------------------------

    async def models(self) -> list[ModelState]:
        """Return the models that can be chosen, the newest first."""
        return (await self._call("GET", "models", None, Models)).models

    async def use_model(self, version: Version, *, reason: str = "") -> None:
        """Decide with an earlier model; all deciders obey within a second, and learning goes on.

        Args:
            version: of a model, as :meth:`models` has it; ``"latest"``: the newest again.
            reason: why, recorded in the journal.
        """
        await self._call("PUT", "model", ModelBody(version, reason), ModelSwitch)

    # --- what is known -------------------------------------------------------------------------

    async def bandits(self) -> list[BanditHealth]:
        """Return all bandits of the service that the key may read."""
        return (await self._call("GET", None, None, Bandits)).bandits

    async def entry(self, id: str | Decided) -> DecisionDetails:
        """Return all that is known of one decision."""
        return await self._call("GET", _place(id), None, DecisionDetails)

    async def state(self) -> BanditState:
        """Return the state of the bandit, by the model that decides now."""
        return await self._call("GET", "", None, BanditState)

    async def close(self) -> None:
        """Report what was not reported yet, and close all connections."""
        await self._report_fallbacks(MAX_UNREPORTED)
        if self._unreported:
            message = f"the service is unavailable: {len(self._unreported)} fallback decisions"
            warnings.warn(f"{message} were not reported", FallbackWarning, stacklevel=2)
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


#: Made at import, as all decoders are: msgspec resolves the annotations of a type when it first
#: meets it, and two threads that do so at the same time can crash.
_READERS: dict[type, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(kind).decode
    for kind in (
        Accepted,
        ActionState,
        BanditState,
        Bandits,
        Decided,
        DecisionDetails,
        Erasure,
        ManyAccepted,
        ManyDecided,
        Models,
        ModelSwitch,
    )
}


def _place(id: str | Decided) -> str:
    return f"decisions/{quoted(check_id(id))}"


def _query(at: Moment | None) -> dict[str, str]:
    return {"at": event_time(at).isoformat()}


def _blocking(
    verb: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The same verb, for a client whose calls block."""

    @wraps(verb)
    def call(self: Client, /, *arguments: P.args, **named: P.kwargs) -> T:
        # A verb needs nothing of its client but the calls, which both have.
        return run_now(verb(cast("AsyncClient", self), *arguments, **named))

    # Tools that document it should see its arguments, and not a coroutine.
    call.__signature__ = inspect.signature(verb)  # type: ignore[attr-defined]
    del call.__wrapped__
    return call


def run_now(steps: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never gives way, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("a network that blocks has given way")


class Client(_Calls):
    """A bandit that a service has: the verbs of :class:`~belated.Bandit`, over HTTP.

    Any number of threads may share one; make it once, when the program starts. Close it with
    ``close()``, or use it in ``with``. :class:`AsyncClient` has the same verbs for asyncio. Needs
    the extra ``client``.

    **Retries.** Whatever the service takes may be sent twice, so a call that fails for want of a
    connection, an answer in time, or a server that can answer now (429, 502, 503, 504) is sent
    again, at most ``retries`` times, with waits that double. Rewards, activations and voids are
    sent with their time, so that the journal sees the same event again and keeps it once. A
    decision must have an id before it is sent, for what was lost may have been the answer: if you
    give none, one is made here. To look up every id would cost the service two queries for each
    decision, though an id that was just made cannot be known; and from the id alone it cannot tell
    a first try from a retry, which follows within a second. So the first try of such an id says
    ``first_attempt``, and is not looked up: nothing can be known under it, and if it is sent again
    before it is answered, then nobody waits for that answer any more. Retries do not set it,
    and are answered with what the first has left in the journal. An id of your own is always looked
    up: only you know whether it was sent before.

    Args:
        url: where the service is, such as ``http://decisions:8080``.
        bandit: the name of the bandit.
        timeout: seconds to wait for a connection, and then for each part of the answer.
        retries: how many times a call that was not answered is tried again.
        headers: to be sent with every request.
        key: API key, if the service needs one; it is never shown.
        fallback: the action to take if the service is unavailable: see ``docs/howto/client.md``.
    """

    _blocks = True

    decide = _blocking(AsyncClient.decide)
    decide_many = _blocking(AsyncClient.decide_many)
    observe = _blocking(AsyncClient.observe)
    observe_many = _blocking(AsyncClient.observe_many)
    observe_subjects = _blocking(AsyncClient.observe_subjects)
    activate = _blocking(AsyncClient.activate)
    void = _blocking(AsyncClient.void)
    erase = _blocking(AsyncClient.erase)
    erase_subject = _blocking(AsyncClient.erase_subject)
    pause = _blocking(AsyncClient.pause)
    resume = _blocking(AsyncClient.resume)
    retire = _blocking(AsyncClient.retire)
    models = _blocking(AsyncClient.models)
    use_model = _blocking(AsyncClient.use_model)
    bandits = _blocking(AsyncClient.bandits)
    entry = _blocking(AsyncClient.entry)
    state = _blocking(AsyncClient.state)
    close = _blocking(AsyncClient.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
