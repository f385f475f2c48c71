"""What a real browser sends for a page (see ADR 25), and what the service allows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision
from belated.journals import Store
from belated.service import Definition, Service
from tests.integration.chromium import Chromium
from tests.integration.serving import served
from tests.waiting import eventually

OFFERS = Definition("attacked", DelayedUCB(2, Bernoulli()), Explicit())
OFFER = '{"rows":[[1,0],[0,1]]}'
#: Ways to send something to another origin without being allowed to.
BLINDLY = {
    "a beacon of text": "navigator.sendBeacon(URL, BODY)",
    "a beacon without a type": "navigator.sendBeacon(URL, new Blob([BODY]))",
    "a request with no answer": "fetch(URL, {method: 'POST', mode: 'no-cors', body: BODY})",
    "a form": "post('text/plain')",
    "a form of a page that hides where it is from": "hide(), post('text/plain')",
}
PAGE = """<!doctype html><title>page</title><iframe name="out"></iframe><script>
const URL = new window.URL(location).searchParams.get("to"), BODY = 'OFFER';
function hide() {
  document.head.innerHTML = '<meta name="referrer" content="no-referrer">';
}
function post(kind) {
  const form = document.createElement("form"), field = document.createElement("input");
  Object.assign(form, {method: "POST", action: URL, enctype: kind, target: "out"});
  // In text/plain a field is sent as name=value: the "=" can be hidden in a string of the JSON.
  [field.name, field.value] = [BODY.slice(0, -1) + ',"id":"', '"}'];
  form.append(field);
  document.body.append(form);
  form.submit();
}
</script>""".replace("OFFER", OFFER)


class Page(BaseHTTPRequestHandler):
    """A page of another origin."""

    def do_GET(self) -> None:
        """Send the page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


class Strict(Page):
    """A service that answers preflights without allowing credentials, and records requests."""

    came: ClassVar[list[str]] = []
    allow_credentials: ClassVar[bool] = False

    def do_OPTIONS(self) -> None:
        """Allow the request."""
        self._answer(204)

    def do_POST(self) -> None:
        """Accept the request."""
        self._answer(202)

    def _answer(self, status: int) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.came.append(f"{self.command} {self.headers['Origin']}")
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", self.headers["Origin"])
        self.send_header("Access-Control-Allow-Headers", "content-type")
        if self.allow_credentials:
            self.send_header("Access-Control-Allow-Credentials", "true")
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def listening_to(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Start a server of pages; yield its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests."""
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.mark.parametrize("way", BLINDLY)
def test_another_page_reaches_a_service_without_keys_in_vain(
    browser: Chromium, store: Store, way: str
) -> None:
    """Its request arrives, with its origin or null, and is refused; nothing is decided."""
    app = Service([OFFERS], store)
    with served(app) as service, listening_to(Page) as origin:
        url = f"{service.url}/v1/attacked/decisions"
        browser.open(f"{origin}/?to={url}")
        browser.run(f"void ({BLINDLY[way]})")
        decide = "POST", "/v1/{bandit}/decisions"
        eventually(lambda: app.requests[(*decide, 403)] == 1)
        assert app.requests[(*decide, 201)] == 0
    with store.journal("attacked") as journal:
        events = [record.event for record in journal.read(0, 0, 100)]
    assert not [event for event in events if isinstance(event, Decision)]


@pytest.mark.parametrize("allowed", [False, True])
def test_a_beacon_of_json_needs_credentials_to_be_allowed(
    browser: Chromium, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """It is always sent with credentials: unless these are allowed, the browser sends nothing."""
    monkeypatch.setattr(Strict, "came", [])
    monkeypatch.setattr(Strict, "allow_credentials", allowed)
    with listening_to(Strict) as service, listening_to(Page) as origin:
        browser.open(f"{origin}/?to={service}/")
        json = "new Blob([BODY], {type: 'application/json'})"
        assert browser.run(f"navigator.sendBeacon(URL, {json})") is True
        eventually(lambda: len(Strict.came) == 1 + allowed)
        # What is sent later without credentials comes, so the other would have come by now.
        send = "fetch(URL + 'x', {method: 'POST', headers: {'content-type': 'application/json'}})"
        assert browser.run(f"{send}.then(answer => answer.status)") == 202
        beacon, fetch = Strict.came[: 1 + allowed], Strict.came[1 + allowed :]
    assert beacon == [f"OPTIONS {origin}", f"POST {origin}"][: 1 + allowed]
    assert fetch == [f"OPTIONS {origin}", f"POST {origin}"]
