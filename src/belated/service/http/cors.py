"""Requests that a browser sends for a page: which pages may, and how the browser is told (CORS).

A browser names the page's origin in ``Origin`` with every request that can change something, and a
page cannot change that header. So one rule does for requests that a page wants to read the answer
of, and for those that it sends blindly: the origin must be listed. Other programs send none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from belated.exceptions import Forbidden
from belated.service.access.origins import as_origin
from belated.service.http.routes import Route

#: Seconds for which a browser need not ask again; none keeps an answer for much longer.
MAX_AGE = 7200
#: What pages may do: decide, and report. Whoever reads or switches a bandit is a program.
SCOPES = ("decide", "reward")

#: Of an answer that no page asked for.
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

Headers = Mapping[bytes, bytes]


class Cors:
    """Knows the origins that are listed.

    Args:
        origins: as :func:`~belated.service.access.origins.as_origin` has them.
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

    def admit(self, route: Route, headers: Headers, *, keyed: bool = False) -> Mapping[str, str]:
        """The headers with which a page may read the answer; none if no page asks.

        Args:
            route: what is asked.
            headers: of the request.
            keyed: whether a key is asked for: then the page of the console may ask for whatever
                the key allows. Without keys it may not: its origin could be a stranger's, whose
                name leads here.

        Raises:
            Forbidden: a page asks that is not listed, or for what no page may.
        """
        origin = headers.get(b"origin")
        if origin is None:
            return NO_HEADERS
        own = origin.partition(b"://")[2] == headers.get(b"host")
        if own and keyed and b"authorization" in headers:
            return NO_HEADERS
        found = self._answers.get(origin)
        if found is None:
            raise Forbidden(
                "the origin of this page is not listed: add it to server.cors in the config file"
            )
        if route.scope not in SCOPES:
            raise Forbidden("pages may ask for decisions and report rewards, nothing else")
        return found

    def preflight(self, route: Route, headers: Headers) -> dict[str, str]:
        """The headers that let a browser send the request it asks about.

        Raises:
            Forbidden: as for the request itself.
        """
        return {
            **self.admit(route, headers),
            "access-control-allow-methods": route.method,
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": str(MAX_AGE),
        }


def wanted_method(method: str, headers: Headers) -> str | None:
    """The method of the request that a browser asks about first; None if this does not ask."""
    if method != "OPTIONS":
        return None
    wanted = headers.get(b"access-control-request-method")
    return None if wanted is None else wanted.decode("latin-1")
