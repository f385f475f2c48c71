"""What benchmarks/service.py measures: the service, and an echo of the same request beside it."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import open_store
from belated.learner import Learner
from belated.service import Definition, create_app
from belated.service.access.tokens import TokenSecrets
from belated.service.http.asgi_io import Receive, Scope, Send, answer_bytes, body_of
from belated.service.http.server import serve
from belated.service.learning.learners import Learners, learning_service
from belated.service.operating.logs import start_logging
from belated.service.operating.metrics import Metrics
from belated.service.serving.spools import SpoolFolder

DIM, ARMS = 20, 10
OFFERS = Definition(
    "offers", DelayedUCB(DIM, Bernoulli()), Explicit(timedelta(seconds=60)), partitions=2
)


class Echo:
    """Answers what it was sent: what any service on this server costs at least."""

    bandits: ClassVar = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            body = await body_of(receive, 1 << 20)
            await answer_bytes(send, 201, b"application/json", body)
        else:
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})


def main() -> int:
    """One of them, on a port."""
    kind, port, dsn = sys.argv[1:]
    if kind == "learner":
        return learn(int(port), dsn)
    if kind == "both":
        fit_on_demand()
    if kind == "guarded":
        return serve_guarded(int(port), dsn)
    app = Echo() if kind == "echo" else create_app([OFFERS], dsn, learn=kind == "both")
    return serve(app, "127.0.0.1", int(port))


def serve_guarded(port: int, dsn: str) -> int:
    """With all that guards it and keeps it up: keys with a rate, tokens, and a spool."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(
            [replace(OFFERS, tokens="enforce")],
            dsn,
            auth="keys",
            token_keys=TokenSecrets({"a": bytes(32)}),
            spools=SpoolFolder(Path(folder)),
        )
        return serve(app, "127.0.0.1", port)


def fit_on_demand() -> None:
    """From SIGUSR1 to SIGUSR2 a fit is due whenever the one before has ended."""
    told: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: told.append(number))
    is_due = Learner.fit_is_due

    def fit_is_due(learner: Learner) -> bool:
        return is_due(learner) or (learner._refit is None and told[-1:] == [signal.SIGUSR1])

    Learner.fit_is_due = fit_is_due  # type: ignore[method-assign]


def learn(port: int, dsn: str) -> int:
    """As ``belated learn`` does."""
    start_logging("warning")
    fit_on_demand()
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: told.set())
    learners = Learners({OFFERS.name: partial(learning_service, OFFERS, open_store(dsn))})
    stop = Metrics({}, learners, {}).listen(port)
    learners.start()
    told.wait()
    learners.stop()
    stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
