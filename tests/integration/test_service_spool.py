"""The service while its database is unreachable: it continues, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Reward, Void
from belated.journals import SpoolJournal, Store, open_store
from belated.service import Definition, Service
from belated.service.serving.spools import SpoolFolder
from tests.faults.gates import Gate
from tests.faults.service_load import BESIDE_OTHERS, PROMISED
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]


@pytest.fixture(params=["postgresql"])  # there is no way to a file that could be cut
def gate(postgres: PostgresServer) -> Iterator[Gate]:
    """The connection to the database, which can be cut."""
    postgres_gate = Gate(postgres.port)
    yield postgres_gate
    postgres_gate.close()


@pytest.fixture
def through(postgres: PostgresServer, gate: Gate) -> str:
    """The address of the database through the gate."""
    return postgres.dsn.replace(str(postgres.port), str(gate.port))


class World:
    """A service with a spool, and requests to it."""

    def __init__(self, app: Service, http: httpx.Client, bandit: str) -> None:
        self.app, self.http, self.bandit = app, http, bandit
        self.worst = 0.0

    @property
    def served(self) -> Any:
        """The bandit."""
        return self.app.bandits[self.bandit]

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send one request, and record its latency."""
        start = time.monotonic()
        response = self.http.request(method, f"/v1/{self.bandit}{path}", json=body)
        self.worst = max(self.worst, time.monotonic() - start)
        return response

    def decide(self, **offer: object) -> httpx.Response:
        """Request one decision."""
        return self.ask("POST", "/decisions", {"rows": ROWS, **offer})


@pytest.fixture
def world(through: str, bandit: str, tmp_path: Path) -> Iterator[World]:
    """A service that decides and learns."""
    bandit = bandit.replace(" ", "-")
    bandit_definition = Definition(bandit, DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)
    app = Service([bandit_definition], through, learn=True, spools=SpoolFolder(tmp_path))
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        yield World(app, http, bandit)


def test_it_goes_on_and_hands_over_when_the_database_is_back(
    world: World, gate: Gate, dsn: str, full: bool
) -> None:
    """Requests are answered within a second; later all events are in the journal, counted once."""
    id_before = world.decide().json()["id"]
    eventually(lambda: world.served.version >= 1)
    gate.swallow()
    decisions = [world.decide(id=f"mine-{n}", first_attempt=True).json() for n in range(5)]
    decisions += [world.decide().json() for _ in range(20)]
    for id in [id_before, *(decision["id"] for decision in decisions[:10])]:
        assert world.ask("PUT", f"/decisions/{id}/reward", {"value": 1.0}).status_code == 202
    # What was decided here is known here, whoever else is away.
    assert world.decide(id="mine-3").json() == decisions[3]
    new_decision = world.decide(id="before-it-went")
    assert (new_decision.status_code, new_decision.headers["retry-after"]) == (503, "1")
    assert world.ask("GET", "/decisions/mine-3").status_code == 503
    assert world.worst < (PROMISED if full else BESIDE_OTHERS)
    assert world.http.get("/readyz").status_code == 200
    text = world.http.get("/metrics").text
    assert f'belated_journal_unavailable{{bandit="{world.bandit}"}} 1.0' in text
    assert f'belated_spool_events{{bandit="{world.bandit}"}} 36.0' in text
    assert world.served.decider.model.pending >= 25  # the reward of the first is out too
    gate.open()
    eventually(lambda: world.served.spool.queued == 0)
    eventually(lambda: len(world.served.decider.unapplied) == 0, "positions are not known")
    eventually(lambda: world.served.decider.model.n == 11)
    assert world.served.decider.model.pending == 26 - 11
    assert world.decide(id="mine-3").json() == decisions[3]
    with open_store(dsn).journal(world.bandit) as journal:
        events = [record.event for p in range(2) for record in journal.read(p, 0, 1000)]
    ids = [event.id for event in events if isinstance(event, Decision)]
    assert sorted(ids) == sorted([id_before, *(decision["id"] for decision in decisions)])
    assert sum(isinstance(event, Reward) for event in events) == 11


def test_an_erased_subject_leaves_the_spool(world: World, gate: Gate, tmp_path: Path) -> None:
    """Pending events are not erased; after delivery they can be, and no byte is left."""

    def is_spooled() -> bool:
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        return any(b"person-4711" in file.read_bytes() for file in files)

    world.decide()
    gate.swallow()
    ids = [world.decide(subject="person-4711").json()["id"] for _ in range(2)]
    assert is_spooled()
    assert world.ask("DELETE", "/subjects/person-4711").status_code == 503
    gate.open()
    eventually(lambda: world.served.spool.queued == 0)
    assert not is_spooled()
    assert world.ask("DELETE", "/subjects/person-4711").json() == {"decisions": 2}
    assert [world.ask("GET", f"/decisions/{id}").json()["state"] for id in ids] == ["erased"] * 2


def test_full_spool_returns_retry_after(
    through: str, gate: Gate, bandit: str, tmp_path: Path
) -> None:
    """Nothing is stored; once the database is back, requests are accepted again."""
    bandit_definition = Definition(bandit, DelayedUCB(2, Bernoulli()), Explicit())
    app = Service([bandit_definition], through, spools=SpoolFolder(tmp_path, limit=2_000))
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        world = World(app, http, bandit)
        gate.cut()
        answers = [world.decide() for _ in range(40)]
        rejections = [response for response in answers if response.status_code == 503]
        assert 0 < len(rejections) < 40
        assert rejections[0].headers["retry-after"] == "1"
        accepted = len(answers) - len(rejections)
        assert world.served.decider.model.pending == accepted
        gate.open()
        eventually(lambda: world.served.spool.queued == 0)
        eventually(lambda: world.decide().status_code == 201)


def test_what_a_dead_process_left_is_handed_over_by_the_next(
    store: Store, bandit: str, tmp_path: Path
) -> None:
    """Several spools, too; unreadable ones are left alone, and delay nothing."""
    folder, n_left = SpoolFolder(tmp_path), 3
    for number in range(n_left):
        journal = store.journal(bandit)
        spool = SpoolJournal(journal, tmp_path / f"{bandit.replace(' ', '%20')}.{number}.spool")
        spool._forwarder.down = True  # no thread of it may hand over
        spool.append([Void(f"left {number}", 1)])
        spool._forwarder.stop(journal.close)
        spool._file.close()
    (tmp_path / f"{bandit.replace(' ', '%20')}.3.spool").write_bytes(b"something else" * 9)
    bandit_definition = Definition(bandit, DelayedUCB(2, Bernoulli()), Explicit())
    assert list(folder.left(bandit).values()) == [1, 1, 1, "damaged"]
    with served(Service([bandit_definition], store, spools=folder)):
        eventually(lambda: list(folder.left(bandit).values()) == ["damaged"])
    with store.journal(bandit) as journal:
        events = [record.event for record in journal.read(0, 0, 100)]
    assert sorted(event.id for event in events if isinstance(event, Void)) == [
        f"left {number}" for number in range(n_left)
    ]
