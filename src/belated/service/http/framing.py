"""What a request must look like, so that nobody takes its bytes for another one.

Proxies in front read the same bytes. Whatever two programs could read differently is refused, and
the connection closed: so nobody can hide a request within another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from httptools import HttpRequestParser

from belated.service.http.problems import ProblemError

#: Bytes of the request line and the headers together, and how many headers there may be.
MAX_HEAD_BYTES, MAX_HEADERS = 64 << 10, 100
#: Headers that mean something here. Each may stand once; of all others nothing is kept.
KNOWN = frozenset(
    {
        b"access-control-request-method",
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: What probes of the platform ask, by whatever address they know.
PROBES = (b"/livez", b"/readyz")

_HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)


def check_framing(headers: Mapping[bytes, bytes], parser: HttpRequestParser) -> bool:
    """Refuse what is no request of HTTP/1.1 or 1.0; returns whether it is of 1.1."""
    version = parser.get_http_version()
    newest = version == "1.1"
    if not newest and version != "1.0":
        raise malformed("this service speaks HTTP/1.1")
    if b"upgrade" in headers or parser.should_upgrade():
        raise malformed("an upgrade cannot be had")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or not newest):
        raise malformed("of Transfer-Encoding only chunked is known, in HTTP/1.1")
    if newest and b"host" not in headers:
        raise malformed("there is no Host")
    return newest


def check_target(
    url: bytes, headers: Mapping[bytes, bytes], hosts: Collection[str]
) -> tuple[bytes, bytes]:
    """The path and the query that are asked for, under a name that this server is asked by.

    >>> check_target(b"http://here/v1/a?b", {b"host": b"here"}, ())
    (b'/v1/a', b'b')
    """
    host = headers.get(b"host", b"")
    if not url.startswith(b"/"):
        url = _without_host(url, host)
    if b"#" in url:
        raise malformed("a fragment is no part of what is asked for")
    path, _, query = url.partition(b"?")
    name = _HOST.fullmatch(host)
    if name is None:
        raise malformed("Host is no name")
    if hosts and path not in PROBES and name[1].decode().lower() not in hosts:
        told = "this name is not listed: add it to server.hosts in the config file"
        raise ProblemError(421, "Misdirected request", told)
    return path, query


def _without_host(url: bytes, host: bytes) -> bytes:
    """What is asked for, of a whole address: it must name the same host."""
    if url == b"*":
        return url
    whole = _ABSOLUTE.fullmatch(url)
    if whole is None:
        raise malformed("what is asked for must begin with a slash")
    if whole[1].lower() != host.lower():
        raise malformed("Host is another than in the request line")
    return whole[2] if whole[2].startswith(b"/") else b"/" + whole[2]


def malformed(detail: str) -> ProblemError:
    """It cannot be read in one way only."""
    return ProblemError(400, "Malformed request", detail)


def large_head() -> ProblemError:
    """Request line and headers are too long, or the headers too many."""
    told = f"request line and headers may have {MAX_HEAD_BYTES:,} bytes, in {MAX_HEADERS} headers"
    return ProblemError(431, "Headers too large", told)
