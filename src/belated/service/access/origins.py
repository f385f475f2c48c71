"""Allowed origins for requests from web pages (CORS).

Browsers add an ``Origin`` header to every request that can change state, and pages cannot modify
that header. A single rule therefore suffices, whether or not the page can read the response: the
origin must be listed. Programs other than browsers do not send ``Origin``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from belated.exceptions import Forbidden, InvalidInput

#: Maximum time for which browsers may cache a preflight response, in seconds.
MAX_AGE = 7200
#: Scopes available to web pages.
SCOPES = ("decide", "reward")

#: An origin in the form that browsers send: lower case, with an ASCII host and no path.
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?")
#: Default ports, which browsers omit.
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def as_origin(value: Any) -> str:
    """Return ``value`` as an origin; raise unless it has the form that browsers send.

    >>> as_origin("https://shop.example")
    'https://shop.example'
    >>> as_origin("https://shop.example/cart")
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: 'https://shop.example/cart' is not an origin: write \
scheme://host or scheme://host:port, in lower case and without a path
    """
    if value == "*":
        message = "'*' would let every page on the web send requests: list the origins of your own"
        raise InvalidInput(f"{message} pages, such as 'https://shop.example'", value)
    match = _ORIGIN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        message = f"{value!r} is not an origin: write scheme://host or scheme://host:port"
        raise InvalidInput(f"{message}, in lower case and without a path", value)
    scheme, port = match.groups()
    if port is not None and port == _DEFAULT_PORTS.get(scheme):
        message = f"{value!r} has the default port of {scheme}, which browsers omit"
        raise InvalidInput(f"{message}: write {value.removesuffix(f':{port}')!r}", value)
    return str(value)


class Cors:
    """Checks the origins of requests.

    Args:
        origins: Allowed origins; see :func:`as_origin`.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        # The service uses no cookies, but `navigator.sendBeacon` always sends credentials, and
        # browsers require the last header for that.
        self._headers = {
            as_origin(origin).encode(): {
                "access-control-allow-origin": origin,
                "access-control-expose-headers": "etag",
                "vary": "origin",
                "access-control-allow-credentials": "true",
            }
            for origin in origins
        }

    def admit(
        self, origin: bytes, scope: str | None, headers: Mapping[bytes, bytes], *, keyed: bool
    ) -> dict[str, str]:
        """Return the response headers that let a page read the response.

        Args:
            origin: Origin of the page.
            scope: Scope of the route.
            headers: Headers of the request.
            keyed: Whether the service requires keys. If so, pages from the service's own origin,
                such as the console, may do anything that their key allows. Without keys, any
                domain name that resolves to this host could impersonate that origin.

        Raises:
            Forbidden: the origin is not listed, or the scope is not available to web pages.
        """
        own = origin.partition(b"://")[2] == headers.get(b"host")
        if own and keyed and b"authorization" in headers:
            return {}
        allowed = self._headers.get(origin)
        if allowed is None:
            raise Forbidden(
                "the origin of this page is not listed: add it to server.cors in the config file"
            )
        if scope not in SCOPES:
            raise Forbidden("pages may only request decisions and report rewards")
        return allowed

    def preflight(
        self, method: str, scope: str | None, headers: Mapping[bytes, bytes]
    ) -> dict[str, str]:
        """Return the response headers for a preflight request.

        Raises:
            Forbidden: the request itself would be rejected.
        """
        origin = headers.get(b"origin")
        return {
            **({} if origin is None else self.admit(origin, scope, headers, keyed=False)),
            "access-control-allow-methods": method,
            "access-control-allow-headers": "authorization, content-type, if-none-match",
            "access-control-max-age": str(MAX_AGE),
        }
