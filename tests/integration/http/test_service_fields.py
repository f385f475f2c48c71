"""Times and embeddings over HTTP: as JSON has them, and as programs do."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import numpy as np
import pandas as pd
import pytest

from belated import Bernoulli, Category, Datetime, DelayedUCB, Explicit, PerArm, Vector
from belated.client import Client
from belated.exceptions import InvalidInput
from belated.journals import Store
from belated.service import Definition, Service
from tests.integration.http.bandits import JSON, problem_in
from tests.integration.serving import served

NOON = datetime(2026, 11, 18, 12, tzinfo=ZoneInfo("Europe/Vienna"))
FIELDS = {"at": Datetime("Europe/Vienna"), "e": Vector(3), "country": Category(["AT", "DE"])}
VECTOR = np.array([0.5, -0.25, 1.0], dtype=np.float32)
WRITTEN = {"at": "2026-11-18T12:00:00+01:00", "e": [0.5, -0.25, 1.0], "country": "AT"}


def test_a_time_and_a_vector_are_the_same_over_http(store: Store, bandit: str) -> None:
    """As JSON, and from a client with objects of Python, NumPy and pandas: one row."""
    features = PerArm(["mail", "call"], context=FIELDS)
    policy = DelayedUCB(features.dim, Bernoulli())
    definition = Definition(bandit, policy, Explicit(), features=features, keep_requests=1.0)
    expected = PerArm(["mail", "call"], context=FIELDS).rows(
        {"at": NOON, "e": VECTOR, "country": "AT"}, ["mail", "call"]
    )
    path = f"/v1/{bandit}/decisions"
    with (
        served(Service([definition], store)) as serving,
        httpx.Client(base_url=serving.url, headers=JSON) as http,
        Client(serving.url, bandit=bandit) as client,
    ):
        answer = http.post(path, json={"context": WRITTEN, "id": "json"})
        assert answer.status_code == 201, answer.text
        for id, at, e in [
            ("python", NOON, VECTOR.tolist()),
            ("arrays", np.int64(NOON.timestamp() * 1e6), VECTOR),
            ("pandas", pd.Timestamp(NOON), tuple(VECTOR)),
        ]:
            client_decision = client.decide({"at": at, "e": e, "country": "AT"}, id=id)
            # The same context under the same id, however it is written, is a retry.
            assert client.decide(WRITTEN, id=id) == client_decision
        client.decide({"at": pd.NaT, "e": None, "country": "FR"}, id="missing")
        for id in ("json", "python", "arrays", "pandas"):
            decision = client.entry(id).decision
            assert decision is not None
            assert np.array_equal(decision.x, expected[decision.index])

        cases: list[tuple[dict[str, Any], str]] = [
            ({"at": "2026-11-18T12:00:00"}, "write '2026-11-18T12:00:00Z' if it is UTC"),
            ({"e": [1.0, 2.0]}, "'e' of the context must have 3 numbers, got 2: send 3 numbers"),
            ({"e": "red"}, "must be a list of 3 numbers or None"),
            ({"country": [1.0]}, "write context={'country': Vector(1), ...}"),
        ]
        for changes, message in cases:
            answer = http.post(path, json={"context": WRITTEN | changes})
            assert answer.status_code == 422
            assert message in (problem_in(answer).detail or "")
        with pytest.raises(InvalidInput, match=r"3 numbers or None, got \[1.0, None, 2.0\]"):
            client.decide(WRITTEN | {"e": [1.0, float("nan"), 2.0]})

        lines = http.get("/metrics").text.splitlines()
        series = f'belated_field_values_total{{bandit="{bandit}",field="country",status="unknown"}}'
        assert f"{series} 1.0" in lines
