"""The bandit that these tests serve, and requests in pieces."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals.log import Appended
from belated.journals.store import Batch
from belated.service import Definition
from belated.service.http.app import Service
from tests.integration.raw_http import request

LIMIT = 200_000
NAME = "raw"
OFFERS = Definition(NAME, DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)
SHOP = "https://shop.example"


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A request whose body comes in chunks."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + end
    return request(body, "Transfer-Encoding: chunked", length=False)


def slow_down(
    app: Service, monkeypatch: pytest.MonkeyPatch, until: threading.Event
) -> threading.Event:
    """Have commits wait; gives what is set once one does."""
    log, start_event = app.bandits[NAME].commits.log, threading.Event()
    append_all = log.append_all

    def patiently(batches: Sequence[Batch]) -> list[Appended]:
        start_event.set()
        assert until.wait(10)
        return append_all(batches)

    monkeypatch.setattr(log, "append_all", patiently)
    return start_event
