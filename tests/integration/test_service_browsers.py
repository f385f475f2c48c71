"""Requests that browsers send for pages: those of listed origins pass, all others are refused."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import Store
from belated.service import Definition, Service
from belated.service.access.tokens import TokenSecrets
from belated.service.http.routes import BANDIT_ROUTES, Route
from tests.integration.asking import Asking
from tests.integration.keyrings import Made, known
from tests.integration.serving import Serving, served

SHOP, EVIL = "https://shop.example", "https://evil.example"
NAME = "for-pages"
OFFERS = Definition(NAME, DelayedUCB(2, Bernoulli()), Explicit())
OFFER = {"rows": [[1.0, 0.0], [0.0, 1.0]]}
ALLOWED = {
    "access-control-allow-origin": SHOP,
    "access-control-allow-credentials": "true",
    "access-control-expose-headers": "etag",
    "vary": "origin",
}


@pytest.fixture(scope="module")
def serving(store: Store) -> Iterator[Serving]:
    """A service without keys, and pages of the shop."""
    with served(Service([OFFERS], store, cors=[SHOP])) as handle:
        yield handle


@pytest.fixture
def asking(serving: Serving, store: Store) -> Iterator[Asking]:
    """Requests to it."""
    with httpx.Client(base_url=serving.url) as http, store.journal(NAME) as journal:
        yield Asking(http, journal, NAME)


def about_pages(response: httpx.Response) -> dict[str, str]:
    """Return the CORS headers of a response."""
    names = [name for name in response.headers if name.startswith("access-control-")]
    return {name: response.headers[name] for name in (*names, "vary") if name in response.headers}


def preflight(asking: Asking, route: Route, origin: str) -> httpx.Response:
    """Return the preflight of a request."""
    path = route.path.format(bandit=NAME, id="a1", subject="user")
    headers = {
        "origin": origin,
        "access-control-request-method": route.method,
        "access-control-request-headers": "authorization,content-type",
    }
    return asking.http.options(path, headers=headers)


@pytest.mark.parametrize("route", BANDIT_ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_browser_asks_first(asking: Asking, route: Route) -> None:
    """A listed page may send decisions and rewards, and the preflight is cached."""
    response = preflight(asking, route, SHOP)
    if route.scope in ("decide", "reward"):
        assert (response.status_code, response.content) == (204, b"")
        assert "content-length" not in response.headers
        assert about_pages(response) == {
            **ALLOWED,
            "access-control-allow-methods": route.method,
            "access-control-allow-headers": "authorization, content-type, if-none-match",
            "access-control-max-age": "7200",
        }
    else:
        assert response.status_code == 403
        assert about_pages(response) == {}
    for origin in (EVIL, "null", SHOP + ".evil.example", SHOP.upper()):
        response = preflight(asking, route, origin)
        assert response.status_code == 403
        assert about_pages(response) == {}


def test_a_listed_page_may_read_every_answer(asking: Asking) -> None:
    """Of successes and of errors."""
    decision = asking.send("POST", "/decisions", OFFER, origin=SHOP)
    reward = f"/decisions/{decision.json()['id']}/reward"
    responses = [
        decision,
        asking.send("POST", reward, {"value": 1}, origin=SHOP),
        asking.send("PUT", reward, {"value": 1}, origin=SHOP),
        asking.send("POST", reward, {"value": 7}, origin=SHOP),
        asking.send("POST", "/decisions", b"{", origin=SHOP),
    ]
    assert [response.status_code for response in responses] == [201, 202, 202, 422, 400]
    assert [about_pages(response) for response in responses] == [ALLOWED] * 5


@pytest.mark.parametrize("route", BANDIT_ROUTES, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("origin", [EVIL, "null", "http://shop.example"])
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json"],
)
def test_another_page_does_nothing(asking: Asking, route: Route, origin: str, kind: str) -> None:
    """Not even without a preflight, which browsers skip for the first three content types.

    The Host is that of the page whose name resolves to this service.
    """
    path = route.path.format(bandit="", id="a1", subject="user").removeprefix("/v1/")
    body = OFFER if route.scope == "decide" else {"value": 1}
    detail = asking.refused(
        lambda: asking.send(
            route.method, path, body, origin=origin, content_type=kind, host="evil.example:8080"
        ),
        403,
    )
    assert "server.cors" in detail


def test_programs_send_no_origin(asking: Asking) -> None:
    """They get no CORS headers; anything but JSON is refused to them, too."""
    answer = asking.send("POST", "/decisions", OFFER)
    assert answer.status_code == 201
    assert about_pages(answer) == {}
    for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        send = lambda kind=form: asking.send("POST", "/decisions", OFFER, content_type=kind)  # noqa: E731
        assert "application/json" in asking.refused(send, 415)


def test_what_browsers_ask_is_counted(serving: Serving, asking: Asking) -> None:
    """Under one name, whatever path is requested."""
    metrics_before = asking.http.get("/metrics").text
    preflight(asking, BANDIT_ROUTES[0], SHOP)
    assert 'method="other",route="other",status="204"' in asking.http.get("/metrics").text
    assert metrics_before.count("OPTIONS") == 0
    response = asking.http.options(f"/v1/{NAME}/decisions")  # not a browser's question
    assert response.status_code == 405


def test_a_page_without_a_key_is_told_so(store: Store) -> None:
    """It may read the error; with a token it can report, with a key it can decide."""
    secrets = TokenSecrets({"k1": bytes(range(32))})
    definition = Definition(
        "guarded-pages", DelayedUCB(2, Bernoulli()), Explicit(), tokens="enforce"
    )
    app = Service([definition], store, auth="keys", token_keys=secrets, cors=[SHOP])
    with served(app) as serving, httpx.Client(base_url=serving.url) as http:
        key: Made = known(store, serving.url)
        path = "/v1/guarded-pages/decisions"
        response = http.post(path, json=OFFER, headers={"origin": SHOP})
        assert (response.status_code, about_pages(response)) == (401, ALLOWED)
        decision = http.post(path, json=OFFER, headers={**key.header, "origin": SHOP}).json()
        reward_path = f"{path}/{decision['id']}/reward"
        receipt = http.post(
            reward_path, json={"value": 1, "token": decision["token"]}, headers={"origin": SHOP}
        )
        assert (receipt.status_code, about_pages(receipt)) == (202, ALLOWED)
        refusal = http.post(reward_path, json={"value": 1, "token": "no"}, headers={"origin": SHOP})
        assert (refusal.status_code, about_pages(refusal)) == (403, ALLOWED)
