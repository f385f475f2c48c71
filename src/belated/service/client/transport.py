"""Calls over HTTP that are tried again: everything the service takes may be sent twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from belated.exceptions import InvalidInput, MissingExtra, ServiceError, ServiceUnavailable
from belated.service.wire.problem import Problem

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtra("belated.service.Client", "client") from None

#: Statuses of a service, or of what stands before it, that cannot answer now, or not so often.
AGAIN = frozenset({429, 502, 503, 504})
#: Seconds before the first further try; they double with each, up to the most.
FIRST_WAIT, MOST_WAIT = 0.1, 10.0

_read_problem = msgspec.json.Decoder(Problem).decode
_JSON = {"content-type": "application/json"}


class Transport:
    """Sends requests; those that fail for want of a server are sent again.

    Before the n-th further try it waits for a random part of ``FIRST_WAIT`` 2ⁿ⁻¹ seconds, so that
    many clients do not come back at the same moment, and at least as long as the service asks for
    (``Retry-After``). One that asks for more than ``MOST_WAIT`` seconds is not waited for.

    Args:
        url: where the service is.
        timeout: seconds to wait for a connection, and then for each part of the answer.
        retries: how many further tries there are.
        headers: to be sent with every request.
        transport: to be used instead of the network.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        retries: int,
        headers: dict[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retries = retries
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=url, timeout=timeout, headers=headers, transport=transport
        )

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        again: bytes | None = None,
        query: dict[str, int] | None = None,
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
            try:
                response = self._http.request(
                    method, path, content=content, params=query, headers=_JSON
                )
            except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
                message = f"{self._http.base_url} is no address of a service: {error}"
                raise InvalidInput(message, str(self._http.base_url)) from None
            except httpx.TransportError as error:
                what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                failed = ServiceUnavailable(f"{self._http.base_url} cannot be reached: {what}")
                failed.__cause__ = error
            else:
                if response.is_success:
                    return response.content
                if response.status_code not in AGAIN:
                    raise _error_of(response)
                problem = _problem_of(response)
                failed = ServiceUnavailable(f"{self._http.base_url}: {_told(problem)}", problem)
                wait = max(wait, _seconds(response.headers.get("retry-after")))
            if attempt == self._retries or wait > MOST_WAIT:
                raise failed
            self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Close all connections."""
        self._http.close()


def _error_of(response: httpx.Response) -> Exception:
    problem = _problem_of(response)
    if problem.status == 422:
        return InvalidInput(problem.detail)
    return ServiceError(f"{response.request.url}: {_told(problem)}", problem)


def _problem_of(response: httpx.Response) -> Problem:
    """What the service said; or something that stands before it, which has words of its own."""
    try:
        return _read_problem(response.content)
    except msgspec.DecodeError:
        return Problem(response.reason_phrase, response.status_code)


def _told(problem: Problem) -> str:
    told = f"{problem.status} {problem.title}"
    return f"{told}: {problem.detail}" if problem.detail else told


def _seconds(after: str | None) -> float:
    """What Retry-After asks for: a number of seconds, or a date."""
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
