"""A service without a spool, whose database has no room, no lock or no connection left for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import httpx
import psycopg
import pytest

from belated.journals import PostgresJournal
from tests.faults.town import Cluster
from tests.integration.postgres_server import PostgresServer, require_programs
from tests.integration.processes import ROWS, later
from tests.integration.small_disk import SmallDisk

#: What a batch has: it does not fit into what a table has left.
MANY = 500


@pytest.fixture(scope="module")
def disk() -> Iterator[SmallDisk]:
    """A small one where it can be mounted."""
    small_disk = SmallDisk()
    small_disk.place.chmod(0o777)
    yield small_disk
    small_disk.close()


@pytest.fixture(scope="module")
def town(disk: SmallDisk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """On a server with few connections, and with everything on the small disk."""
    require_programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(disk.place))
        server = PostgresServer({"max_connections": "9", "superuser_reserved_connections": "0"})
    try:
        PostgresJournal.create_tables(server.dsn)
        cluster = Cluster(server, tmp_path_factory.mktemp("town"), spool=False)
        try:
            cluster.wait()
            yield cluster
        finally:
            cluster.close()
    finally:
        disk.make_room()
        server.stop()


@contextmanager
def no_room(town: Cluster, disk: SmallDisk) -> Iterator[None]:
    """While the disk is full."""
    if not disk.mounted:
        pytest.skip("only root can mount a small disk")
    disk.fill()
    try:
        yield
    finally:
        disk.make_room()


@contextmanager
def no_lock(town: Cluster, disk: SmallDisk) -> Iterator[None]:
    """While another holds a partition: one of those that the batch needs."""
    with psycopg.connect(town.server.dsn) as blocker:
        blocker.execute("SELECT FROM belated.partition WHERE partition = 1 FOR UPDATE")
        yield


@contextmanager
def no_connection(town: Cluster, disk: SmallDisk) -> Iterator[None]:
    """While others have all connections, those of the service too."""
    connections: list[psycopg.Connection] = []

    def all_are_ours() -> bool:
        try:
            while True:
                connections.append(psycopg.connect(town.server.dsn, autocommit=True))
        except psycopg.OperationalError:
            pass
        pids = [connection.info.backend_pid for connection in connections]
        terminated = connections[0].execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> ALL (%s)",
            (pids,),
        )
        return not terminated.fetchall()

    connections.append(psycopg.connect(town.server.dsn, autocommit=True))
    try:
        later(all_are_ours)
        yield
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("trouble", [no_room, no_lock, no_connection])
def test_full_disk_returns_503_and_stores_no_part_of_a_batch(
    town: Cluster,
    disk: SmallDisk,
    trouble: Callable[[Cluster, SmallDisk], AbstractContextManager[None]],
    full: bool,
) -> None:
    """It says when to come again; then the same process takes the batch, and all is learned."""
    if trouble is no_lock and not full:
        pytest.skip("a lock is waited for for 10 s: at full size only")
    requests = [
        {"rows": ROWS, "id": f"{trouble.__name__}-{n}", "first_attempt": True} for n in range(MANY)
    ]

    def ask() -> httpx.Response:
        url = f"http://127.0.0.1:{town.port}/v1/offers/decisions/batch"
        return httpx.post(url, json={"requests": requests}, timeout=30)

    records_before = town.records()
    with trouble(town, disk):
        for _ in range(2):
            answer = ask()
            assert answer.status_code == 503, answer.text
            assert answer.headers["retry-after"] == "1"
            assert "nothing was stored" in answer.json()["detail"]
    assert town.records() == records_before
    later(lambda: ask().status_code == 201)
    total = sum(map(len, records_before)) + MANY
    assert sum(map(len, town.records())) == total
    later(lambda: town.state().get("version") == total, "the learner does not go on")
