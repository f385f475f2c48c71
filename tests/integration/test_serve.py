"""The service as operators run it: real processes, stores and signals."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
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
    database: str = request.getfixturevalue("empty_database")
    return database


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
    decision_id = service.decide(id="order-1", actions=["blue", "red"])
    assert decision_id == "order-1"
    service.reward(decision_id)
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

    service_again = start("serve")  # on the tables and with the model that are there
    assert service_again.state()["observations"] == 1
    service_again.reward(service_again.decide(), 0.0)
    later(lambda: service_again.state()["observations"] == 2)
    assert service_again.decide(id="order-1", actions=["blue", "red"]) == decision_id


def test_sigterm_completes_requests_in_flight(start: Start, store: Store) -> None:
    """Everything acknowledged is in the journal, and every request gets a response."""
    service = start("serve", "--create-tables")
    service.heard("this learner leads")
    accepted: list[str] = []
    errors: list[Exception] = []

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
                    decision = json.loads(answer.read())
                    assert answer.status == 201, decision
                    accepted.append(decision["id"])
                    if answer.will_close:
                        break
            except (OSError, HTTPException) as error:
                errors.append(error)
            finally:
                connection.close()

    callers = [threading.Thread(target=go_on) for _ in range(4)]
    for caller in callers:
        caller.start()
    later(lambda: len(accepted) > 100)
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    for caller in callers:
        caller.join(20)
        assert not caller.is_alive()
    assert not errors
    journal = store.journal("offers")
    assert journal.decisions(accepted).keys() == set(accepted)
    journal.close()


def test_drain_gives_load_balancers_time_to_redirect_requests(start: Start, store: Store) -> None:
    """While draining it is not ready, but responds; no request is lost on any connection."""
    service = start("serve", "--create-tables", server='drain = "2s"')
    service.heard("this learner leads")
    port = service.heard("serving")["port"]
    accepted: list[str] = []
    failures: list[object] = []
    removal = threading.Event()  # whether the balancer has taken it out

    def balance() -> None:
        while service.ask("GET", "/readyz")[0] == 200:
            time.sleep(0.05)
        removal.set()

    def go_on() -> None:
        while not removal.is_set():
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                while not removal.is_set():
                    connection.request("POST", "/v1/offers/decisions", BODY, JSON)
                    answer = connection.getresponse()
                    decision = json.loads(answer.read())
                    if answer.status != 201:
                        failures.append(decision)
                        return
                    accepted.append(decision["id"])
                    if answer.will_close:
                        break
            except (OSError, HTTPException) as error:
                failures.append(error)
                return
            finally:
                connection.close()

    later(lambda: service.ask("GET", "/readyz")[0] == 200)
    threads = [threading.Thread(target=target) for target in (balance, *[go_on] * 6)]
    for thread in threads:
        thread.start()
    later(lambda: len(accepted) > 200)
    signalled_at = time.monotonic()
    service.send(signal.SIGTERM)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert service.decide()  # whoever comes all the same is answered
    assert service.ended() == 0
    assert 2 <= time.monotonic() - signalled_at < 12
    assert not failures
    journal = store.journal("offers")
    assert journal.decisions(accepted).keys() == set(accepted)
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
    first_learner = start("learn", "--create-tables", learn=False)  # both at once: one makes them
    leader = first_learner.heard("this learner leads")
    # Before another stands by: the first record loads the kernels, which can outlast the lease.
    service.reward(service.decide())
    later(lambda: service.state()["version"] == 3)
    second_learner = start("learn", learn=False)
    assert second_learner.heard("this learner is on standby")["leader"] == leader["holder"]

    coordination = store.coordination("offers")

    def is_taken_over() -> bool:
        current = coordination.leader()
        return current is not None and current.holder != leader["holder"]

    first_learner.kill()
    killed_at = time.monotonic()
    service.reward(service.decide())
    assert not is_taken_over()
    later(is_taken_over)
    assert time.monotonic() - killed_at < LEASE + SLACK
    coordination.close()
    assert second_learner.heard("this learner leads")["epoch"] == leader["epoch"] + 1
    later(lambda: service.state()["version"] == 5)
    assert service.state()["observations"] == 2
    second_learner.send(signal.SIGTERM)
    assert second_learner.ended() == 0


def test_what_cannot_start_says_why_in_one_line(start: Start, store: Store) -> None:
    """Missing tables; a reachable address without a setting for keys; a port in use."""
    if store.name == "postgresql":
        tables = start("serve")
        assert tables.ended() == 2
        (line,) = tables.log.splitlines()
        assert "has no tables for journals: run `belated schema" in line
    exposed_service = start("serve", "--create-tables", "--host", "0.0.0.0")
    assert exposed_service.ended() == 2
    (line,) = exposed_service.log.splitlines()
    assert "is reachable from other machines: set auth =" in line
    service = start("serve", "--create-tables")
    port = str(service.heard("serving")["port"])
    second_service = start("serve", "--port", port)
    assert second_service.ended() == 2
    (line,) = second_service.log.splitlines()
    assert f"port {port} on 127.0.0.1 is in use: choose another with --port" in line


on_postgresql = pytest.mark.parametrize("address", ["postgresql"], indirect=True)


class Callers:
    """Threads that request decisions, on new connections after every few requests.

    Attributes:
        taken: Ids of the decisions that were acknowledged.
        cut: Errors of connections that ended without a response.
    """

    def __init__(self, service: Process) -> None:
        self.taken: list[str] = []
        self.cut: list[Exception] = []
        self._port = service.heard("serving")["port"]
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._go_on) for _ in range(8)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for the last responses."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _go_on(self) -> None:
        while not self._stopped.is_set():
            connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.connect()
            except OSError:
                return  # the service has ended
            try:
                for _ in range(5):
                    connection.request("POST", "/v1/offers/decisions", BODY, JSON)
                    response = connection.getresponse()
                    decision = json.loads(response.read())
                    assert response.status == 201, decision
                    self.taken.append(decision["id"])
                    if response.will_close:
                        break
            except (OSError, HTTPException) as error:
                self.cut.append(error)
            finally:
                connection.close()


def metrics(service: Process) -> dict[str, float]:
    """The metrics without labels, and the number of decisions, over a new connection."""
    port = service.heard("serving")["port"]
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.replace('{bandit="offers"}', ""): float(value) for name, _, value in samples}


def serving_pids(service: Process) -> list[int]:
    """The processes that have started to serve, in this order."""
    lines = [json.loads(line) for line in service.log.splitlines()]
    return [line["pid"] for line in lines if line["message"] == "serving"]


@on_postgresql
def test_a_killed_process_is_replaced_while_another_serves(start: Start, store: Store) -> None:
    """No acknowledged decision is lost, and neither counters nor the shutdown are affected."""
    service = start("serve", "--create-tables", "--processes", "2", server='drain = "1s"')
    later(lambda: len(serving_pids(service)) == 2)
    callers = Callers(service)
    later(lambda: len(callers.taken) > 200)
    counts = [metrics(service)["belated_decisions_total"]]
    os.kill(serving_pids(service)[1], signal.SIGKILL)
    taken_before = len(callers.taken)
    while len(serving_pids(service)) == 2:
        counts.append(metrics(service)["belated_decisions_total"])
    assert len(callers.taken) > taken_before
    later(lambda: metrics(service)["belated_processes"] == 2)
    samples = metrics(service)
    counts.append(samples["belated_decisions_total"])
    assert counts == sorted(counts)
    assert samples["belated_process_restarts_total"] == 1
    event = service.said("a server process ended and will be restarted")
    assert event is not None
    assert event["code"] == -signal.SIGKILL

    cut_before = len(callers.cut)
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    callers.stop()
    assert len(callers.cut) == cut_before
    with store.journal("offers") as journal:
        assert journal.decisions(callers.taken).keys() == set(callers.taken)


@on_postgresql
def test_metrics_are_those_of_all_processes(start: Start) -> None:
    """Wherever they are scraped; and one process learns for all."""
    service = start("serve", "--create-tables", "--processes", "2")
    later(lambda: len(serving_pids(service)) == 2)
    service.heard("this learner leads")
    callers = Callers(service)
    later(lambda: len(callers.taken) > 500)
    callers.stop()
    assert not callers.cut
    if len(callers.taken) % 2 == 0:  # so that two processes cannot have the same number
        callers.taken.append(service.decide())
    total = len(callers.taken)

    def of_process() -> int:
        """The decisions of the process that responds."""
        (bandit,) = service.ask("GET", "/v1")[1]["bandits"]
        count: int = bandit["decisions"]
        return count

    later(lambda: of_process() < total / 2)
    lower_total = of_process()
    later(lambda: of_process() == total - lower_total)
    for _ in range(10):
        samples = metrics(service)
        assert samples["belated_decisions_total"] == total
        assert samples["belated_processes"] == 2
        assert samples["belated_learner_is_leader"] == 1
    assert not service.mentions("this learner is on standby")
    metric = 'belated_learner_events_total{bandit="offers",status="decided"}'
    later(lambda: metrics(service)[metric] == total)
    port = service.heard("serving")["port"]
    service.kill()  # its processes notice, and free the port

    def is_free() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    later(is_free)


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_on_sqlite_there_is_one_process(start: Start) -> None:
    """More are refused with the reason; `auto` starts one."""
    process = start("serve", "--processes", "2")
    assert process.ended() == 2
    (line,) = process.log.splitlines()
    assert "only one process at a time can write" in line
    service = start("serve", "--processes", "auto")
    assert service.decide()
    assert "belated_processes" not in metrics(service)
