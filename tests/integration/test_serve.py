"""The service as operators run it: real processes, stores and signals."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest

from belated.journals import Store, open_store
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import ROWS, Process, later
from tests.ports import free_port

BODY = json.dumps({"rows": ROWS})
JSON = {"Content-Type": "application/json"}

#: Seconds for which a learner that was killed is missed, and more that a busy machine may need.
LEASE, SLACK = 5.0, 5.0

#: Starts a command with the configuration.
Start = Callable[..., Process]
_databases = count()


@pytest.fixture
def empty_database(postgres: PostgresServer) -> str:
    """A separate, empty database."""
    import psycopg

    name = f"serve{next(_databases)}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{postgres.dsn.rpartition('/')[0]}/{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a separate, empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/belated.db"
    found: str = request.getfixturevalue("empty_database")
    return found


@pytest.fixture
def store(address: str) -> Store:
    """The same store."""
    return open_store(address)


@pytest.fixture
def start(address: str, tmp_path: Path) -> Iterator[Start]:
    """Start commands, and end those that are still running."""
    processes: list[Process] = []

    def begin(command: str, *options: str, learn: bool = True, server: str = "") -> Process:
        file = tmp_path / f"{len(processes)}.toml"
        text = f"""
            [store]
            address_env = "OFFERS_STORE"
            [server]
            port = 0
            learn = {str(learn).lower()}
            lease_ttl = "{LEASE:.0f}s"
            {server}
            [bandits.offers]
            policy = "DelayedUCB(dim=2, family=Bernoulli())"
            rewards = "Explicit(window='7d')"
            retention = "30d"
            partitions = 4
        """
        file.write_text(text, encoding="utf-8")
        log = tmp_path / f"log {len(processes)}"
        process = Process(log, command, str(file), *options, OFFERS_STORE=address)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()


def test_from_nothing_to_a_model_that_has_learned(start: Start, store: Store) -> None:
    """One process decides and learns; when stopped it exits with 0, and another continues."""
    service = start("serve", "--create-tables", "--log-level", "debug")
    first = service.decide(id="order-1", actions=["blue", "red"])
    assert first == "order-1"
    service.reward(first)
    assert service.ask("GET", "/v1/offers/decisions/order-1?order-1")[0] == 200
    assert service.ask("PUT", "/v1/offers/decisions/order-1/reward", {"order-1": 1})[0] == 422
    later(lambda: service.state()["version"] == 3)
    state = service.state()
    assert (state["bandit"], state["observations"], state["pending"]) == ("offers", 1, 0)
    assert service.ask("GET", "/readyz")[0] == 200
    assert service.heard("this learner leads")["bandit"] == "offers"
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    assert service.said("stopped") is not None
    assert "order-1" not in service.log  # it says all that it can, and nothing of what was sent

    again = start("serve")  # on the tables and with the model that are there
    assert again.state()["observations"] == 1
    again.reward(again.decide(), 0.0)
    later(lambda: again.state()["observations"] == 2)
    assert again.decide(id="order-1", actions=["blue", "red"]) == first


def test_told_to_stop_it_answers_what_is_under_way(start: Start, store: Store) -> None:
    """Everything acknowledged is in the journal, and every request gets a response."""
    service = start("serve", "--create-tables")
    service.heard("this learner leads")
    taken: list[str] = []
    cut: list[Exception] = []

    def go_on() -> None:
        connection = HTTPConnection("127.0.0.1", service.heard("serving")["port"], timeout=10)
        while True:
            try:
                connection.connect()
            except OSError:
                return  # it takes no more
            try:
                for _ in range(20):
                    connection.request("POST", "/v1/offers/decisions", BODY, JSON)
                    answer = connection.getresponse()
                    found = json.loads(answer.read())
                    assert answer.status == 201, found
                    taken.append(found["id"])
                    if answer.will_close:
                        break
            except (OSError, HTTPException) as error:
                cut.append(error)
            finally:
                connection.close()

    callers = [threading.Thread(target=go_on) for _ in range(4)]
    for caller in callers:
        caller.start()
    later(lambda: len(taken) > 100)
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    for caller in callers:
        caller.join(20)
        assert not caller.is_alive()
    assert not cut
    journal = store.journal("offers")
    assert journal.decisions(taken).keys() == set(taken)
    journal.close()


def test_a_balancer_has_time_to_send_requests_elsewhere(start: Start, store: Store) -> None:
    """While draining it is not ready, but responds; no request is lost on any connection."""
    service = start("serve", "--create-tables", server='drain = "2s"')
    service.heard("this learner leads")
    port = service.heard("serving")["port"]
    taken: list[str] = []
    failed: list[object] = []
    out = threading.Event()  # whether the balancer has taken it out

    def balance() -> None:
        while service.ask("GET", "/readyz")[0] == 200:
            time.sleep(0.05)
        out.set()

    def go_on() -> None:
        while not out.is_set():
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                while not out.is_set():
                    connection.request("POST", "/v1/offers/decisions", BODY, JSON)
                    answer = connection.getresponse()
                    found = json.loads(answer.read())
                    if answer.status != 201:
                        failed.append(found)
                        return
                    taken.append(found["id"])
                    if answer.will_close:
                        break
            except (OSError, HTTPException) as error:
                failed.append(error)
                return
            finally:
                connection.close()

    later(lambda: service.ask("GET", "/readyz")[0] == 200)
    threads = [threading.Thread(target=one) for one in (balance, *[go_on] * 6)]
    for thread in threads:
        thread.start()
    later(lambda: len(taken) > 200)
    told = time.monotonic()
    service.send(signal.SIGTERM)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert service.decide()  # whoever comes all the same is answered
    assert service.ended() == 0
    assert 2 <= time.monotonic() - told < 12
    assert not failed
    journal = store.journal("offers")
    assert journal.decisions(taken).keys() == set(taken)
    journal.close()


def test_learning_can_be_elsewhere(start: Start) -> None:
    """One process decides, another learns; either can stop without the other."""
    service = start("serve", "--create-tables", learn=False)
    id = service.decide()
    service.reward(id)
    state = service.state()
    assert (state["version"], state["model_age_seconds"]) == (0, None)
    assert service.ask("GET", "/readyz")[0] == 503
    port = free_port()
    learner = start("learn", "--metrics", str(port), learn=False)
    later(lambda: service.state()["version"] == 3)
    assert service.ask("GET", "/readyz")[0] == 200
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert 'belated_learner_is_leader{bandit="offers"} 1.0' in answer.read().decode()
    learner.send(signal.SIGTERM)
    assert learner.ended() == 0
    service.decide()
    service.send(signal.SIGINT)
    assert service.ended() == 0


def test_another_learner_takes_over_when_the_first_is_killed(start: Start, store: Store) -> None:
    """Within the lease; meanwhile decisions continue, and none of them is lost."""
    service = start("serve", "--create-tables", learn=False)
    first = start("learn", "--create-tables", learn=False)  # both at once: one makes them
    leader = first.heard("this learner leads")
    # Before another stands by: the first record loads the kernels, which can outlast the lease.
    service.reward(service.decide())
    later(lambda: service.state()["version"] == 3)
    second = start("learn", learn=False)
    assert second.heard("this learner stands by")["leader"] == leader["holder"]

    coordination = store.coordination("offers")

    def is_taken_over() -> bool:
        now = coordination.leader()
        return now is not None and now.holder != leader["holder"]

    first.kill()
    killed = time.monotonic()
    service.reward(service.decide())
    assert not is_taken_over()
    later(is_taken_over)
    assert time.monotonic() - killed < LEASE + SLACK
    coordination.close()
    assert second.heard("this learner leads")["epoch"] == leader["epoch"] + 1
    later(lambda: service.state()["version"] == 5)
    assert service.state()["observations"] == 2
    second.send(signal.SIGTERM)
    assert second.ended() == 0


def test_what_cannot_start_says_why_in_one_line(start: Start, store: Store) -> None:
    """Missing tables; a reachable address without a setting for keys; a port in use."""
    if store.name == "postgresql":
        tables = start("serve")
        assert tables.ended() == 2
        (line,) = tables.log.splitlines()
        assert "has no tables for journals: run `belated schema" in line
    outside = start("serve", "--create-tables", "--host", "0.0.0.0")
    assert outside.ended() == 2
    (line,) = outside.log.splitlines()
    assert "is reachable from other machines: set auth =" in line
    service = start("serve", "--create-tables")
    port = str(service.heard("serving")["port"])
    taken = start("serve", "--port", port)
    assert taken.ended() == 2
    (line,) = taken.log.splitlines()
    assert f"port {port} on 127.0.0.1 is in use: choose another with --port" in line
