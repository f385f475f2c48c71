"""Issues with rewards and values are counted by the service: state, console, metrics, log."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from belated import Bernoulli, Category, ConversionsOnly, DelayedUCB, Number, PerArm
from belated.client import Client
from belated.journals import MemoryStore
from belated.service import Definition, Service
from tests.integration.serving import served
from tests.waiting import eventually

FEATURES = PerArm(
    ["blue", "red"], context={"age": Number(18, 90), "country": Category(["AT", "DE"])}
)
OFFERS = Definition(
    "offers", DelayedUCB(FEATURES.dim, Bernoulli()), ConversionsOnly("7d"), features=FEATURES
)
HOUR = timedelta(hours=1)
DECIDE = "/v1/offers/decisions"


def test_each_is_seen_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    """Counted in the state of the bandit, the console and the metrics, and logged once a minute."""
    caplog.set_level(logging.WARNING, "belated.service")
    service = Service([OFFERS], MemoryStore(), learn=True)
    with served(service) as serving, httpx.Client(base_url=serving.url) as http:
        context = {"age": 400, "country": "FR"}
        request = {"context": context, "id": "order-1"}
        decision = http.post(DECIDE, json={"context": context}).json()["id"]
        assert http.post(DECIDE, json=request).status_code == 201
        now = datetime.now(UTC)

        def report(id: str, value: float, at: datetime | None = None) -> int:
            body = {"value": value} | ({} if at is None else {"at": at.isoformat()})
            return http.put(f"{DECIDE}/{id}/reward", json=body).status_code

        assert [report(f"unknown-{n}", 1.0) for n in range(5)] == [202] * 5
        assert [report("order-1", value) for value in (1.0, 0.0)] == [202, 202]
        assert report(decision, 41_000.0) == 422
        assert report(decision, 1.0, now + HOUR) == 422
        assert report(decision, 1.0, now - HOUR) == 422

        expected = {
            "unmatched": (5, "unknown-4"),
            "conflict": (1, "order-1"),
            "clipped": (2, "400"),
            "unknown": (2, "FR"),
            "invalid": (1, "41000.0"),
            "future": (1, str(now + HOUR)),
            "early": (1, str(now - HOUR)),
        }

        def seen(state: Any) -> dict[str, Any]:
            return {
                issue["name"]: (issue["count"], issue.get("example")) for issue in state["issues"]
            }

        eventually(lambda: seen(http.get("/v1/offers").json()) == expected)
        with Client(serving.url, bandit="offers") as client:
            assert client.state().issues[0].name == "unmatched"
            assert client.state().issues[0].last is not None
        (bandit,) = http.get("/v1").json()["bandits"]
        assert seen(bandit) == expected
        metrics = http.get("/metrics").text
        for name, (count, _) in expected.items():
            assert f'belated_issues{{bandit="offers",issue="{name}"}} {count:.1f}' in metrics
        assert 'belated_issues{bandit="offers",issue="expired"} 0.0' in metrics
    logged = [record for record in caplog.records if hasattr(record, "issue")]
    assert sorted({record.issue for record in logged}) == sorted(expected)
    assert len(logged) == len(expected)
    assert "rewards name an unknown decision" in [record.getMessage() for record in logged]
    # Nothing that was sent is logged.
    text = " ".join(str(vars(record)) for record in logged)
    assert "unknown-" not in text
    assert "41000" not in text


def test_the_setting_for_clocks() -> None:
    """The setting ``clock_skew`` of a bandit."""
    definition = Definition(
        "offers", DelayedUCB(2, Bernoulli()), ConversionsOnly("7d"), clock_skew=7_200_000_000
    )
    with served(Service([definition], MemoryStore())) as serving:
        at = (datetime.now(UTC) + HOUR).isoformat()
        url = f"{serving.url}{DECIDE}/order-1/reward"
        assert httpx.put(url, json={"value": 1, "at": at}).status_code == 202


def test_a_head_is_answered_like_a_get() -> None:
    """Without the body."""
    with served(Service([OFFERS], MemoryStore())) as serving:
        for path in ("/livez", "/v1/offers", "/openapi.json"):
            head_reply, get_reply = httpx.head(serving.url + path), httpx.get(serving.url + path)
            assert head_reply.status_code == get_reply.status_code == 200
            assert head_reply.content == b""
            assert head_reply.headers["content-type"] == get_reply.headers["content-type"]
