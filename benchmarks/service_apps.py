"""What benchmarks/service.py measures: the service, and an echo of the same request beside it."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import ClassVar

from belated import Bernoulli, DelayedUCB, Explicit
from belated.service import Definition, create_app
from belated.service.exchange import Receive, Scope, Send, answer_bytes, body_of
from belated.service.server import serve

DIM, ARMS = 20, 10
OFFERS = Definition(
    "offers", DelayedUCB(DIM, Bernoulli()), Explicit(timedelta(seconds=60)), partitions=2
)


class Echo:
    """Answers what it was sent: what any service on this server costs at least."""

    desks: ClassVar = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            body = await body_of(receive, 1 << 20)
            await answer_bytes(send, 201, b"application/json", body)
        else:
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})


def main() -> int:
    """One or the other, on a port."""
    kind, port, dsn = sys.argv[1:]
    app = Echo() if kind == "echo" else create_app([OFFERS], dsn)
    return serve(app, "127.0.0.1", int(port))


if __name__ == "__main__":
    sys.exit(main())
