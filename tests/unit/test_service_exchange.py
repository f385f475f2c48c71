"""A request that is refused before its turn."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import cast

from belated.service.http.connection import Connection
from belated.service.http.exchange import Exchange
from belated.service.http.problems import ProblemError
from belated.wire.problem import Problem


def test_a_refused_request_is_gone_without_the_collector_of_cycles() -> None:
    """An error that keeps the frame that keeps it would hold all that was received."""
    sent: list[int] = []
    service = SimpleNamespace(refused=lambda route, error: (Problem("", 503, "", ""), {}))
    connection = SimpleNamespace(
        service=service, send=lambda exchange, status, *rest: sent.append(status)
    )

    def receive(data: bytearray) -> weakref.ref[ProblemError]:
        exchange = Exchange(cast("Connection", connection), "POST", False)
        exchange.error = ProblemError(503, "Too busy", "try again soon")
        kept = weakref.ref(exchange.error)
        exchange.ask()
        return kept

    gc.disable()
    try:
        kept = receive(bytearray(10))
    finally:
        gc.enable()
    assert sent == [503]
    assert kept() is None
