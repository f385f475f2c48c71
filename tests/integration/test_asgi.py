"""The service as an ASGI application, where it differs from the service's own server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from belated.exceptions import InvalidInput
from belated.service import asgi_app
from tests.ports import free_port
from tests.waiting import eventually

CONFIG = """\
{server}
[store]
address = "sqlite:///decisions.db"
[bandits.offers]
features = "PerArm(['blue', 'red'], context=['returning'])"
rewards = "ConversionsOnly('7d')"
"""
DECISION = {"context": {"returning": 1}, "actions": ["blue", "red"]}
MODULE = """\
from fastapi import FastAPI
from belated.service import asgi_app

decisions = asgi_app("belated.toml")
app = FastAPI(lifespan=decisions.lifespan)
app.mount("/bandits", decisions)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a configuration without API keys."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "belated.toml"
    path.write_text(CONFIG.format(server='[server]\nauth = "off"'))
    return path


def test_it_must_say_whether_keys_are_required(config: Path) -> None:
    """An ASGI application cannot know whether it is reachable from other machines."""
    config.write_text(CONFIG.format(server=""))
    with pytest.raises(InvalidInput, match='set auth = "keys" under'):
        asgi_app(config)


def test_an_application_whose_lifespan_was_not_passed(config: Path) -> None:
    """Frameworks do not run the lifespan of mounted applications."""
    shop = FastAPI()
    shop.mount("/bandits", asgi_app(config))

    async def request() -> None:
        transport = httpx.ASGITransport(shop)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            await http.get("/bandits/readyz")

    with pytest.raises(RuntimeError, match="the service was not started"):
        asyncio.run(request())


@pytest.mark.parametrize("server", ["uvicorn", "granian"])
def test_servers(config: Path, server: str) -> None:
    """Both servers decide and learn below a prefix, also from a proxy's view."""
    (config.parent / "shop.py").write_text(MODULE)
    port = free_port()
    arguments = ["--interface", "asgi"] if server == "granian" else []
    command = [sys.executable, "-m", server, *arguments, "--port", str(port), "shop:app"]
    process = subprocess.Popen(command, cwd=config.parent)
    base = f"http://127.0.0.1:{port}/bandits"
    try:
        eventually(lambda: _answers(f"{base}/readyz"), seconds=60)
        decision = httpx.post(f"{base}/v1/offers/decisions", json=DECISION).json()
        reward = httpx.put(f"{base}/v1/offers/decisions/{decision['id']}/reward", json={"value": 1})
        assert reward.status_code == 202
        assert httpx.get(f"{base}/", follow_redirects=True).url.path == "/bandits/console"
        assert httpx.get(f"{base}/v1/nobody").json()["status"] == 404
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_a_body_that_is_too_large_is_refused_before_it_is_read(config: Path) -> None:
    """The body is not buffered beyond its limit."""
    app = asgi_app(config)
    count = 0

    async def receive() -> dict[str, object]:
        nonlocal count
        count += 1
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

    async def request() -> list[dict[str, object]]:
        messages: list[dict[str, object]] = []

        async def send(message: dict[str, object]) -> None:
            messages.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/offers/decisions", "query_string": b"",
            "headers": [(b"host", b"here"), (b"content-type", b"application/json")],
        }  # fmt: skip
        async with app.lifespan():
            await app(scope, receive, send)  # type: ignore[arg-type]
        return messages

    start, _ = asyncio.run(request())
    assert start["status"] == 413
    assert count < 20
