"""Send HTTP requests and retry them, which is safe because every request is idempotent.

Both clients share one implementation, which is a coroutine. With a blocking ``httpx.Client`` and
``time.sleep``, the coroutine never suspends, so it runs to completion without an event loop.
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

from belated.core.inputs import must_be
from belated.exceptions import InvalidInput, MissingExtra, ServiceError, ServiceUnavailable
from belated.wire.messages import Problem

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtra("belated.client.Client", "client") from None

#: Retry on these statuses, which indicate an overloaded or unavailable service or proxy.
AGAIN = frozenset({429, 502, 503, 504})
#: Maximum wait before the first retry, which doubles with each retry, and its limit, in seconds.
FIRST_WAIT, MOST_WAIT = 0.1, 10.0

_read_problem = msgspec.json.Decoder(Problem).decode
#: Substrings of TLS errors that indicate a plain HTTP server.
_NO_TLS = "WRONG_VERSION_NUMBER", "record layer failure"
_JSON = {"content-type": "application/json"}


class Transport:
    """Sends requests, and retries them while the service is unavailable.

    The wait before retry ``n`` is random, up to ``FIRST_WAIT`` · 2ⁿ⁻¹ seconds and at most
    ``MOST_WAIT`` seconds, so that clients do not all retry at the same time. The wait is at least
    as long as the response's ``Retry-After`` header demands. If ``Retry-After`` exceeds
    ``MOST_WAIT`` seconds, the request fails immediately.

    Args:
        url: the address of the service, for error messages.
        http: the blocking or asynchronous HTTP client.
        sleep: function that waits for a number of seconds, blocking or asynchronous like ``http``.
        retries: the maximum number of retries.
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
            raise must_be("retries", "a non-negative integer", retries)
        self._url = url
        self._http = http
        self._sleep = sleep
        self._retries = retries

    @classmethod
    def to(
        cls, url: Any, *, blocking: bool, timeout: float, headers: dict[str, str], retries: int
    ) -> Self:
        """Create a blocking or asynchronous transport for a service."""
        mounted = None
        if callable(url) and not blocking:  # an ASGI application of this process
            mounted, url = httpx.ASGITransport(url), "http://localhost"
        check_url(url)
        options: dict[str, Any] = {"base_url": url, "timeout": timeout, "headers": headers}
        http = (
            httpx.Client(**options)
            if blocking
            else httpx.AsyncClient(transport=mounted, **options)
        )  # fmt: skip
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
        """Send a request, retry it if necessary, and return the body of the response.

        Args:
            method: the HTTP method.
            path: the percent-encoded path below the service's address.
            body: the request body.
            again: the body to send in retries, if different.
            query: the query parameters.

        Raises:
            InvalidInput: the service rejected the request as invalid.
            ServiceError: the service reported another problem.
            ServiceUnavailable: the service was unreachable or unavailable in every attempt.
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
                message = f"{self._url} is not a valid service address: {error}"
                raise InvalidInput(message, self._url) from None
            except httpx.TransportError as error:
                if any(sign in str(error) for sign in _NO_TLS):
                    message = f"{self._url} responds without TLS"
                    advice = f"use http://{self._url.removeprefix('https://')}"
                    raise InvalidInput(f"{message}: {advice}", self._url) from None
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                failed = ServiceUnavailable(f"{self._url} cannot be reached: {reason}")
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
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Close all connections."""
        if isinstance(self._http, httpx.Client):
            self._http.close()
        else:
            await self._http.aclose()


def check_url(url: Any) -> None:
    """Raise InvalidInput if a URL is not a valid service address.

    >>> check_url("localhost:8080")
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: `url` is 'localhost:8080': pass 'http://localhost:8080'
    """
    example = "http://localhost:8080"
    if isinstance(url, str) and url.lower().startswith(("http://", "https://")):
        place = url.rstrip("/")
        if not place.endswith("/v1"):
            return
        example = place.removesuffix("/v1")
    elif isinstance(url, str) and url and "://" not in url:
        example = f"http://{url.removesuffix('/v1')}"
    raise InvalidInput(f"`url` is {url!r}: pass {example!r}", url)


async def _result(value: Any) -> Any:
    """Return the result of a call, after awaiting it if the call is asynchronous."""
    return await value if inspect.isawaitable(value) else value


def _error_of(response: httpx.Response) -> Exception:
    problem = _problem_of(response)
    if problem.status == 422:
        return InvalidInput(problem.detail)
    return ServiceError(f"{response.request.url}: {_describe(problem)}", problem)


def _problem_of(response: httpx.Response) -> Problem:
    """Return the problem in a response. A proxy's response may contain only a status."""
    try:
        return _read_problem(response.content)
    except msgspec.DecodeError:
        return Problem(response.reason_phrase, response.status_code)


def _describe(problem: Problem) -> str:
    title = f"{problem.status} {problem.title}"
    return f"{title}: {problem.detail}" if problem.detail else title


def _seconds(after: str | None) -> float:
    """Return the seconds until a ``Retry-After`` time, given as a number of seconds or a date."""
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
