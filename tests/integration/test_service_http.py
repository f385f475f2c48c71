"""The service over HTTP: a real server on every store, every route, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian, Shared
from belated.events import Decision, Record, encode
from belated.exceptions import InvalidInput, ServiceError, ServiceUnavailable
from belated.journals import Store
from belated.service import AsyncClient, Client, Definition, create_app
from belated.service.client.transport import BlockingNetwork, Transport
from belated.service.client.verbs import Verbs
from belated.service.http.app import AROUND, Service
from belated.service.http.routes import BANDIT_ROUTES
from belated.service.wire.problem import Problem
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import Serving, free_port, served
from tests.waiting import eventually

DIM = 4
JSON = {"content-type": "application/json"}
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
ROWS = np.round(np.random.default_rng(0).uniform(-1, 1, (3, DIM)), 3)
SHARED = Shared(context=["age"], action=["price"])


def definitions() -> list[Definition]:
    """Three bandits: rows, a short window, and features."""
    return [
        Definition(
            "rows",
            DelayedThompson(DIM, Bernoulli()),
            Explicit(timedelta(days=7)),
            partitions=2,
        ),
        Definition(
            "short",
            DelayedUCB(DIM, Gaussian()),
            Explicit(timedelta(milliseconds=500)),
            retention=2_500_000,
        ),
        Definition("shared", DelayedUCB(SHARED.dim, Bernoulli()), Explicit(), features=SHARED),
    ]


@pytest.fixture(scope="module")
def serving(store: Store) -> Iterator[Serving]:
    """A service that learns too."""
    with served(create_app(definitions(), store, learn=True, max_body_bytes=100_000)) as found:
        yield found


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    """Plain requests."""
    with httpx.Client(base_url=serving.url, headers=JSON) as found:
        yield found


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    """The verbs."""
    with Client(serving.url, bandit="rows") as found:
        yield found


def problem_in(response: httpx.Response) -> Problem:
    """What was answered, which must be a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = msgspec.json.decode(response.content, type=Problem)
    assert problem.status == response.status_code
    return problem


# --- every route ---------------------------------------------------------------------------------

EXAMPLES: dict[str, Any] = {
    "DecisionRequest": {"rows": ROWS.tolist(), "actions": ["a", "b", "c"]},
    "DecisionRequests": {"requests": [{"rows": ROWS.tolist()}, {"rows": ROWS.tolist()}]},
    "RewardBody": {"value": 1.0},
    "ModeBody": {"mode": "learn", "reason": "as it was"},
    "RewardsBody": {"rewards": [{"id": "someone", "value": 0.0}]},
}


def test_every_documented_route_answers_as_documented(http: httpx.Client) -> None:
    """Each operation of /openapi.json, with its example, has the status and the type it names."""
    eventually(lambda: http.get("/readyz").is_success)  # a first model has come
    document = http.get("/openapi.json").json()
    types = {(r.path, r.method): r for r in (*BANDIT_ROUTES, *AROUND)}
    asked = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody")
            content = None
            if body is not None:
                name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                content = EXAMPLES[name]
            place = path.format(bandit="rows", id="documented")
            response = http.request(method.upper(), place, json=content)
            assert str(response.status_code) in operation["responses"], response.text
            assert response.is_success, response.text
            media = operation["responses"][str(response.status_code)]["content"]
            assert response.headers["content-type"].partition(";")[0] in media
            answer = types[path, method.upper()].answer
            if answer is not None:
                msgspec.json.decode(response.content, type=answer)
            asked += 1
    assert asked == len(BANDIT_ROUTES) + len(AROUND)


def test_the_whole_story_of_a_decision(client: Client) -> None:
    """Decided, activated, rewarded in two parts, corrected: each record says what it meant."""
    decision = client.decide(ROWS, ["a", "b", "c"], activated=False)
    assert client.entry(decision.id).state == "dormant"
    assert client.activate(decision.id).status == "accepted"
    assert client.entry(decision.id).state == "pending"
    assert client.observe(decision.id, 0.0, at=AT).status == "accepted"
    client.observe(decision.id, 0.0, at=AT)  # a retry, which PostgreSQL stores once
    client.observe(decision.id, 1.0, revision=1)
    client.observe(decision.id, 0.0)  # what was corrected, at another time
    story = client.entry(decision.id)
    assert (story.state, story.value, story.late, story.conflict) == ("rewarded", 1.0, False, False)
    kinds = [(one.kind, one.status) for one in story.records]
    assert kinds.pop() == ("reward", "superseded")
    assert [one for one in kinds if one != ("reward", "duplicate")] == [
        ("decision", "decided"),
        ("activation", "activated"),
        ("reward", "rewarded"),
        ("reward", "revised"),
    ]
    assert story.records[2].at == AT
    chosen = story.decision
    assert chosen is not None
    assert (chosen.action, chosen.index, chosen.at) == (
        decision.action,
        decision.index,
        decision.at,
    )
    assert chosen.x == ROWS.astype(np.float32)[decision.index].tolist()
    client.void(decision.id)
    assert client.entry(decision.id).state == "voided"


def test_a_decision_shows_what_it_was_chosen_from(serving: Serving, client: Client) -> None:
    """Rows or the context, and the names; of every decision of a batch its own."""
    story = client.entry(client.decide(ROWS, ["a", "b", "c"]).id)
    assert story.request is not None
    assert (story.request.actions, story.request.share) == (["a", "b", "c"], 1.0)
    assert story.request.rows == ROWS.astype(np.float32).tolist()
    for n, one in enumerate(client.decide_many([ROWS[:2], ROWS])):
        story = client.entry(one.id)
        assert story.request is not None
        assert story.request.rows == ROWS.astype(np.float32)[: n + 2].tolist()
    actions = {"red": {"price": 3.0}, "blue": {"price": 4.0}}
    with Client(serving.url, bandit="shared") as shared:
        story = shared.entry(shared.decide({"age": 3.0}, actions, id="named").id)
        shared.void("named")
    assert story.request is not None
    assert (story.request.rows, story.request.context) == (None, {"age": 3.0})
    assert story.request.actions == ["red", "blue"]
    assert story.request.records == list(actions.values())


def test_a_story_is_settled_as_far_as_the_journal_is(serving: Serving) -> None:
    """After the window it is censored, after the retention forgotten; a late reward still comes."""
    with Client(serving.url, bandit="short") as client:
        on_timeout, late = client.decide(ROWS).id, client.decide(ROWS).id
        assert client.entry(on_timeout).state == "pending"
        for id in (on_timeout, late):  # the second is due after the first
            eventually(lambda id=id: client.entry(id).state == "censored")  # type: ignore[misc]
        client.observe(late, 2.5)
        story = client.entry(late)
        assert (story.state, story.value, story.late) == ("rewarded", 2.5, True)
        eventually(lambda: client.entry(on_timeout).forgotten)
        assert client.entry(on_timeout).state == "censored"


def test_an_unknown_id_is_no_error(http: httpx.Client, client: Client) -> None:
    """GET says unknown; a reward for it is accepted like any other, and then it is parked."""
    response = http.get("/v1/rows/decisions/nobody")
    assert (response.status_code, response.json()) == (200, {"id": "nobody", "state": "unknown"})
    known = client.decide(ROWS).id
    answers = [http.put(f"/v1/rows/decisions/{id}/reward", json={"value": 1}) for id in
               ("nobody", known)]  # fmt: skip
    assert [one.status_code for one in answers] == [202, 202]
    assert [one.json() for one in answers] == [
        {"id": id, "status": "accepted"} for id in ("nobody", known)
    ]
    assert client.entry("nobody").state == "unmatched"


@pytest.mark.parametrize(
    "id",
    ["a/b", "a%41", "..", ".", "ä ö", "x?y#z", "%FF", "{id}", "batch", "a+b", "\u2028", "é" * 64],
)
def test_an_id_may_be_any_text(client: Client, id: str) -> None:
    """What means something in an address is part of the id all the same."""
    decision = client.decide(ROWS, id=id)
    assert decision.id == id
    assert client.decide(ROWS, id=id) == decision
    assert client.observe(id, 1.0).id == id
    story = client.entry(id)
    assert (story.id, story.state) == (id, "rewarded")


def test_what_was_told_is_learned(serving: Serving) -> None:
    """The model of the decider knows the decisions and rewards of before."""
    with Client(serving.url, bandit="shared") as client:
        actions: dict[str, Any] = {"red": {"price": 0.5}, "blue": {"price": np.float32(2.0)}}
        decisions = [client.decide({"age": 0.3}, actions) for _ in range(5)]
        decisions += client.decide_many([({"age": np.int64(1)}, actions)] * 3)
        assert {one.action for one in decisions} <= {"red", "blue"}
        client.observe_many([(one.id, 1.0) for one in decisions[:6]])
        eventually(lambda: (client.state().observations, client.state().pending) == (6, 2))
        assert client.state().bandit == "shared"
        last = {"id": decisions[6].id, "value": 0.0, "part": "basket"}
        assert client.observe_many([last])[0].status == "accepted"
        eventually(lambda: client.state().observations == 7)


def test_rows_may_be_numbers_or_bytes(http: httpx.Client) -> None:
    """JSON numbers and base64 of float32 are the same rows: the second finds the first's id."""
    numbers = {"rows": ROWS.tolist(), "id": "either"}
    packed = base64.b64encode(ROWS.astype("<f4").tobytes()).decode()
    first = http.post("/v1/rows/decisions", json=numbers)
    second = http.post("/v1/rows/decisions", json={"rows": packed, "dim": DIM, "id": "either"})
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()


def test_what_the_store_recognises_is_told(http: httpx.Client, store: Store) -> None:
    """The very same event again: PostgreSQL writes nothing and says so, others append it."""

    def told() -> float | None:
        lines = http.get("/metrics").text.splitlines()
        name = 'belated_store_duplicates_total{bandit="rows"} '
        return next((float(one.removeprefix(name)) for one in lines if one.startswith(name)), None)

    id = http.post("/v1/rows/decisions", json={"rows": ROWS.tolist()}).json()["id"]
    before = told()
    for _ in range(3):
        assert (
            http.delete(f"/v1/rows/decisions/{id}", params={"at": AT.isoformat()}).status_code
            == 202
        )
    if store.name == "postgresql":
        assert before is not None
        assert told() == before + 2
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
    assert 'belated_learner_is_leader{bandit="rows"} 1.0' in text


# --- what is refused -----------------------------------------------------------------------------

OFFER = "/v1/rows/decisions"
REWARD = "/v1/rows/decisions/x/reward"
WRONG: list[tuple[str, str, bytes | dict[str, Any], int]] = [
    ("POST", OFFER, b"", 400),
    ("POST", OFFER, b"{", 400),
    ("POST", OFFER, b'{"id":"\xff"}', 400),
    ("POST", OFFER, b'{"id":"\\ud800"}', 400),
    ("POST", OFFER, b'{"rows":[[NaN,1,1,1]]}', 400),
    ("POST", OFFER, b'{"context":{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}}", 400),
    ("POST", OFFER, b"null", 422),
    ("POST", OFFER, b"[]", 422),
    ("POST", OFFER, {}, 422),
    ("POST", OFFER, {"rows": []}, 422),
    ("POST", OFFER, {"rows": [[]]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3]]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4], [1]]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, "4"]]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, None]]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 1e9]]}, 422),
    ("POST", OFFER, b'{"rows":[[1,2,3,1e999]]}', 422),
    ("POST", OFFER, {"rows": "no base64!"}, 422),
    ("POST", OFFER, {"rows": ""}, 422),
    ("POST", OFFER, {"rows": "AAAA"}, 422),
    ("POST", OFFER, {"rows": base64.b64encode(bytes(32)).decode(), "dim": 8}, 422),
    ("POST", OFFER, {"rows": base64.b64encode(b"\xff" * 16).decode()}, 422),  # four times NaN
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "id": ""}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "id": "x" * 129}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "id": "é" * 65}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "id": "a\0b"}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "id": 7}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "actions": []}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "actions": ["a", "b"]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]] * 2, "actions": ["a", "a"]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "actions": [10**30]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "actions": [1.5]}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "activated": 1}, 422),
    ("POST", OFFER, {"rows": [[1, 2, 3, 4]], "colour": "red"}, 422),
    ("POST", OFFER, {"context": {"age": 1}, "actions": ["a"]}, 422),
    ("POST", "/v1/shared/decisions", {"rows": [[1, 2, 3, 4]]}, 422),
    ("POST", "/v1/shared/decisions", {"context": {"age": 1}}, 422),
    (
        "POST",
        "/v1/shared/decisions",
        {"context": {"age": 1}, "actions": {"a": {"price": 1}}, "dim": 4},
        422,
    ),
    ("POST", "/v1/shared/decisions", {"context": {"age": 1}, "actions": ["a", "b"]}, 422),
    ("POST", "/v1/shared/decisions", {"context": {}, "actions": {"a": {"price": 1}}}, 422),
    ("POST", "/v1/shared/decisions", {"actions": {"a": {"price": 1}}}, 422),
    (
        "POST",
        "/v1/shared/decisions",
        {"context": {"age": [1]}, "actions": {"a": {"price": 1}}},
        422,
    ),
    (
        "POST",
        "/v1/shared/decisions",
        {"context": {"age": 10**400}, "actions": {"a": {"price": 1}}},
        422,
    ),
    ("POST", "/v1/shared/decisions", {"context": {"age": 1}, "actions": {"a": 7}}, 422),
    ("POST", f"{OFFER}/batch", {"requests": []}, 422),
    ("POST", f"{OFFER}/batch", {"requests": [{"rows": [[1, 2, 3, 4]]}] * 1_001}, 422),
    ("POST", f"{OFFER}/batch", {"requests": [{"rows": [[1, 2, 3, 4]], "id": "twice"}] * 2}, 422),
    ("POST", f"{OFFER}/batch", {"requests": [{"rows": [[1, 2, 3, 4]]}, {"rows": [[1]]}]}, 422),
    ("PUT", REWARD, {}, 422),
    ("PUT", REWARD, {"value": None}, 422),
    ("PUT", REWARD, {"value": "1"}, 422),
    ("PUT", REWARD, {"value": 1.01}, 422),
    ("PUT", REWARD, {"value": -1}, 422),
    ("PUT", REWARD, b'{"value":1e999}', 422),
    ("PUT", REWARD, {"value": 1, "at": -1}, 422),
    ("PUT", REWARD, {"value": 1, "at": 2**63}, 422),
    ("PUT", REWARD, {"value": 1, "revision": -1}, 422),
    ("PUT", REWARD, {"value": 1, "revision": 2**64}, 422),
    ("PUT", REWARD, {"value": 1, "part": "x" * 129}, 422),
    ("PUT", REWARD, {"value": 1, "part": "a\0b"}, 422),
    ("PUT", "/v1/rows/decisions//reward", {"value": 1}, 422),
    ("PUT", "/v1/rows/decisions/a%00b/reward", {"value": 1}, 422),
    ("PUT", "/v1/rows/decisions/%FF/reward", {"value": 1}, 400),
    ("PUT", f"/v1/rows/decisions/{'x' * 129}/reward", {"value": 1}, 422),
    ("POST", "/v1/rows/rewards/batch", {"rewards": []}, 422),
    ("POST", "/v1/rows/rewards/batch", {"rewards": [{"value": 1}]}, 422),
    ("POST", "/v1/rows/rewards/batch", {"rewards": [{"id": "a", "value": 7}]}, 422),
    ("PUT", "/v1/rows/decisions/x/activation?at=soon", b"", 422),
    ("PUT", "/v1/rows/decisions/x/activation?at=", b"", 422),
    ("PUT", "/v1/rows/decisions/x/activation?at=5&at=6", b"", 422),
    ("PUT", "/v1/rows/decisions/x/activation?when=5", b"", 422),
    ("DELETE", "/v1/rows/decisions/x?at=-5", b"", 422),
    ("DELETE", "/v1/rows/decisions/%00", b"", 422),
    ("GET", "/v1/rows/decisions/%00", b"", 422),
    ("GET", "/v1/rows/decisions/%C3", b"", 400),
    ("GET", "/v1/nobody", b"", 404),
    ("GET", "/v1/%FF", b"", 400),
    ("GET", "/v1/", b"", 404),
    ("GET", "/v1", b"", 404),
    ("GET", "/", b"", 404),
    ("GET", "/v2/rows", b"", 404),
    ("GET", "/v1/rows/decisions", b"", 405),
    ("GET", "/v1/rows/", b"", 404),
    ("GET", "/v1/rows/something", b"", 404),
    ("GET", "/v1/rows/decisions/x/reward/more", b"", 404),
    ("PATCH", "/v1/rows/decisions/x/reward", {"value": 1}, 405),
    ("PATCH", "/v1/rows", b"", 405),
    ("POST", "/livez", b"", 405),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"), WRONG, ids=[f"{n}" for n in range(len(WRONG))]
)
def test_what_is_wrong_is_a_problem(
    http: httpx.Client, method: str, path: str, body: bytes | dict[str, Any], status: int
) -> None:
    """With the right status, words that help, and never an error of the service's own."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = http.request(method, path, content=content)
    problem = problem_in(response)
    assert problem.status == status, problem
    assert problem.detail
    assert "Traceback" not in problem.detail
    assert ("allow" in response.headers) == (status == 405)


def test_nothing_of_a_refused_request_is_taken(http: httpx.Client, client: Client) -> None:
    """One offer of a batch is wrong: none is decided, none is pending."""
    good, wrong = {"rows": ROWS.tolist(), "id": "half"}, {"rows": [[1.0]]}
    eventually(lambda: http.get("/readyz").status_code == 200)
    before = client.state().pending
    response = http.post("/v1/rows/decisions/batch", json={"requests": [good, wrong]})
    assert problem_in(response).status == 422
    assert client.entry("half").state == "unknown"
    assert client.state().pending == before


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(http: httpx.Client, chunked: bool) -> None:
    """By its bytes, whatever its headers say."""
    body = b"[" * 3_000_000
    content = (body[n : n + 10_000] for n in range(0, len(body), 10_000)) if chunked else body
    response = http.post(OFFER, content=content)
    assert problem_in(response).status == 413
    assert http.get("/livez").status_code == 200


# --- the same again ------------------------------------------------------------------------------


def test_the_same_id_gives_the_same_decision(client: Client) -> None:
    """One after the other; and other rows under it are refused."""
    first = client.decide(ROWS, id="order 1")
    assert client.decide(ROWS, id="order 1") == first
    with pytest.raises(InvalidInput, match="used for another decision"):
        client.decide(ROWS + 0.5, id="order 1")
    assert len(client.entry("order 1").records) == 1


def test_two_deciders_at_once_give_one_answer(store: Store, bandit: str) -> None:
    """However many ask at the same moment: from then on all get the one that counts."""
    one = Definition(bandit, DelayedThompson(DIM, Bernoulli()), Explicit())
    with served(create_app([one], store)) as here, served(create_app([one], store)) as there:
        clients = [Client(url, bandit=bandit) for url in (here.url, there.url)] * 4
        barrier = threading.Barrier(len(clients))

        def ask(client: Client) -> None:
            barrier.wait()
            client.decide(ROWS, id="contested")

        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(ask, clients))
        answers = [client.decide(ROWS, id="contested") for client in clients]
        assert len({one.at for one in answers}) == 1
        counting = clients[0].entry("contested").decision
        assert counting is not None
        assert (counting.at, counting.index) == (answers[0].at, answers[0].index)
        for client in clients:
            client.close()


class Losing(httpx.HTTPTransport):
    """The network, which loses the first answers: the request arrives, and nobody hears of it."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost = lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, and lose the answer."""
        response = super().handle_request(request)
        if self.lost:
            self.lost -= 1
            response.read()
            raise httpx.ReadTimeout("lost", request=request)
        return response


def test_a_lost_answer_costs_nothing(serving: Serving, client: Client, store: Store) -> None:
    """The retry gets the decision that was made; what the journal has twice is the same."""
    losing = Losing(2)
    http = httpx.Client(base_url=serving.url, transport=losing)
    network = BlockingNetwork(http, sleep=lambda seconds: None)
    client._verbs = Verbs("rows", Transport(serving.url, network, retries=2))
    decision = client.decide(ROWS)
    losing.lost = 2
    client.observe(decision.id, 1.0)
    losing.lost = 1
    many = client.decide_many([ROWS, ROWS])
    with store.journal("rows") as journal:
        records = journal.records_of([decision.id])
        others = journal.records_of([one.id for one in many])
    assert [type(event).__name__ for event in different(records)] == ["Decision", "Reward"]
    assert isinstance(records[0].event, Decision)
    assert (records[0].event.index, records[0].event.at) == (decision.index, decision.at)
    assert sorted(one.id for one in different(others)) == sorted(one.id for one in many)


def different(records: list[Record]) -> list[Any]:
    """Their events, each once."""
    return list({encode(one.event): one.event for one in records}.values())


def test_what_a_client_returns_can_be_passed_on(client: Client) -> None:
    """As JSON, with the words in which the service said it."""
    decision = client.decide(ROWS, ["a", "b", "c"])
    assert json.loads(json.dumps(decision.to_dict())) == dict(decision)
    assert datetime.fromisoformat(decision.to_dict()["at"]) == decision.at
    story = json.loads(json.dumps(client.entry(decision.id).to_dict()))
    assert story["decision"]["at"] == story["records"][0]["at"] == decision.to_dict()["at"]
    assert client.state().to_dict()["bandit"] == "rows"


def test_the_verbs_awaited(serving: Serving) -> None:
    """Many at once over one client; what was decided and reported is there."""

    async def shop() -> None:
        async with AsyncClient(serving.url, bandit="rows") as client:
            made = await asyncio.gather(*(client.decide(ROWS, ["a", "b", "c"]) for _ in range(20)))
            assert len({one.id for one in made}) == 20
            ids = [f"awaited {n}" for n in range(3)]
            many = await client.decide_many([ROWS] * 3, ids=ids)
            assert [one.id for one in many] == ids
            assert await client.decide_many([ROWS] * 3, ids=ids) == many
            rewards = [(one.id, 1.0) for one in (*made, *many)]
            receipts = await client.observe_many(rewards)
            assert [(one.id, one.status) for one in receipts] == [
                (id, "accepted") for id, _ in rewards
            ]
            assert (await client.void(made[0].id)).status == "accepted"
            assert (await client.entry(many[2].id)).state == "rewarded"
            assert (await client.state()).bandit == "rows"
            with pytest.raises(InvalidInput, match="outside"):
                await client.observe(made[0].id, 7.0)

    asyncio.run(shop())


# --- outages -------------------------------------------------------------------------------------


def test_a_service_that_is_restarted_is_waited_for(store: Store, bandit: str) -> None:
    """Calls while it is down come back when it is up; with no retries they fail at once."""
    one = Definition(bandit, DelayedUCB(DIM, Bernoulli()), Explicit())
    serving = Serving(free_port())
    serving.start(create_app([one], store))
    try:
        with (
            Client(serving.url, bandit=bandit, retries=8) as client,
            Client(serving.url, bandit=bandit, retries=0, timeout=1.0) as hasty,
        ):
            first = client.decide(ROWS)
            serving.stop()
            with pytest.raises(ServiceUnavailable, match="cannot be reached"):
                hasty.decide(ROWS)
            again = threading.Timer(0.5, serving.start, [create_app([one], store)])
            again.start()
            second = client.decide(ROWS)  # sent to nobody at first
            assert client.observe(first.id, 1.0).status == "accepted"
            assert client.entry(second.id).state == "pending"
            again.join()
    finally:
        serving.stop()


def test_a_journal_that_is_away_is_503_and_comes_back(
    own_server: PostgresServer, bandit: str
) -> None:
    """Nothing is acknowledged meanwhile, retries say when to come, and afterwards all goes on."""
    one = Definition(bandit, DelayedUCB(DIM, Bernoulli()), Explicit())
    with (
        served(create_app([one], own_server.dsn)) as serving,
        Client(serving.url, bandit=bandit, retries=10) as client,
    ):
        first = client.decide(ROWS)
        own_server.kill()
        base = f"{serving.url}/v1/{bandit}/decisions".replace(" ", "%20")
        for response in (
            httpx.post(base, json={"rows": ROWS.tolist()}),
            httpx.post(base, json={"rows": ROWS.tolist(), "id": "mine"}),
            httpx.put(f"{base}/x/reward", json={"value": 1}),
            httpx.get(f"{base}/{first.id}"),
        ):
            assert problem_in(response).status == 503
            assert response.headers["retry-after"] == "1"
        assert httpx.get(f"{serving.url}/livez").status_code == 200
        assert client.state().pending == 1  # those that failed do not count
        starting = threading.Thread(target=own_server.start)
        starting.start()
        second = client.decide(ROWS)
        starting.join()
        assert {client.entry(one.id).state for one in (first, second)} == {"pending"}
        metrics = httpx.get(f"{serving.url}/metrics").text
        assert f'belated_internal_errors_total{{bandit="{bandit}",kind="commit"}} 0' not in metrics


def test_another_policy_starts_without_the_old_model(store: Store, bandit: str) -> None:
    """It chooses by its prior until the learner, which has the new policy too, has made one."""
    old = Definition(bandit, DelayedUCB(DIM, Bernoulli(), alpha=0.5), Explicit())
    new = Definition(bandit, DelayedUCB(DIM, Bernoulli(), alpha=0.9), Explicit())

    def refused(app: Service, rewards: int) -> int:
        """How many models, once this many rewards are known in all."""
        with served(app) as serving, Client(serving.url, bandit=bandit) as client:
            client.observe(client.decide(ROWS).id, 1.0)
            eventually(lambda: client.state().observations == rewards)
            return app.bandits[bandit].stats.failures["model"]

    assert refused(create_app([old], store, learn=True), rewards=1) == 0
    assert refused(create_app([new], store, learn=True), rewards=2) >= 1


def test_problems_become_errors(serving: Serving) -> None:
    """InvalidInput for what was refused, ServiceError with the problem for the rest."""
    with Client(serving.url, bandit="nobody") as client:
        with pytest.raises(ServiceError, match="no bandit 'nobody'") as caught:
            client.state()
        assert caught.value.problem.status == 404
    with Client(serving.url, bandit="rows") as client:
        with pytest.raises(InvalidInput, match="rows of 2 numbers: 4 were expected"):
            client.decide(np.eye(2))
        with pytest.raises(InvalidInput, match="outside"):
            client.observe("x", 7.0)
        with pytest.raises(ServiceError, match="413") as caught:
            client.decide(np.ones((10_000, DIM)))
        assert caught.value.problem.title == "Too large"
