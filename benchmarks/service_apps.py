"""What benchmarks/service.py measures: the service, and an echo of the same request beside it."""

from __future__ import annotations

import os
from datetime import timedelta

from belated import Bernoulli, DelayedUCB, Explicit
from belated.service import Definition, create_app
from belated.service.exchange import Receive, Scope, Send, answer_bytes, body_of

DIM, ARMS = 20, 10
OFFERS = Definition(
    "offers", DelayedUCB(DIM, Bernoulli()), Explicit(timedelta(seconds=60)), partitions=2
)
#: About as long as the answer to a decision.
_ANSWER = b'{"id":"018bcfe568007005ab1c2d3e4f506172","action":3,"index":3' + b" " * 90 + b"}"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the request, answer something: what any service on this server costs at least."""
    if scope["type"] == "http":
        await body_of(receive, 1 << 20)
        await answer_bytes(send, 201, b"application/json", _ANSWER)


if "DATABASE_URL" in os.environ:
    service = create_app([OFFERS], os.environ["DATABASE_URL"])
