"""The console in a real browser, against a real service with keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from belated import Bernoulli, DefaultAfter, DelayedUCB, Holdout
from belated.client import Client
from belated.core.events import ModeChanged
from belated.journals import Store, open_store
from belated.service import Definition, Service
from belated.service.console.page import console_page
from tests.integration.chromium import Chromium
from tests.integration.keyrings import make
from tests.integration.serving import Serving, served
from tests.waiting import eventually

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
# Answers that overtake each other: what is read takes half a second more than what is written.
SLOW_TO_READ = """window.at_once = fetch; window.fetch = async (path, options) => {
    if (!options.method) await new Promise((done) => setTimeout(done, 500));
    return at_once(path, options);
}; 0"""
OFFERS = Definition(
    "offers",
    DelayedUCB(2, Bernoulli(), floor=0.2),
    DefaultAfter("1h"),
    holdout=Holdout(0.2, "uniform"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in a separate file."""
    return open_store(f"sqlite:///{tmp_path_factory.mktemp('console') / 'offers.db'}")


@pytest.fixture(scope="module")
def serving(store: Store) -> Iterator[Serving]:
    """A service that requires keys, with decisions among actions with a hostile name."""
    with served(Service([OFFERS], store, learn=True, auth="keys")) as service:
        key = make(store, "decide", "reward", "read")
        eventually(lambda: _status(service, key.header) == 200)
        with Client(service.url, bandit="offers", key=key.key) as client:
            for n in range(60):
                client.decide(rows=[[1.0, 0.0], [0.0, 1.0]], actions=[HOSTILE, "plain"], id=f"d{n}")
                if n % 2 == 0:
                    client.observe(f"d{n}", 1.0)
        yield service


def _status(serving: Serving, headers: dict[str, str]) -> int:
    return httpx.get(f"{serving.url}/v1/offers", headers=headers).status_code


class Page:
    """The console as a user sees it."""

    def __init__(self, browser: Chromium, url: str) -> None:
        self.browser = browser
        browser.open(f"{url}/")
        eventually(lambda: browser.run("document.body.dataset.console") == "ready")

    def sign_in(self, key: str) -> None:
        """Enter a key."""
        self.browser.run("sessionStorage.clear()")
        self.reload()
        self.fill(key=key)
        self.submit("who")

    def reload(self) -> None:
        """Reload the page."""
        self.browser.open(str(self.browser.run("location.href")))
        eventually(lambda: self.browser.run("document.body.dataset.console") == "ready")

    def is_hidden(self, id: str) -> bool:
        """Return whether an element is hidden."""
        return bool(self.browser.run(f"document.getElementById({id!r}).offsetParent === null"))

    def fill(self, **values: str) -> None:
        """Fill in fields."""
        for id, value in values.items():
            self.browser.run(f"document.getElementById({id!r}).value = {json.dumps(value)}")

    def submit(self, form: str) -> None:
        """Press the button of a form."""
        self.browser.run(f"document.getElementById({form!r}).requestSubmit()")

    def text(self, id: str) -> str:
        """Return the text of an element."""
        return str(self.browser.run(f"document.getElementById({id!r}).textContent"))

    def says(self, id: str, part: str) -> None:
        """Wait until an element shows this text."""
        eventually(lambda: part in self.text(id), seconds=60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests."""
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


def test_all_pages(browser: Chromium, serving: Serving, store: Store) -> None:
    """The list, the report with its charts, a decision's history; no action name is executed."""
    key = make(store, "read")
    eventually(lambda: _status(serving, key.header) == 200)
    page = Page(browser, serving.url)
    page.sign_in(key.key)
    page.says("list", "offers")
    page.says("title", "offers")
    page.says("report", "Does it earn?")
    eventually(
        lambda: browser.run("document.querySelectorAll('.chart svg').length") >= 5, seconds=60
    )
    page.fill(id="d0")
    page.submit("find")
    page.says("story", '"rewarded"')
    assert json.dumps(HOSTILE) in page.text("story")
    page.fill(id="no such decision")
    page.submit("find")
    page.says("story", "unknown")
    assert HOSTILE in page.text("report")
    assert browser.run("document.title") == "belated"
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.cookie + localStorage.length") == "0"
    page.reload()  # the key and the bandit are kept
    page.says("title", "offers")
    browser.run("document.getElementById('leave').click()")
    page.says("said", "requires an API key")
    assert browser.run("sessionStorage.length") == 0
    assert page.is_hidden("bandit")


def test_a_mode_is_changed_with_a_reason(browser: Chromium, serving: Serving, store: Store) -> None:
    """By a key with the scope; the journal has the reason and the name of the key."""
    key, reader = make(store, "read", "admin"), make(store, "read")
    eventually(lambda: {_status(serving, api_key.header) for api_key in (key, reader)} == {200})
    page = Page(browser, serving.url)
    page.sign_in(reader.key)
    page.says("title", "offers")
    page.fill(to="freeze", reason="not allowed")
    page.submit("mode")
    page.says("said", 'does not grant scope "admin"')
    page.sign_in(key.key)
    page.says("title", "offers")
    browser.run(SLOW_TO_READ)
    page.fill(to="freeze", reason="prices are wrong")
    page.submit("mode")
    page.says("state", "freeze")
    page.says("said", "The mode of offers is now freeze: prices are wrong")
    with store.journal("offers") as journal:
        mode = journal.mode()
    assert isinstance(mode, ModeChanged)
    assert (mode.mode, mode.reason, mode.actor) == ("freeze", "prices are wrong", key.name)


def test_an_action_is_paused_with_a_reason(
    browser: Chromium, serving: Serving, store: Store
) -> None:
    """By a key with the scope; the page shows its state, and the journal has who and why."""
    key, reader = make(store, "read", "admin"), make(store, "read")
    eventually(lambda: {_status(serving, api_key.header) for api_key in (key, reader)} == {200})
    page = Page(browser, serving.url)
    page.sign_in(reader.key)
    page.says("title", "offers")
    page.fill(change="pause", which="blue", because="not allowed")
    page.submit("action")
    page.says("said", 'does not grant scope "admin"')
    page.sign_in(key.key)
    page.says("title", "offers")
    page.fill(change="pause", which="blue", because=HOSTILE)
    page.submit("action")
    page.says("said", "blue is now paused")
    page.says("actions", "blue: paused since 20")
    assert HOSTILE in page.text("actions")
    with store.journal("offers") as journal:
        blue = journal.actions()["blue"]
    assert (blue.change, blue.reason, blue.actor) == ("pause", HOSTILE, key.name)
    page.fill(change="resume", which="blue", because="over")
    page.submit("action")
    page.says("actions", "blue: open since 20")


def test_an_earlier_model_is_chosen(browser: Chromium, serving: Serving, store: Store) -> None:
    """The list and the state show it; the journal has who and why; then the newest one again."""
    key = make(store, "read", "admin")
    eventually(lambda: _status(serving, key.header) == 200)
    page = Page(browser, serving.url)
    page.sign_in(key.key)
    page.says("title", "offers")
    options = "[...document.getElementById('version').options].map((one) => one.value)"
    eventually(lambda: len(browser.run(options)) > 1)
    version = browser.run(options)[1]
    page.fill(version=version, since="prices are wrong")
    page.submit("model")
    page.says("said", f"offers now decides with model {version}: prices are wrong")
    page.says("state", f"an operator chose model {version}")
    page.says("list", f"version {version}")
    with closing(store.session()) as session:
        event = session.chosen_models({"offers": 0})["offers"][1]
    assert (event.version, event.actor) == (int(version), key.name)
    page.fill(version="latest", since="over")
    page.submit("model")
    page.says("list", "latest")
    eventually(lambda: "chose" not in page.text("state"))


def test_without_keys_everything_is_shown(browser: Chromium, tmp_path: Path) -> None:
    """At once, and from the root; there are no forms for changes."""
    with served(Service([OFFERS], open_store(f"sqlite:///{tmp_path / 'open.db'}"))) as serving:
        page = Page(browser, serving.url)
        page.says("title", "offers")
        page.says("said", "requires no key")
        assert [page.is_hidden(form) for form in ("mode", "model", "action", "find")] == [
            True, True, True, False,
        ]  # fmt: skip
        assert page.is_hidden("key")


def test_a_wrong_key_shows_nothing(browser: Chromium, serving: Serving) -> None:
    """Only the error is shown."""
    page = Page(browser, serving.url)
    page.sign_in("blt_wrong")
    page.says("said", "invalid API key")
    assert page.text("list") == page.text("report") == ""
    assert browser.run("document.getElementById('bandit').hidden") is True


def test_a_page_of_the_same_name_needs_a_key(
    serving: Serving, store: Store, tmp_path: Path
) -> None:
    """A name that resolves to this service has the right Host; without keys it must not switch."""
    body, name = {"mode": "off"}, "evil.example"
    headers = {"origin": f"http://{name}", "host": name}
    answer = httpx.put(f"{serving.url}/v1/offers/mode", json=body, headers=headers)
    assert answer.status_code in (401, 403)
    open_to_all = open_store(f"sqlite:///{tmp_path / 'open.db'}")
    with served(Service([OFFERS], open_to_all)) as service:
        for extra in ({}, {"authorization": "Bearer anything"}):
            response = httpx.put(
                f"{service.url}/v1/offers/mode", json=body, headers=headers | extra
            )
            assert response.status_code == 403


def test_a_store_in_memory_has_no_report() -> None:
    """Other processes cannot read it; everything else works."""
    with served(Service([OFFERS], open_store("memory:"))) as serving:
        report = httpx.get(f"{serving.url}/v1/offers/report").json()
        assert report["status"] == "unavailable"
        assert "in memory" in report["why"]
        assert httpx.get(f"{serving.url}/v1").json()["bandits"][0]["bandit"] == "offers"


def test_the_page_asks_only_its_service() -> None:
    """By its content security policy; nothing is evaluated."""
    page = console_page().decode()
    policy = page[page.index("Content-Security-Policy") : page.index("<title>")]
    assert "connect-src &#x27;self&#x27;" in policy
    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe-eval" not in policy
