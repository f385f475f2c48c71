"""What a service refuses: a problem that says why, and nothing is taken."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import msgspec
import pytest

from belated.client import Client
from tests.integration.http.bandits import ROWS, problem_in
from tests.waiting import eventually

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
    ("POST", "/v1/rows/decisions/x/void?at=-5", b"", 422),
    ("PUT", "/v1/rows/model", {"version": 999_999_999}, 422),
    ("PUT", "/v1/rows/model", {"version": "newest"}, 422),
    (
        "POST", "/v1/rows/decisions",
        {"rows": ROWS.tolist(), "fallback": {"action": 0, "at": "2026-11-16T12:00:00Z"}}, 422,
    ),
    (
        "POST", "/v1/rows/decisions",
        {"rows": ROWS.tolist(), "id": "x", "fallback": {"action": 3, "at": "2026-11-16T12:00:00Z"}},
        422,
    ),
    ("DELETE", "/v1/rows/decisions/%00", b"", 422),
    ("GET", "/v1/rows/decisions/%00", b"", 422),
    ("GET", "/v1/rows/decisions/%C3", b"", 400),
    ("GET", "/v1/nobody", b"", 404),
    ("GET", "/v1/%FF", b"", 400),
    ("GET", "/v1/", b"", 404),
    ("GET", "/v2/rows", b"", 404),
    ("GET", "/v1/rows/decisions", b"", 405),
    ("GET", "/v1/rows/", b"", 404),
    ("GET", "/v1/rows/something", b"", 404),
    ("GET", "/v1/rows/decisions/x/reward/more", b"", 404),
    ("PATCH", "/v1/rows/decisions/x/reward", {"value": 1}, 405),
    ("PATCH", "/v1/rows", b"", 405),
    ("POST", "/livez", b"", 405),
]  # fmt: skip


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
    valid_request, invalid_request = {"rows": ROWS.tolist(), "id": "half"}, {"rows": [[1.0]]}
    eventually(lambda: http.get("/readyz").status_code == 200)
    pending = client.state().pending
    response = http.post(
        "/v1/rows/decisions/batch", json={"requests": [valid_request, invalid_request]}
    )
    assert problem_in(response).status == 422
    assert client.entry("half").state == "unknown"
    assert client.state().pending == pending


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(http: httpx.Client, chunked: bool) -> None:
    """By its bytes, whatever its headers say."""
    body = b"[" * 3_000_000
    content = (body[n : n + 10_000] for n in range(0, len(body), 10_000)) if chunked else body
    response = http.post(OFFER, content=content)
    assert problem_in(response).status == 413
    assert http.get("/livez").status_code == 200
