"""No request within the limits takes much memory, or keeps others waiting."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from asyncio import get_running_loop
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from belated import Bernoulli, DefaultAfter, DelayedUCB, Hashed
from belated.service import Definition, Service
from belated.service.http import routes
from tests.integration.processes import Process
from tests.integration.serving import served

CONFIG = """
[store]
address = "sqlite:///{folder}/belated.db"
[server]
port = 0
learn = false
[bandits.hashed]
features = "Hashed(64)"
rewards = "DefaultAfter('7d')"
[bandits.shared]
features = "Shared(action=['price'])"
rewards = "DefaultAfter('7d')"
[bandits.listed]
features = "Shared(action=1000)"
rewards = "DefaultAfter('7d')"
[bandits.wide]
features = "PerArm([{arms}], context=9)"
policy = "DelayedUCB(dim=500, family=Bernoulli())"
rewards = "DefaultAfter('7d')"
"""
ARMS = [f"a{n}" for n in range(50)]
MB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


class Measured:
    """A service, and what its requests take of memory and CPU time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._proc = Path("/proc", str(process.pid))

    def memory(self, which: str) -> int:
        """Return ``VmRSS``, resident bytes now, or ``VmHWM``, the maximum since :meth:`ask`."""
        match = re.search(rf"{which}:\s+(\d+)", (self._proc / "status").read_text())
        assert match is not None
        return int(match[1]) << 10

    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, bandit: str, body: Any, batch: bool = False) -> tuple[int, str, int, float]:
        """The status and detail of an answer; by how much memory grew; and the CPU time."""
        (self._proc / "clear_refs").write_text("5")  # the peak starts at what is used now
        memory, cpu = self.memory("VmRSS"), self.cpu()
        path = f"/v1/{bandit}/decisions" + ("/batch" if batch else "")
        status, answer = self.process.ask("POST", path, body, timeout=120)
        return status, answer.get("detail", ""), self.memory("VmHWM") - memory, self.cpu() - cpu


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """A service that has answered once per bandit, with nothing in the background."""
    folder = tmp_path_factory.mktemp("sizes")
    arms = ",".join(f"'{arm}'" for arm in ARMS)
    (folder / "belated.toml").write_text(CONFIG.format(folder=folder, arms=arms))
    (folder / "numba.py").write_text("raise ImportError('not installed')")
    process = Process(folder / "log", "serve", str(folder / "belated.toml"), PYTHONPATH=str(folder))
    try:
        process.heard("serving")
        for bandit, body in (
            ("hashed", {"context": {"x": 1}, "actions": ["a", "b"]}),
            ("shared", {"actions": {"a": {"price": 1}, "b": {"price": 2}}}),
            ("wide", {"context": [1.0] * 9, "actions": ARMS}),
        ):
            status, answer = process.ask("POST", f"/v1/{bandit}/decisions", body)
            assert status == 201, answer
        yield Measured(process)
    finally:
        process.kill()


def crossed(count: int) -> dict[str, Any]:
    """A context and an action of so many fields each."""
    fields = {f"c{n}": 1 for n in range(count)}
    return {"context": fields, "actions": {"a": {f"d{n}": 1 for n in range(count)}}}


def priced(price: Any) -> dict[str, Any]:
    """A thousand actions, one of them with this price."""
    return {"actions": {f"a{n}": {"price": price if n == 5 else 1} for n in range(1_000)}}


TEXT = "x" * 400_000


@pytest.mark.parametrize(
    ("bandit", "body", "status", "named"),
    [
        ("hashed", crossed(999), 201, ""),
        ("hashed", crossed(8_000), 422, "`context` has 8,000 fields, and `actions` has 1 actions"),
        ("hashed", crossed(40_000), 422, "at most 20,000 fields in total"),
        ("hashed", {"context": {f"n{n}": 1 for n in range(19_999)}, "actions": ["a"]}, 201, ""),
        ("hashed", {"context": {"x": "x" * 1_000_000}, "actions": ["a"]}, 422, "got 1,000,000"),
        (
            "hashed",
            {"context": {"x" * 900_000: 1}, "actions": ["a"]},
            422,
            "a name of the context",
        ),
        ("shared", priced(TEXT), 422, "'price' of action 'a5'"),
        ("listed", {"actions": {"a": [1] * 999 + [TEXT]}}, 422, "number 999 of action 'a'"),
        ("listed", {"actions": {"a": TEXT, **{f"a{n}": 1 for n in range(999)}}}, 422, "action 'a'"),
        ("listed", {"actions": {f"a{n}": [[TEXT[n:1_000]]] for n in range(900)}}, 422, "'a0'"),
    ],
)
def test_sizes_that_multiply_are_bounded(
    service: Measured, bandit: str, body: Any, status: int, named: str
) -> None:
    """At most 64 MB and a quarter of a second, and an error names the field and the limit."""
    actual_status, detail, memory, cpu = service.ask(bandit, body)
    assert actual_status == status, detail
    assert named in detail
    assert memory <= 64 * MB
    assert cpu <= 0.25


def test_texts_that_are_sent_are_not_kept(service: Measured) -> None:
    """Neither refused ones of a megabyte, nor accepted ones of 10,000 characters."""
    memory_before = service.memory("VmRSS")
    for n in range(120):
        body = {"context": {"x": f"{n}" + "y" * 1_000_000}, "actions": ["a"]}
        assert service.ask("hashed", body)[0] in (201, 422)
    for n in range(120):
        texts = {f"t{i}": f"{n}-{i}" + "z" * 9_000 for i in range(100)}
        assert service.ask("hashed", {"context": texts, "actions": ["a"]})[0] == 201
    assert service.memory("VmRSS") - memory_before <= 64 * MB


def test_a_large_batch_lets_others_in(service: Measured) -> None:
    """A thousand requests with 25,000 numbers each: others are answered all the while."""
    answers: list[tuple[int, str, int, float]] = []
    batch = {"requests": [{"context": [1.0] * 9, "actions": ARMS}] * 1_000}
    sender = threading.Thread(target=lambda: answers.append(service.ask("wide", batch, batch=True)))
    sender.start()
    small_requests = 0
    while sender.is_alive():
        assert service.process.ask("GET", "/livez")[0] == 200
        small_requests += not answers
    ((status, detail, memory, _),) = answers
    assert status == 201, detail
    assert memory <= 64 * MB
    assert small_requests >= 20


def test_a_retried_batch_lets_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are made again to compare them with those of the retry are made in short turns."""
    turns = Counter[int]()
    encode = Hashed.rows

    def end_turn() -> None:
        turns[len(turns)] = 0

    def slow_rows(self: Hashed, *given: Any) -> Any:
        time.sleep(0.02)
        get_running_loop().call_soon(end_turn)
        turns[len(turns) - 1] += 1
        return encode(self, *given)

    features = Hashed(8)
    policy = DelayedUCB(features.dim, Bernoulli())
    definition = Definition("offers", policy, DefaultAfter("7d"), features=features)
    body = {"requests": [{"context": {"x": n}, "actions": ["a"], "id": f"{n}"} for n in range(20)]}
    with (
        served(Service([definition], "memory:")) as serving,
        httpx.Client(base_url=serving.url, timeout=60) as http,
    ):
        response = http.post("/v1/offers/decisions/batch", json=body)
        assert response.status_code == 201, response.text
        monkeypatch.setattr(routes, "HELD_BYTES", 0)
        monkeypatch.setattr(Hashed, "rows", slow_rows)
        turns[0] = 0
        retry = http.post("/v1/offers/decisions/batch", json=body)
    assert retry.json() == response.json()
    assert sum(turns.values()) == 40
    assert max(turns.values()) <= 2
