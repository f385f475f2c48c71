"""Origins whose pages may send requests from a browser (CORS).

A browser names the page's origin in ``Origin`` with every request that can change something, and a
page cannot change that header. So one rule does for requests that a page wants to read the answer
of, and for those that it sends blindly: the origin must be listed. Other programs send none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from belated.exceptions import Forbidden, InvalidInput

#: Seconds for which a browser need not ask again; none keeps an answer for much longer.
MAX_AGE = 7200
#: What pages may do: decide and report. Reading and switching bandits is for programs.
SCOPES = ("decide", "reward")

#: As a browser sends it: lower case, a host in ASCII, and no path.
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?")
#: Browsers leave these out.
_USUAL_PORTS = {"http": "80", "https": "443"}


def as_origin(value: Any) -> str:
    """An origin, as a browser sends it in the header ``Origin``.

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
    found = _ORIGIN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        message = f"{value!r} is not an origin: write scheme://host or scheme://host:port"
        raise InvalidInput(f"{message}, in lower case and without a path", value)
    scheme, port = found.groups()
    if port is not None and port == _USUAL_PORTS.get(scheme):
        message = f"{value!r} has the usual port of {scheme}, which browsers do not send"
        raise InvalidInput(f"{message}: write {value.removesuffix(f':{port}')!r}", value)
    return str(value)


class Cors:
    """Knows the origins that are listed.

    Args:
        origins: as :func:`as_origin` has them.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        # `navigator.sendBeacon` always sends its request with credentials: without the last line a
        # browser would not let it pass. The service itself knows no cookies.
        self._answers = {
            as_origin(origin).encode(): {
                "access-control-allow-origin": origin,
                "vary": "origin",
                "access-control-allow-credentials": "true",
            }
            for origin in origins
        }

    def admit(
        self, origin: bytes, scope: str | None, headers: Mapping[bytes, bytes], *, keyed: bool
    ) -> dict[str, str]:
        """Return the headers with which a page may read the response.

        Args:
            origin: of the page.
            scope: of the route.
            headers: of the request.
            keyed: whether the service needs keys: then the console may do what its key allows.
                Without keys it may not: its origin could be any name that resolves to this host.

        Raises:
            Forbidden: the origin is not listed, or no page may ask for this.
        """
        own = origin.partition(b"://")[2] == headers.get(b"host")
        if own and keyed and b"authorization" in headers:
            return {}
        found = self._answers.get(origin)
        if found is None:
            raise Forbidden(
                "the origin of this page is not listed: add it to server.cors in the config file"
            )
        if scope not in SCOPES:
            raise Forbidden("pages may ask for decisions and report rewards, nothing else")
        return found

    def preflight(
        self, method: str, scope: str | None, headers: Mapping[bytes, bytes]
    ) -> dict[str, str]:
        """Return the headers that let a browser send the request it asks about.

        Raises:
            Forbidden: as for the request itself.
        """
        origin = headers.get(b"origin")
        return {
            **({} if origin is None else self.admit(origin, scope, headers, keyed=False)),
            "access-control-allow-methods": method,
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": str(MAX_AGE),
        }
