"""Calls over HTTP that are tried again: everything the service takes may be sent twice.

There is one implementation, a coroutine. What sends and sleeps gives way to an event loop, or it
blocks. A coroutine over the second never gives way, so it needs no event loop: its first step is
its last.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self

import msgspec

from belated.exceptions import InvalidInput, MissingExtra, ServiceError, ServiceUnavailable
from belated.wire.messages import Problem

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtra("belated.client.Client", "client") from None

#: Statuses of a service, or of what stands before it, that cannot answer now, or not so often.
AGAIN = frozenset({429, 502, 503, 504})
#: Seconds before the first further try; they double with each, up to the most.
FIRST_WAIT, MOST_WAIT = 0.1, 10.0

_read_problem = msgspec.json.Decoder(Problem).decode
#: What TLS says of a server that speaks HTTP alone.
_NO_TLS = "WRONG_VERSION_NUMBER", "record layer failure"
_JSON = {"content-type": "application/json"}


class Transport:
    """Sends requests; those that fail for want of a server are sent again.

    Before the n-th further try it waits for a random part of ``FIRST_WAIT`` 2ⁿ⁻¹ seconds, so that
    many clients do not come back at the same moment, and at least as long as the service asks for
    (``Retry-After``). One that asks for more than ``MOST_WAIT`` seconds is not waited for.

    Args:
        url: where the service is, for messages.
        http: sends; blocks or gives way.
        sleep: waits for so many seconds, likewise.
        retries: how many further tries there are.
    """

    def __init__(
        self,
        url: str,
        http: httpx.Client | httpx.AsyncClient,
        sleep: Callable[[float], Any],
        *,
        retries: int,
    ) -> None:
        if type(retries) is not int or retries < 0:
            message = f"retries is {retries!r}: a whole number of at least 0 was expected"
            raise InvalidInput(message, retries)
        self._url = url
        self._http = http
        self._sleep = sleep
        self._retries = retries

    @classmethod
    def to(
        cls, url: str, *, blocking: bool, timeout: float, headers: dict[str, str], retries: int
    ) -> Self:
        """Return one that leads to a service, over a network that blocks or gives way."""
        check_url(url)
        http = (httpx.Client if blocking else httpx.AsyncClient)(
            base_url=url, timeout=timeout, headers=headers
        )
        return cls(url, http, time.sleep if blocking else asyncio.sleep, retries=retries)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        again: bytes | None = None,
        query: dict[str, str] | None = None,
    ) -> bytes:
        """Send a request until it is answered; returns the body of the answer.

        Args:
            method: of HTTP.
            path: below the address of the service, percent-encoded.
            body: of the request.
            again: the body for further tries, where it is another one.
            query: what follows the question mark.

        Raises:
            InvalidInput: the service refused what was sent.
            ServiceError: it answered with another problem.
            ServiceUnavailable: no try was answered.
        """
        for attempt in range(self._retries + 1):
            content = body if attempt == 0 or again is None else again
            wait = random.uniform(0.0, min(MOST_WAIT, FIRST_WAIT * 2**attempt))
            failed: ServiceUnavailable
            response: httpx.Response
            try:
                response = await _result(
                    self._http.request(method, path, content=content, params=query, headers=_JSON)
                )
            except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
                message = f"{self._url} is no address of a service: {error}"
                raise InvalidInput(message, self._url) from None
            except httpx.TransportError as error:
                if any(sign in str(error) for sign in _NO_TLS):
                    message = f"{self._url} answers without TLS"
                    plain = f"use http://{self._url.removeprefix('https://')}"
                    raise InvalidInput(f"{message}: {plain}", self._url) from None
                what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                failed = ServiceUnavailable(f"{self._url} cannot be reached: {what}")
                failed.__cause__ = error
            else:
                if response.is_success:
                    return response.content
                if response.status_code not in AGAIN:
                    raise _error_of(response)
                problem = _problem_of(response)
                failed = ServiceUnavailable(f"{self._url}: {_describe(problem)}", problem)
                wait = max(wait, _seconds(response.headers.get("retry-after")))
            if attempt == self._retries or wait > MOST_WAIT:
                raise failed
            await _result(self._sleep(wait))
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Close all connections."""
        if isinstance(self._http, httpx.Client):
            self._http.close()
        else:
            await self._http.aclose()


def check_url(url: Any) -> None:
    """Refuse an address that cannot be that of a service.

    >>> check_url("localhost:8080")
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: url is 'localhost:8080': write 'http://localhost:8080'
    """
    example = "http://localhost:8080"
    if isinstance(url, str) and url.lower().startswith(("http://", "https://")):
        place = url.rstrip("/")
        if not place.endswith("/v1"):
            return
        example = place.removesuffix("/v1")
    elif isinstance(url, str) and url and "://" not in url:
        example = f"http://{url.removesuffix('/v1')}"
    raise InvalidInput(f"url is {url!r}: write {example!r}", url)


async def _result(value: Any) -> Any:
    """Return what a blocking call has returned; await what another one returns."""
    return await value if inspect.isawaitable(value) else value


def _error_of(response: httpx.Response) -> Exception:
    problem = _problem_of(response)
    if problem.status == 422:
        return InvalidInput(problem.detail)
    return ServiceError(f"{response.request.url}: {_describe(problem)}", problem)


def _problem_of(response: httpx.Response) -> Problem:
    """Return the problem in a response; a proxy in front may answer in its own words."""
    try:
        return _read_problem(response.content)
    except msgspec.DecodeError:
        return Problem(response.reason_phrase, response.status_code)


def _describe(problem: Problem) -> str:
    title = f"{problem.status} {problem.title}"
    return f"{title}: {problem.detail}" if problem.detail else title


def _seconds(after: str | None) -> float:
    """Return the seconds in Retry-After, which may be a date."""
    if after is None:
        return 0.0
    if after.strip().isdecimal():
        return float(after)
    try:
        when = parsedate_to_datetime(after)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
