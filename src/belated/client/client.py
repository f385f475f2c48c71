"""Clients for the decision service: one for asyncio, and a blocking one with the same methods."""

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

#: Maximum number of unreported fallback decisions in the queue. Beyond it, the oldest are dropped.
MAX_UNREPORTED = 10_000

P = ParamSpec("P")
T = TypeVar("T")


class _Calls:
    """Coroutines that call a service for one bandit.

    With a blocking transport, the coroutines never suspend.
    """

    _blocks: bool

    def __init__(
        self,
        url: str | Callable[..., Any],
        *,
        bandit: str,
        timeout: float = 5.0,
        retries: int = 3,
        headers: dict[str, str] | None = None,
        key: str | None = None,
        fallback: int | str | None = None,
    ) -> None:
        from belated.client.transport import Transport  # needs httpx

        all_headers = {} if headers is None else dict(headers)
        if key is not None:
            all_headers["authorization"] = f"Bearer {check_key(key)}"
        self.bandit = check_id(bandit, "the bandit's name")
        self._base = f"v1/{quoted(bandit)}"
        self._transport = Transport.to(
            url, blocking=self._blocks, timeout=timeout, headers=all_headers, retries=retries
        )
        # The slot for new ids, from the last response. Decisions whose ids share a partition can be
        # committed together.
        self._slot: int | None = None
        self._fallback = fallback
        # Fallback decisions that the service has not recorded yet.
        self._unreported: deque[DecisionRequest] = deque(maxlen=MAX_UNREPORTED)

    async def _report(
        self, method: str, place: str, body: Any = None, query: dict[str, str] | None = None
    ) -> Receipt:
        accepted = await self._call(method, place, body, Accepted, query=query)
        return Receipt(accepted.id, accepted.status)

    async def _change_action(
        self, change: Change, action: int | str, reason: str, *times: Moment | None
    ) -> ActionState:
        stamps = [None if at is None else event_time(at) for at in times]
        body = ActionBody(str(action), change, reason, *stamps)
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
        response = await self._transport.call(
            method,
            "v1" if place is None else f"{self._base}/{place}".rstrip("/"),
            None if body is None else encode(body),
            again=None if again is None else encode(again),
            query=query,
        )
        try:
            value: T = _READERS[kind](response)
        except msgspec.DecodeError as error:
            message = f"unexpected response: check the URL and the service's release: {error}"
            raise ServiceError(message) from None
        return value

    def _fallback_of(
        self, action: int | str | None, requests: list[DecisionRequest]
    ) -> int | str | None:
        """Return a call's fallback action, or None; reject an invalid action even if unused."""
        action = self._fallback if action is None else action
        if action is not None:
            for request in requests:
                place_of(action, request)
        return action

    def _fall_back(
        self, request: DecisionRequest, action: int | str, error: ServiceUnavailable
    ) -> Decided:
        """Decide without the service, and queue the decision to be reported later."""
        level = 5 if self._blocks else 3  # the caller of `decide`
        warnings.warn(f"{error}: used the fallback {action!r}", FallbackWarning, stacklevel=level)
        at, retry = event_time(None), sent_again(request)
        self._unreported.append(
            msgspec.structs.replace(retry, sticky=None, fallback=Fallback(action, at))
        )
        place = place_of(action, request)
        return Decided(request.id or "", action, place, 1.0, math.nan, 0, at, fallback=True)

    async def _report_fallbacks(self, limit: int = MAX_BATCH) -> None:
        """Report queued fallback decisions; keep those that cannot be delivered in the queue."""
        pending: list[DecisionRequest] = []
        with suppress(IndexError):  # other threads may empty the queue
            while len(pending) < limit:
                pending.append(self._unreported.popleft())
        reported = 0
        try:
            with suppress(ServiceUnavailable):
                for batch in batches(pending):
                    await self._report_batch(batch)
                    reported += len(batch)
        finally:
            self._unreported.extendleft(reversed(pending[reported:]))

    async def _report_batch(self, batch: list[DecisionRequest]) -> None:
        body = DecisionRequests(batch)
        try:
            response = await self._call("POST", "decisions/batch", body, ManyDecided)
            for request, decision in zip(batch, response.decisions, strict=True):
                assert request.fallback is not None
                # The service did decide, but its response was lost, so this action was not taken.
                if decision.action != request.fallback.action:
                    await self._report("POST", f"{_place(decision.id)}/void", query=_query(None))
        except ServiceUnavailable:
            raise
        except (InvalidInput, ServiceError) as error:
            if len(batch) == 1:
                message = f"a fallback decision could not be recorded: {error}"
                warnings.warn(message, FallbackWarning, stacklevel=2)
                return
            for request in batch:  # the service rejects a batch if any of its requests is invalid
                await self._report_batch([request])


class AsyncClient(_Calls):
    """An asyncio client for one bandit on a decision service.

    Its methods are those of :class:`Client`, as coroutines, with the same arguments and retries.
    Create one client when the program starts and share it between tasks. Close it with ``await
    client.close()``, or use it in an ``async with`` statement. Requires the ``client`` extra.
    """

    _blocks = False

    # --- decisions -----------------------------------------------------------------------------

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
        """Choose an action. The decision is durable when this method returns.

        Args:
            context: the context of this decision: a mapping of fields, or a list of numbers.
            actions: the actions to choose from; by default, all that the features declare.
            rows: one row of numbers per action, for a bandit without features.
            id: an id that you choose for the decision. Calling this method again with the same id
                returns the same decision.
            activated: False if the reward window starts only when :meth:`activate` is called.
            subject: the user or other subject that the decision is for. :meth:`observe` can report
                rewards by subject. The subject is stored as given: treat it as personal data, or
                send a hash.
            sticky: return the subject's latest decision unchanged if the decision is younger than
                this duration and not voided, and its action is offered and not paused.
            fallback: the action to take if the service is unavailable; by default, the client's
                ``fallback``.

        Raises:
            InvalidInput: this method or the service rejected the arguments.
            ServiceUnavailable: all attempts failed, and there is no fallback.
            ServiceError: the service reported another problem.
        """
        request = decision_request(
            context, actions, rows, id, activated, self._slot, subject, sticky
        )
        retry, action = sent_again(request), self._fallback_of(fallback, [request])
        try:
            response = await self._call("POST", "decisions", request, Decided, again=retry)
        except ServiceUnavailable as error:
            if action is None:
                raise
            return self._fall_back(request, action, error)
        # The slot is for the next id and not part of the decision.
        self._slot = response.slot
        await self._report_fallbacks()
        return msgspec.structs.replace(response, slot=None)

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
        """Make many decisions, each as if the preceding ones were pending.

        Requests are sent in batches of at most 1,000 requests and 1 MiB. If a batch fails, the
        preceding batches have already been decided. To make retries safe, pass ``ids``, and pass
        the same ids when you retry.

        Args:
            contexts: a list of contexts or of (context, actions) pairs, or a pandas or polars data
                frame with one context per row.
            actions: the actions to choose from in every request, unless ``contexts`` has pairs.
            rows: one table of rows per decision, for a bandit without features.
            ids: an id that you choose for each decision, or the name of a column of the data frame.
            subjects: the subject of each decision (None if it has no subject), or the name of a
                column of the data frame.
            activated: False if the reward windows start only when :meth:`activate` is called.
            fallback: as in :meth:`decide`.
        """
        decisions: list[Decided] = []
        requests = decision_requests(contexts, actions, rows, ids, subjects, activated, self._slot)
        action = self._fallback_of(fallback, requests)
        for batch in batches(requests):
            retry = DecisionRequests(list(map(sent_again, batch)))
            body = DecisionRequests(batch)
            try:
                response = await self._call(
                    "POST", "decisions/batch", body, ManyDecided, again=retry
                )
            except ServiceUnavailable as error:
                if action is None:
                    raise
                for request in batch:
                    decisions.append(self._fall_back(request, action, error))
                continue
            decisions += response.decisions
            self._slot = response.slot
            await self._report_fallbacks()
        return decisions

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
        """Report a decision's reward, one part of that reward, or a subject's reward.

        Repeating a report is safe. The status ``accepted`` in the receipt means that the reward is
        durable. Once the learner has read the reward, :meth:`entry` shows how it was counted.

        Args:
            id: the decision or its id; None if you pass a subject.
            value: the reward.
            at: when the rewarded event happened, as an aware datetime or ISO 8601 text; now by
                default.
            part: the name of this part, if the reward is reported in several parts.
            revision: a higher revision of a part replaces lower ones.
            token: the decision's token, for callers without a key. Callers without a key must not
                pass ``at``, ``part`` or ``revision``.
            subject: the subject that the reward is for, instead of a decision id; requires
                ``event_id``.
            event_id: an id of the rewarded event, such as an order number. Each event counts once.
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
        """Report many rewards in batches of at most 1,000, and return a receipt for each reward.

        Args:
            rewards: (id, value) pairs; mappings with the keys ``id`` and ``value``, and optionally
                ``at``, ``part`` and ``revision``; or a pandas or polars data frame with these
                columns.
        """
        receipts: list[Receipt] = []
        for batch in batches(named_rewards(rewards)):
            await self._call("POST", "rewards/batch", RewardsBody(batch), ManyAccepted)
            receipts += [Receipt(reward.id, "accepted") for reward in batch]
        return receipts

    async def observe_subjects(self, rewards: Iterable[tuple[Any, ...]]) -> list[Receipt]:
        """Report many rewards for subjects in batches of at most 1,000; return their receipts.

        Args:
            rewards: (subject, value, event_id) or (subject, value, event_id, at) tuples.
        """
        receipts: list[Receipt] = []
        for batch in batches(subject_rewards(rewards)):
            await self._call("POST", "rewards", SubjectRewardsBody(batch), ManyAccepted)
            receipts += [Receipt(reward.event_id, "accepted") for reward in batch]
        return receipts

    async def activate(self, id: str | Decided, *, at: Moment | None = None) -> Receipt:
        """Report that a decision has taken effect, which starts its reward window."""
        return await self._report("PUT", f"{_place(id)}/activation", query=_query(at))

    async def void(self, id: str | Decided, *, at: Moment | None = None) -> Receipt:
        """Report that a decision was never carried out. The model does not learn from it."""
        return await self._report("POST", f"{_place(id)}/void", query=_query(at))

    async def erase(self, id: str) -> int:
        """Erase a decision, as if it had never been made.

        Returns:
            The number of decisions erased, which is 0 if the service has no record of the decision.
        """
        return (await self._call("DELETE", _place(id), None, Erasure)).decisions

    async def erase_subject(self, subject: str) -> int:
        """Erase a subject with all its decisions and rewards, as if they had never existed.

        Returns:
            The number of decisions erased.
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
        """Stop choosing an action. This takes effect in all deciders within two seconds.

        Args:
            action: the name of the action.
            reason: the reason for the pause, recorded in the journal.
            start: when the pause starts, as an aware datetime or ISO 8601 text; now by default.
            until: when the pause ends; by default, when :meth:`resume` is called.
        """
        return await self._change_action("pause", action, reason, start, until)

    async def resume(self, action: int | str, *, reason: str = "") -> ActionState:
        """Make a paused or retired action available again."""
        return await self._change_action("resume", action, reason)

    async def retire(
        self, action: int | str, *, reason: str = "", start: Moment | None = None
    ) -> ActionState:
        """Retire an action: it stays paused until :meth:`resume` is called."""
        return await self._change_action("retire", action, reason, start)

    # --- models --------------------------------------------------------------------------------

    async def models(self) -> list[ModelState]:
        """Return the models that can be chosen, newest first."""
        return (await self._call("GET", "models", None, Models)).models

    async def use_model(self, version: Version, *, reason: str = "") -> None:
        """Decide with an earlier model. This takes effect in all deciders within a second.

        Learning continues.

        Args:
            version: a version from :meth:`models`, or ``"latest"`` for the newest model.
            reason: the reason for the choice, recorded in the journal.
        """
        await self._call("PUT", "model", ModelBody(version, reason), ModelSwitch)

    # --- state ---------------------------------------------------------------------------------

    async def bandits(self) -> list[BanditHealth]:
        """Return all bandits on the service that the API key may read."""
        return (await self._call("GET", None, None, Bandits)).bandits

    async def entry(self, id: str | Decided) -> DecisionDetails:
        """Return everything known about one decision."""
        return await self._call("GET", _place(id), None, DecisionDetails)

    async def state(self) -> BanditState:
        """Return the state of the bandit as of the model in use."""
        return await self._call("GET", "", None, BanditState)

    async def close(self) -> None:
        """Report the remaining fallback decisions and close all connections."""
        await self._report_fallbacks(MAX_UNREPORTED)
        if self._unreported:
            count = len(self._unreported)
            decisions = (
                "1 fallback decision was" if count == 1 else f"{count:,} fallback decisions were"
            )
            message = f"the service is unavailable: {decisions} not reported"
            warnings.warn(message, FallbackWarning, stacklevel=2)
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


#: Decoders by response type. They are built at import, because msgspec resolves a type's
#: annotations on first use, and two threads that do so at the same time can crash.
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
    """Return the blocking version of an asynchronous method."""

    @wraps(verb)
    def call(self: Client, /, *arguments: P.args, **named: P.kwargs) -> T:
        # The methods use only attributes of `_Calls`, which both clients inherit.
        return run_now(verb(cast("AsyncClient", self), *arguments, **named))

    # Show the arguments in the documentation without marking the method as a coroutine.
    call.__signature__ = inspect.signature(verb)  # type: ignore[attr-defined]
    del call.__wrapped__
    return call


def run_now(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends to completion, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the coroutine of a blocking transport suspended")


class Client(_Calls):
    """A blocking client for one bandit on a decision service, used like :class:`~belated.Bandit`.

    Create one client when the program starts and share it between threads. Close it with
    ``close()``, or use it in a ``with`` statement. :class:`AsyncClient` has the same methods for
    asyncio. Requires the ``client`` extra.

    **Retries.** Every request to the service is idempotent. If a request fails to connect, times
    out, or gets status 429, 502, 503 or 504, the client retries it up to ``retries`` times, with
    exponential backoff. Rewards, activations and voids include their time, so the journal
    recognizes a repeated event and stores it only once. A decision needs an id before it is sent,
    because a failed attempt may have been processed and only its response lost. If you do not pass
    an id, the client generates one.

    The service normally looks up each id to find an earlier decision, which costs two queries. It
    skips the lookup for new ids: the first attempt with a generated id sets ``first_attempt``.
    Retries do not set it, so they return any decision that the first attempt recorded. If a retry
    overtakes the first attempt, no one is waiting for the response to the first attempt any more.
    Ids that you pass are always looked up, because you may have sent them before.

    Args:
        url: the address of the service, such as ``http://decisions:8080``. An ``AsyncClient`` also
            accepts an ASGI application in this process (:func:`belated.service.asgi_app`).
        bandit: the name of the bandit.
        timeout: timeout in seconds for connecting, and then for each part of the response.
        retries: the maximum number of retries of a failed request.
        headers: headers to send with every request.
        key: the API key, if the service requires one. The client never displays it.
        fallback: the action to take if the service is unavailable; see ``docs/howto/client.md``.
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
