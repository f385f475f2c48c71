"""A request that is refused before its turn."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

from belated.service.http.connection import Connection, Connections
from belated.service.http.problems import ProblemError
from belated.service.http.routes import Exchange
from belated.wire.messages import Problem


def test_a_refused_request_is_gone_without_the_collector_of_cycles() -> None:
    """An error that keeps the frame that keeps it would hold all that was received."""
    messages: list[str] = []

    def refuse(exchange: Exchange, error: Exception) -> tuple[Problem, dict[str, str]]:
        messages.append(str(error))
        return Problem("Too busy", 503), {}

    shared = SimpleNamespace(service=SimpleNamespace(problem_for=refuse))
    connection = Connection(cast("Connections", shared))
    connection._transport = Mock()

    def receive(data: bytearray) -> weakref.ref[ProblemError]:
        exchange = Exchange(connection, "POST", False)
        exchange.error = ProblemError(503, "Too busy", "try again soon")
        error_reference = weakref.ref(exchange.error)
        connection._dispatch(exchange)
        return error_reference

    gc.disable()
    try:
        reference = receive(bytearray(10))
    finally:
        gc.enable()
    assert messages == ["try again soon"]
    assert reference() is None
