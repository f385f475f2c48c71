"""Decisions for subjects, and their rewards, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit, PerArm
from belated.client import Client
from belated.core.events import Decision
from belated.core.ids import key_of, partition_of, slot_of_subject
from belated.exceptions import InvalidInput, ServiceUnavailable
from belated.fold.decision_history import read_current
from belated.fold.fold import Fold
from belated.journals import Journal, Store
from belated.service import Definition, Service
from belated.service.http import routes
from belated.service.serving import served_bandits as module
from belated.wire.messages import Decided
from tests.integration.serving import served

FEATURES = PerArm(["red", "blue"], context=["visits"])
CONTEXT = {"visits": 0.5}


def definition(name: str, partitions: int = 2) -> Definition:
    """Return a bandit whose contexts may name the subject."""
    return Definition(
        name,
        DelayedUCB(FEATURES.dim, Bernoulli()),
        Explicit("1d", reduce="sum"),
        FEATURES,
        partitions=partitions,
        subject="user",
    )


def test_rewards_of_subjects(store: Store, bandit: str) -> None:
    """One by one and in batches; duplicates count once, live and in a replay."""
    name = bandit.replace(" ", "-")
    offers = definition(name)
    with (
        served(Service([offers], store)) as serving,
        Client(serving.url, bandit=name) as client,
    ):
        decisions = [client.decide(CONTEXT, subject=f"user-{n % 4}") for n in range(8)]
        for _ in range(2):
            receipt = client.observe(subject="user-3", value=1.0, event_id="order-1")
            assert (receipt.id, receipt.status) == ("order-1", "accepted")
        receipts = client.observe_subjects(
            [(f"user-{n}", 1.0, f"order-{n}", decisions[n].at) for n in range(4)]
        )
        assert [receipt.id for receipt in receipts] == [f"order-{n}" for n in range(4)]
        client.observe(subject="user-9", value=1.0, event_id="order-9")
        details = client.entry(decisions[7].id)
        assert (details.state, details.value, details.subject) == ("rewarded", 1.0, "user-3")
        summaries = [(record.kind, record.status, record.part) for record in details.records]
        assert summaries[-1] == ("subject_reward", "credited", "order-1")
        assert client.entry(decisions[3].id).value == 1.0
        assert client.entry(decisions[4].id).state == "pending"
    fold = Fold(offers.policy, offers.rewards, partitions=2)
    with store.journal(name) as journal:
        fold.begin(journal)
        fold.catch_up(journal)
    assert fold.counts["rewarded"] == 5
    assert fold.counters["credited"] == 5
    assert fold.unmatched == {"": 1}
    assert [fold.entry(decision.id).value for decision in decisions[:4]] == [1.0] * 4  # type: ignore[union-attr]


def test_sticky_decisions(store: Store, bandit: str) -> None:
    """Two concurrent requests get one decision; a voided one is not returned again."""
    name = bandit.replace(" ", "-")
    with (
        served(Service([definition(name)], store)) as serving,
        Client(serving.url, bandit=name) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        futures = [
            threads.submit(client.decide, CONTEXT, subject="user-17", sticky="1d") for _ in range(8)
        ]
        decisions = [future.result() for future in futures]
        assert len({decision.id for decision in decisions}) == 1
        assert sorted(decision.repeated for decision in decisions) == [False] + [True] * 7
        client.void(decisions[0].id)
        next_decision = client.decide(CONTEXT, subject="user-17", sticky="1d")
        assert next_decision.id != decisions[0].id
        client.pause(next_decision.action)


def test_sticky_decisions_are_looked_up_together(
    store: Store, bandit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all pending requests; no row is computed if a valid decision exists."""
    name, sizes, look_up = bandit.replace(" ", "-"), list[int](), read_current

    def slow(journal: Journal, since: Mapping[str, int]) -> dict[str, Decision]:
        sizes.append(len(since))
        time.sleep(0.1)
        return look_up(journal, since)

    def refuse(*_: object) -> NoReturn:
        raise AssertionError

    with (
        served(Service([definition(name)], store)) as serving,
        Client(serving.url, bandit=name) as client,
        ThreadPoolExecutor(8) as threads,
    ):

        def decide(n: int) -> Decided:
            return client.decide(CONTEXT, subject=f"user-{n}", sticky="1d")

        monkeypatch.setattr(module, "read_current", slow)
        decisions = list(threads.map(decide, range(16)))
        monkeypatch.setattr(routes, "parse_request", refuse)
        repeats = list(threads.map(decide, range(16)))
    assert [decision.id for decision in repeats] == [decision.id for decision in decisions]
    assert all(decision.repeated for decision in repeats)
    assert sum(sizes) == 32
    assert len(sizes) < 16


def test_a_subject_is_erased(store: Store, bandit: str) -> None:
    """Its decisions are gone; those of other subjects are unaffected."""
    name = bandit.replace(" ", "-")
    with (
        served(Service([definition(name)], store)) as serving,
        Client(serving.url, bandit=name) as client,
        httpx.Client(base_url=f"{serving.url}/v1/{name}") as http,
    ):
        decision = client.decide(CONTEXT, subject="user/17", sticky="1d")
        other_decision = client.decide(CONTEXT, subject="user-18", sticky="1d")
        client.observe(subject="user/17", value=1.0, event_id="order-1")
        assert http.delete("/subjects/user%2F17").json() == {"decisions": 1}
        assert http.delete("/subjects/nobody").json() == {"decisions": 0}
        assert client.entry(decision.id).state == "erased"
        assert client.entry(other_decision.id).state == "pending"
        assert not client.decide(CONTEXT, subject="user/17", sticky="1d").repeated
        assert client.decide(CONTEXT, subject="user-18", sticky="1d").repeated


def test_what_is_refused(store: Store, bandit: str) -> None:
    """A sticky decision without a subject, or in a batch; an id in another partition."""
    name = bandit.replace(" ", "-")
    with (
        served(Service([definition(name)], store)) as serving,
        Client(serving.url, bandit=name) as client,
        httpx.Client(base_url=f"{serving.url}/v1/{name}") as http,
    ):
        with pytest.raises(InvalidInput, match="requires `subject`"):
            client.decide(CONTEXT, sticky="1d")
        partition = slot_of_subject("user-17") % 2
        names = [f"order-{n}" for n in range(20)]
        other_id = next(
            candidate for candidate in names if partition_of(key_of(candidate), 2) != partition
        )
        with pytest.raises(InvalidInput, match="a different partition"):
            client.decide(CONTEXT, id=other_id, subject="user-17")
        request = {"context": CONTEXT | {"user": "user-17"}, "sticky": "1d"}
        assert not http.post("/decisions", json=request).json().get("repeated", False)
        assert http.post("/decisions", json=request).json()["repeated"]
        answer = http.post("/decisions/batch", json={"requests": [request]})
        assert answer.status_code in (400, 422)
        assert "requests[0].sticky" in answer.text
        answer = http.post("/rewards", json={"rewards": [{"subject": "user-17", "value": 1.0}]})
        assert answer.status_code in (400, 422)
        assert "event_id" in answer.text


def test_rewards_of_unknown_subjects_are_limited(
    store: Store, bandit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards of subjects with decisions are always accepted."""
    name = bandit.replace(" ", "-")
    monkeypatch.setattr(module, "MAX_OF_REPORTER", 10)
    with (
        served(Service([definition(name)], store)) as serving,
        Client(serving.url, bandit=name, retries=0) as client,
    ):
        client.decide(CONTEXT, subject="user-17")
        rewards = [(f"nobody-{n}", 1.0, "order-1") for n in range(30)]
        with pytest.raises(ServiceUnavailable, match="this subject has no decision"):
            client.observe_subjects(rewards)
        for n in range(30):
            client.observe(subject="user-17", value=1.0, event_id=f"order-{n}")
