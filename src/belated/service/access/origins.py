"""Origins whose pages may send requests from a browser (CORS).

Browsers send the origin of the page in the ``Origin`` header of every request that can change
something, and pages cannot change that header. One rule therefore covers both requests whose
response a page reads and requests it sends blindly: the origin must be listed. Other programs send
no ``Origin``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from belated.exceptions import Forbidden, InvalidInput

#: Seconds for which browsers may cache a preflight response; their own limits are not much higher.
MAX_AGE = 7200
#: Scopes that pages may use.
SCOPES = ("decide", "reward")

#: An origin as browsers send it: lower case, an ASCII host, and no path.
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?")
#: Default ports, which browsers omit.
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def as_origin(value: Any) -> str:
    """Check that a value is an origin as browsers send it, and return it.

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
            keyed: Whether the service requires keys. If so, the console, which has the origin of
                the service, may do what its key allows; without keys, any name that resolves to
                this host would have that origin.

        Raises:
            Forbidden: the origin is not listed, or pages may not use the scope.
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
        """Return the response headers of a preflight request.

        Raises:
            Forbidden: as for the request itself.
        """
        origin = headers.get(b"origin")
        return {
            **({} if origin is None else self.admit(origin, scope, headers, keyed=False)),
            "access-control-allow-methods": method,
            "access-control-allow-headers": "authorization, content-type, if-none-match",
            "access-control-max-age": str(MAX_AGE),
        }
