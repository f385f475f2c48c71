"""The applications that benchmarks/service.py measures: the service, and an echo of its request."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import uvicorn

from belated import Bernoulli, DelayedUCB, Explicit
from belated.fold.learner import Learner
from belated.journals import open_store
from belated.service import Definition, Service
from belated.service.access.tokens import TokenSecrets
from belated.service.http.asgi import AsgiApp
from belated.service.http.server import BACKLOG, collect_rarely, listen, serve
from belated.service.learning.learners import learners_of
from belated.service.operating.logs import start_logging
from belated.service.operating.metrics import Metrics
from belated.service.serving.spools import SpoolFolder

DIM, ARMS = 20, 10
OFFERS = Definition(
    "offers", DelayedUCB(DIM, Bernoulli()), Explicit(timedelta(seconds=60)), partitions=2
)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Echo the request over plain ASGI: the minimum cost of a service on uvicorn."""
    body, more_body = b"", True
    while more_body:
        message = await receive()
        body += message.get("body", b"")
        more_body = message.get("more_body", False)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_asgi(app: Any, port: int, lifespan: Literal["on", "off"]) -> int:
    """Serve as fast as uvicorn can: without logs, and with its C extensions."""
    config = uvicorn.Config(
        app, port=port, http="httptools", loop="uvloop", ws="none", lifespan=lifespan,
        log_config=None, access_log=False, server_header=False, proxy_headers=False,
        backlog=BACKLOG, timeout_keep_alive=75,
    )  # fmt: skip
    collect_rarely()
    uvicorn.Server(config).run()
    return 0


def many(count: int) -> list[Definition]:
    """Return bandits that differ only in their names; their state soon stops growing."""
    definition = replace(OFFERS, keep_requests=0.0, retention=120_000_000)
    return [replace(definition, name=f"b{n}") for n in range(count)]


def main() -> int:
    """Run one application on a port."""
    kind, port, dsn = sys.argv[1:]
    if kind.startswith(("many ", "keyed ", "learners ")):
        role, count = kind.split()
        if role == "learners":
            return learn(int(port), dsn, many(int(count)))
        app = Service(many(int(count)), dsn, auth="keys" if role == "keyed" else "off")
        return serve(app, listen("127.0.0.1", int(port)))
    if kind == "learner":
        return learn(int(port), dsn)
    if kind == "both":
        fit_on_demand()
    if kind == "guarded":
        return serve_guarded(int(port), dsn)
    if kind == "echo":
        return serve_asgi(echo, int(port), "off")
    offers = OFFERS if kind == "kept" else replace(OFFERS, keep_requests=0.0)
    if kind == "asgi":
        return serve_asgi(AsgiApp(Service([offers], dsn)), int(port), "on")
    app = Service([offers], dsn, learn=kind == "both")
    return serve(app, listen("127.0.0.1", int(port)))


def serve_guarded(port: int, dsn: str) -> int:
    """Serve with all protections: keys with a rate, tokens, and a spool."""
    with tempfile.TemporaryDirectory() as folder:
        app = Service(
            [replace(OFFERS, tokens="enforce", keep_requests=0.0)],
            dsn,
            auth="keys",
            token_keys=TokenSecrets({"a": bytes(32)}),
            spools=SpoolFolder(Path(folder)),
        )
        return serve(app, listen("127.0.0.1", port))


def fit_on_demand() -> None:
    """From SIGUSR1 to SIGUSR2, make a fit due whenever the previous one has ended."""
    signals: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: signals.append(number))
    is_due = Learner.fit_is_due

    def fit_is_due(learner: Learner) -> bool:
        return is_due(learner) or (learner._refit is None and signals[-1:] == [signal.SIGUSR1])

    Learner.fit_is_due = fit_is_due  # type: ignore[assignment, method-assign]


def learn(port: int, dsn: str, bandits: Sequence[Definition] = (OFFERS,)) -> int:
    """Learn as ``belated learn`` does."""
    start_logging("warning")
    fit_on_demand()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    learners = learners_of(bandits, open_store(dsn))
    stop = Metrics({}, learners, {}).listen(port)
    learners.start()
    stopped.wait()
    learners.stop()
    stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
