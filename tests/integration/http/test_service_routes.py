"""The service over HTTP: a real server on every store, every route, and what it refuses."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import numpy as np
import pytest

from belated.client import Client
from belated.journals import Store
from belated.service.http.app import ROUTES
from belated.service.http.ofrep import EVALUATE
from tests.integration.http.bandits import DIM, ROWS
from tests.waiting import eventually

# --- every route ---------------------------------------------------------------------------------

EXAMPLES: dict[str, Any] = {
    "DecisionRequest": {"rows": ROWS.tolist(), "actions": ["a", "b", "c"]},
    "DecisionRequests": {"requests": [{"rows": ROWS.tolist()}, {"rows": ROWS.tolist()}]},
    "RewardBody": {"value": 1.0},
    "ModeBody": {"mode": "learn", "reason": "as it was"},
    "ModelBody": {"version": "latest", "reason": "as it was"},
    "ActionBody": {"action": "c", "change": "resume", "reason": "back in stock"},
    "RewardsBody": {"rewards": [{"id": "someone", "value": 0.0}]},
    "EvaluationRequest": {
        "context": {"targetingKey": "user", "age": 0.3, "actions": {"red": {"price": 0.5}}}
    },
    "SubjectRewardsBody": {"rewards": [{"subject": "user", "value": 0.0, "event_id": "order"}]},
}


def test_every_documented_route_answers_as_documented(http: httpx.Client) -> None:
    """Each operation of /openapi.json, with its example, has the status and the type it names."""
    eventually(lambda: http.get("/readyz").is_success)  # a first model has come
    document = http.get("/openapi.json").json()
    types = {(route.path, route.method): route for route in ROUTES}
    count = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody")
            content = None
            if body is not None:
                name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                content = EXAMPLES[name]
            bandit = "shared" if path == EVALUATE.path else "rows"
            place = path.format(bandit=bandit, id="documented", subject="user")
            response = http.request(method.upper(), place, json=content)
            assert str(response.status_code) in operation["responses"], response.text
            assert response.is_success or path == "/", response.text
            media = operation["responses"][str(response.status_code)]["content"]
            assert response.headers["content-type"].partition(";")[0] in media
            answer = types[path, method.upper()].answer
            if answer is not None:
                msgspec.json.decode(response.content, type=answer)
            count += 1
    assert count == len(ROUTES)


def test_the_whole_story_of_a_decision(client: Client) -> None:
    """Decided, activated, rewarded in two parts, corrected: each record says what it meant."""
    decision = client.decide(rows=ROWS, actions=["a", "b", "c"], activated=False)
    at = datetime.now(UTC)
    assert client.entry(decision.id).state == "dormant"
    assert client.activate(decision.id).status == "accepted"
    assert client.entry(decision.id).state == "pending"
    assert client.observe(decision.id, 0.0, at=at).status == "accepted"
    client.observe(decision.id, 0.0, at=at)  # a retry, which PostgreSQL stores once
    client.observe(decision.id, 1.0, revision=1)
    client.observe(decision.id, 0.0)  # what was corrected, at another time
    story = client.entry(decision.id)
    assert (story.state, story.value, story.late, story.conflict) == ("rewarded", 1.0, False, False)
    kinds = [(record.kind, record.status) for record in story.records]
    assert kinds.pop() == ("reward", "superseded")
    assert [pair for pair in kinds if pair != ("reward", "duplicate")] == [
        ("decision", "decided"),
        ("activation", "activated"),
        ("reward", "rewarded"),
        ("reward", "revised"),
    ]
    assert story.records[2].at == at
    stored_decision = story.decision
    assert stored_decision is not None
    assert (stored_decision.action, stored_decision.index, stored_decision.at) == (
        decision.action,
        decision.index,
        decision.at,
    )
    assert stored_decision.x == ROWS.astype(np.float32)[decision.index].tolist()
    client.void(decision.id)
    assert client.entry(decision.id).state == "voided"


def test_a_decision_shows_what_it_was_chosen_from(url: str, client: Client) -> None:
    """Rows or the context, and the names; of every decision of a batch its own."""
    story = client.entry(client.decide(rows=ROWS, actions=["a", "b", "c"]).id)
    assert story.request is not None
    assert (story.request.actions, story.request.share) == (["a", "b", "c"], 1.0)
    assert story.request.rows == ROWS.astype(np.float32).tolist()
    for n, decision in enumerate(client.decide_many(rows=[ROWS[:2], ROWS])):
        story = client.entry(decision.id)
        assert story.request is not None
        assert story.request.rows == ROWS.astype(np.float32)[: n + 2].tolist()
    actions = {"red": {"price": 3.0}, "blue": {"price": 4.0}}
    with Client(url, bandit="shared") as shared_client:
        story = shared_client.entry(shared_client.decide({"age": 3.0}, actions, id="named").id)
        shared_client.void("named")
    assert story.request is not None
    assert (story.request.rows, story.request.context) == (None, {"age": 3.0})
    assert story.request.actions == ["red", "blue"]
    assert story.request.records == list(actions.values())


def test_a_story_is_settled_as_far_as_the_journal_is(url: str) -> None:
    """After the window it is censored, after the retention forgotten; a late reward still comes."""
    with Client(url, bandit="short") as client:
        timeout_id, late_id = client.decide(rows=ROWS).id, client.decide(rows=ROWS).id
        assert client.entry(timeout_id).state == "pending"
        for id in (timeout_id, late_id):  # the second is due after the first
            eventually(lambda id=id: client.entry(id).state == "censored")  # type: ignore[misc]
        client.observe(late_id, 2.5)
        story = client.entry(late_id)
        assert (story.state, story.value, story.late) == ("rewarded", 2.5, True)
        eventually(lambda: client.entry(timeout_id).forgotten)
        assert client.entry(timeout_id).state == "censored"


def test_an_unknown_id_is_no_error(http: httpx.Client, client: Client) -> None:
    """GET says unknown; a reward for it is accepted like any other, and then it is parked."""
    unknown_id = uuid4().hex
    response = http.get(f"/v1/rows/decisions/{unknown_id}")
    assert (response.status_code, response.json()) == (200, {"id": unknown_id, "state": "unknown"})
    known_id = client.decide(rows=ROWS).id
    answers = [http.put(f"/v1/rows/decisions/{id}/reward", json={"value": 1}) for id in
               (unknown_id, known_id)]  # fmt: skip
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json() for answer in answers] == [
        {"id": id, "status": "accepted"} for id in (unknown_id, known_id)
    ]
    assert client.entry(unknown_id).state == "unmatched"


@pytest.mark.parametrize(
    "id",
    ["a/b", "a%41", "..", ".", "ä ö", "x?y#z", "%FF", "{id}", "batch", "a+b", "\u2028", "é" * 64],
)
def test_an_id_may_be_any_text(client: Client, id: str) -> None:
    """What means something in an address is part of the id all the same."""
    decision = client.decide(rows=ROWS, id=id)
    assert decision.id == id
    assert client.decide(rows=ROWS, id=id) == decision
    assert client.observe(id, 1.0).id == id
    story = client.entry(id)
    assert (story.id, story.state) == (id, "rewarded")


def test_what_was_told_is_learned(url: str) -> None:
    """The model of the decider knows the decisions and rewards of before."""
    with Client(url, bandit="shared") as client:
        base = client.state()  # the other server has the same journal

        def learned() -> tuple[int, int]:
            state = client.state()
            return state.observations - base.observations, state.pending - base.pending

        actions: dict[str, Any] = {"red": {"price": 0.5}, "blue": {"price": np.float32(2.0)}}
        decisions = [client.decide({"age": 0.3}, actions) for _ in range(5)]
        decisions += client.decide_many([({"age": np.int64(1)}, actions)] * 3)
        assert {decision.action for decision in decisions} <= {"red", "blue"}
        client.observe_many([(decision.id, 1.0) for decision in decisions[:6]])
        eventually(lambda: learned() == (6, 2))
        assert client.state().bandit == "shared"
        reward = {"id": decisions[6].id, "value": 0.0, "part": "basket"}
        assert client.observe_many([reward])[0].status == "accepted"
        eventually(lambda: learned() == (7, 1))


def test_a_decision_is_erased(client: Client) -> None:
    """It counts as if it had never been made; what has no record is not erased."""
    first, second = client.decide(rows=ROWS), client.decide(rows=ROWS)
    client.observe(first.id, 1.0)
    assert client.erase(first.id) == 1
    entry = client.entry(first.id)
    assert (entry.state, entry.decision, entry.records) == ("erased", None, [])
    assert client.entry(second.id).state == "pending"
    assert client.erase("never-decided") == 0


def test_rows_may_be_numbers_or_bytes(http: httpx.Client) -> None:
    """JSON numbers and base64 of float32 are the same rows: the second finds the first's id."""
    numbers = {"rows": ROWS.tolist(), "id": "either"}
    text = base64.b64encode(ROWS.astype("<f4").tobytes()).decode()
    first = http.post("/v1/rows/decisions", json=numbers)
    second = http.post("/v1/rows/decisions", json={"rows": text, "dim": DIM, "id": "either"})
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()


def test_what_the_store_recognises_is_told(http: httpx.Client, store: Store) -> None:
    """The very same event again: PostgreSQL writes nothing and says so, others append it."""

    def told() -> float | None:
        lines = http.get("/metrics").text.splitlines()
        name = 'belated_store_duplicates_total{bandit="rows"} '
        return next(
            (float(line.removeprefix(name)) for line in lines if line.startswith(name)), None
        )

    id = http.post("/v1/rows/decisions", json={"rows": ROWS.tolist()}).json()["id"]
    count, at = told(), datetime.now(UTC).isoformat()
    for _ in range(3):
        response = http.post(f"/v1/rows/decisions/{id}/void", params={"at": at})
        assert response.status_code == 202
    if store.name == "postgresql":
        assert count is not None
        assert told() == count + 2
    else:
        assert told() is None


def test_readiness_and_metrics(http: httpx.Client) -> None:
    """Ready once there is a model; metrics name routes and never ids."""
    eventually(lambda: http.get("/readyz").status_code == 200)
    http.put("/v1/rows/decisions/secret-id/reward", json={"value": 1})
    http.patch("/v1/rows/decisions/secret-id")
    http.get("/secret-path")
    text = http.get("/metrics").text
    assert 'route="/v1/{bandit}/decisions/{id}/reward",status="202"' in text
    assert 'belated_http_requests_total{method="other",route="other",status="405"}' in text
    assert "secret" not in text
    assert "PATCH" not in text
    # a learner that folds again, for instance after an erasure, does not lead for a moment
    eventually(lambda: 'belated_learner_is_leader{bandit="rows"} 1.0' in http.get("/metrics").text)
