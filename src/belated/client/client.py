"""Clients of the service: one whose calls block, and one for asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from belated.client.verbs import Verbs
from belated.wire.keys import check_key

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(Verbs):
    """A bandit that a service has, for asyncio: the verbs of :class:`Client`, to be awaited.

    Any number of tasks may share one; make it once, when the program starts. Close it with ``await
    client.close()``, or use it in ``async with``. Arguments and retries are those of
    :class:`Client`. Needs the extra ``client``.
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
        from belated.client.transport import AsyncNetwork, Transport  # needs httpx

        network = AsyncNetwork.to(url, timeout=timeout, headers=_with_key(headers, key))
        super().__init__(bandit, Transport(url, network, retries=retries))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _blocking(
    verb: Callable[Concatenate[Verbs, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The same verb, for a client whose calls block."""

    @wraps(verb)
    def call(self: Client, /, *arguments: P.args, **named: P.kwargs) -> T:
        return run_now(verb(self._verbs, *arguments, **named))

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
    raise AssertionError("a blocking network has given way")


class Client:
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
    before it is answered, then nobody waits for that answer any more. Further tries do not say so,
    and are answered with what the first has left in the journal. An id of your own is always looked
    up: only you know whether it was sent before.

    Args:
        url: where the service is, such as ``http://decisions:8080``.
        bandit: the name of the bandit.
        timeout: seconds to wait for a connection, and then for each part of the answer.
        retries: how many times a call that was not answered is tried again.
        headers: to be sent with every request.
        key: API key, if the service asks for one; it is never shown.
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
        from belated.client.transport import BlockingNetwork, Transport  # needs httpx

        network = BlockingNetwork.to(url, timeout=timeout, headers=_with_key(headers, key))
        self._verbs = Verbs(bandit, Transport(url, network, retries=retries))
        self.bandit = self._verbs.bandit

    decide = _blocking(Verbs.decide)
    decide_many = _blocking(Verbs.decide_many)
    observe = _blocking(Verbs.observe)
    observe_many = _blocking(Verbs.observe_many)
    activate = _blocking(Verbs.activate)
    void = _blocking(Verbs.void)
    entry = _blocking(Verbs.entry)
    state = _blocking(Verbs.state)
    close = _blocking(Verbs.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _with_key(headers: dict[str, str] | None, key: str | None) -> dict[str, str] | None:
    if key is None:
        return headers
    return {**(headers or {}), "authorization": f"Bearer {check_key(key)}"}
