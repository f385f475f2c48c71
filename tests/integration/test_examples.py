"""The programs in `examples/`, run as their users run them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from belated import Bernoulli, DefaultAfter, DelayedUCB, PerArm
from belated.client import Client
from belated.journals import open_journal
from belated.service import Definition, Service
from tests.integration.chromium import Chromium
from tests.integration.processes import Process, later
from tests.integration.serving import Serving
from tests.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def running(*command: str, **environment: str) -> Iterator[None]:
    """Start a program, and end it afterwards."""
    process = subprocess.Popen([sys.executable, *command], env=os.environ | environment)
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


class Shop:
    """The shop of `examples/browser`, and its service.

    Attributes:
        origin: the origin of its pages.
        reader: a client with a key for reading decisions.
    """

    def __init__(self, service: Process, port: int, key: str) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.service = f"http://127.0.0.1:{service.heard('serving')['port']}"
        self.reader = Client(self.service, bandit="banners", key=key)
        self._headers = {"authorization": f"Bearer {key}"}

    def answered(self, status: int) -> bool:
        """Return whether the service answered a browser's request with this status."""
        metrics = httpx.get(f"{self.service}/metrics", headers=self._headers).text
        return (
            f'belated_http_requests_total{{method="other",route="other",status="{status}"}}'
            in metrics
        )


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """The shop and its service, started as the docstring of shop.py says."""
    port = free_port()
    text = (EXAMPLES / "browser" / "belated.toml").read_text(encoding="utf-8")
    text = text.replace(":///", f":///{tmp_path}/").replace(":8000", f":{port}")
    config = tmp_path / "belated.toml"
    config.write_text(text, encoding="utf-8")

    def key(name: str, scope: str) -> str:
        command = [sys.executable, "-m", "belated", "keys", "create", name, "--bandit", "*"]
        result = subprocess.run(
            [*command, "--scope", scope], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return result.stdout.strip()

    keys = key("shop", "decide"), key("operator", "read")
    secret = "k1:" + "A" * 43 + "="
    service = Process(
        tmp_path / "log", "serve", str(config), "--port", "0", BELATED_TOKEN_KEYS=secret
    )
    try:
        site = Shop(service, port, keys[1])
        program = str(EXAMPLES / "browser" / "shop.py")
        with running(program, site.service, str(port), SHOP_KEY=keys[0]), site.reader:
            later(lambda: _answers(f"{site.origin}/thanks"))
            yield site
    finally:
        service.kill()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@contextmanager
def web_shop(module: str, **environment: str) -> Iterator[httpx.Client]:
    """One of the web applications, behind uvicorn."""
    pytest.importorskip("fastapi")
    port = free_port()
    command = ["-m", "uvicorn", f"{module}:app", "--app-dir", str(EXAMPLES), "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(*command, **environment), httpx.Client(base_url=url) as http:
        later(lambda: _answers(f"{url}/openapi.json"))
        yield http


def shown(http: httpx.Client) -> tuple[str | None, str]:
    """Return the id and the banner of a page."""
    answer = http.get("/banner", params={"returning": True})
    assert answer.status_code == 200, answer.text
    banner = answer.json()
    assert banner["action"] in ("books", "music", "toys")
    return banner["id"], banner["action"]


def test_a_shop_that_decides_itself(tmp_path: Path) -> None:
    """Its decisions and rewards are in its journal."""
    address = f"sqlite:///{tmp_path}/shop.db"
    with web_shop("fastapi_sync", JOURNAL=address) as http:
        with ThreadPoolExecutor(8) as visitors:
            pages = list(visitors.map(lambda _: shown(http), range(40)))
        assert len({id for id, _ in pages}) == 40
        id = pages[0][0]
        receipts = [http.post(f"/clicks/{id}").json() for _ in range(2)]
        assert receipts == [{"id": id, "status": "rewarded"}, {"id": id, "status": "duplicate"}]
    with open_journal(address) as journal:
        events = [type(record.event).__name__ for record in journal.read(0, 0, 100)]
    assert (events.count("Decision"), events.count("Reward")) == (40, 1)


def test_a_shop_that_asks_a_service(tmp_path: Path) -> None:
    """It decides and reports there; without the service, its pages still have a banner."""
    features = PerArm(["books", "music", "toys"], context=["returning"])
    banners = Definition(
        "banners", DelayedUCB(6, Bernoulli()), DefaultAfter(timedelta(hours=1)), features
    )
    service = Serving()
    service.start(Service([banners], f"sqlite:///{tmp_path}/belated.db"))
    try:
        with web_shop("fastapi_async", DECISIONS_URL=service.url) as http:
            with ThreadPoolExecutor(8) as visitors:
                pages = list(visitors.map(lambda _: shown(http), range(40)))
            assert len({id for id, _ in pages}) == 40
            id = pages[0][0]
            for _ in range(2):
                assert http.post(f"/clicks/{id}").json() == {"id": id, "status": "accepted"}
            with Client(service.url, bandit="banners") as client:
                assert client.entry(str(id)).value == 1.0
            service.stop()
            assert shown(http) == (None, "books")
            assert http.post(f"/clicks/{id}").status_code == 503
    finally:
        service.stop()


def test_shop_with_the_service_mounted(tmp_path: Path) -> None:
    """A visitor keeps the offer; a purchase that is reported twice counts once."""
    folder = shutil.copytree(EXAMPLES / "fastapi_shop", tmp_path / "shop")
    port = free_port()
    command = ["-m", "uvicorn", "shop:app", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    visitor = {"visitor": "ann", "returning": "1", "basket": "0.4"}
    with (
        contextlib.chdir(folder),
        running(*command),
        httpx.Client(base_url=url) as http,
        Client(f"{url}/bandits", bandit="offers") as client,
    ):
        later(lambda: _answers(f"{url}/bandits/readyz"))
        offers = {http.get("/offer", params=visitor).json()["offer"] for _ in range(3)}
        assert len(offers) == 1
        for _ in range(2):
            response = http.post("/payments", json={"visitor": "ann", "order": "order-1"})
            assert response.json() == {"status": "accepted"}
        later(lambda: (client.state().observations, client.state().pending) == (1, 0))
        subprocess.run([sys.executable, "visitors.py", url, "40"], check=True)
        later(lambda: sum((client.state().observations, client.state().pending)) == 41)
        assert client.state().observations > 1
        assert http.get("/bandits/", follow_redirects=True).url.path == "/bandits/console"


def test_router_of_prompts(tmp_path: Path) -> None:
    """It earns more than always using one model, and almost as much as the best choices."""
    command = [sys.executable, str(EXAMPLES / "llm_router" / "router.py")]
    output = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert output.returncode == 0, output.stderr
    values = {
        name.strip(): float(value)
        for name, value in re.findall(r"^  (.+?)\s+(\d\.\d\d)$", output.stdout, re.MULTILINE)
    }
    assert len(values) == 5
    best = values.pop("the best for each kind")
    router = values.pop("the router")
    assert max(values.values()) + 0.03 < router <= best
    page = (EXAMPLES.parent / "docs/tutorial/llm-router.txt").read_text(encoding="utf-8")
    assert output.stdout.splitlines()[7:12] == page.splitlines()[7:12]
    assert (tmp_path / "router.html").stat().st_size > 100_000


def test_a_click_is_reported_from_another_origin(shop: Shop, tmp_path: Path) -> None:
    """As a beacon, which is delivered although the click leads to another page."""
    with Chromium(tmp_path / "profile") as browser:
        browser.open(shop.origin)
        id = browser.run("reward.url").split("/")[-2]
        assert shop.reader.entry(id).state == "pending"
        browser.run("document.getElementById('banner').click()")
        later(lambda: shop.reader.entry(id).state == "rewarded")
        assert shop.reader.entry(id).value == 1.0
        assert shop.answered(204)

        # The same page under an origin that is not listed: the browser asks, and sends nothing.
        assert not shop.answered(403)
        browser.open(shop.origin.replace("127.0.0.1", "localhost"))
        id = browser.run("reward.url").split("/")[-2]
        browser.run("document.getElementById('banner').click()")
        later(lambda: shop.answered(403))
        assert shop.reader.entry(id).state == "pending"
