"""Worker threads of the service: one that fails is tried again, and one that stays dead is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.journals.sqlite.store import SQLiteSession
from belated.service import Definition, Service, runtime as module
from belated.service.learning import lease
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]


class Fault:
    """What makes a method raise what nobody expects, while it is on."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
        self.on = False
        method = getattr(kind, name)

        def maybe(*given: Any, **named: Any) -> Any:
            if self.on:
                raise ZeroDivisionError("nobody expects this")
            return method(*given, **named)

        patch.setattr(kind, name, maybe)


@pytest.mark.parametrize(
    ("kind", "name", "worker"),
    [
        (SQLiteSession, "published", "belated models"),
        (SQLiteSession, "ends", "belated learners"),
        (lease, "renew_leases", "belated lease"),
    ],
)
def test_a_worker_that_stays_dead_fails_the_liveness_probe(
    kind: Any, name: str, worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and a metric; requests are answered, and all is well when it works again."""
    fault = Fault(monkeypatch, kind, name)
    monkeypatch.setattr(module, "RETRY", 0.01)
    bandit = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit())
    app = Service([bandit], f"sqlite:///{tmp_path}/offers.db", learn=True, lease=0.5)
    with (
        served(app) as serving,
        httpx.Client(base_url=serving.url) as web,
        Client(serving.url, bandit="offers") as client,
    ):
        client.observe(client.decide(rows=ROWS).id, 1.0)
        eventually(lambda: client.state().observations == 1)
        failures_before = module.failures[worker]
        fault.on = True
        eventually(lambda: module.failures[worker] > failures_before + 1)
        assert web.get("/livez").status_code == 200  # it may pass
        monkeypatch.setattr(module, "DEAD", 0.0)
        answer = web.get("/livez")
        assert answer.status_code == 503
        assert [*answer.json()["dead_workers"]] == [worker]
        assert "ZeroDivisionError" not in answer.text
        metrics = web.get("/metrics").text
        assert "\nbelated_dead_workers 1.0\n" in metrics
        assert f'\nbelated_worker_failures_total{{worker="{worker}"}} ' in metrics
        decision = client.decide(rows=ROWS)
        fault.on = False
        eventually(lambda: web.get("/livez").status_code == 200)
        client.observe(decision.id, 1.0)
        eventually(lambda: client.state().observations == 2)
