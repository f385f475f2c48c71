"""A hundred bandits in one process do not increase threads and connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import Store, open_store
from belated.service import Definition, Service
from belated.service.serving import served_bandits, spools
from belated.service.serving.spools import SpoolFolder
from tests.integration.keyrings import make
from tests.integration.postgres_server import PostgresServer, require_programs
from tests.integration.serving import served
from tests.waiting import eventually

#: Of a process that decides and learns, with keys and spools.
MAX_CONNECTIONS, MAX_THREADS = 6, 12
NUMBERS = (1, 10, 100)
ROWS = [[1.0, 0.0], [0.0, 1.0]]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A separate server, so that its connections can be counted."""
    require_programs()
    postgres = PostgresServer()
    yield postgres
    postgres.stop()


@pytest.fixture(params=["postgresql", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/many.db"
    return str(request.getfixturevalue("server").dsn)


def app_of(count: int, store: Store, spools: Path) -> Service:
    """Return an app that serves and learns this many bandits, with all options."""
    bandits = [
        Definition(f"b{n}", DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)
        for n in range(count)
    ]
    return Service(bandits, store, learn=True, auth="keys", spools=SpoolFolder(spools))


def stale(app: Service) -> list[str]:
    """Return bandits without a published model."""
    return [name for name, bandit in app.bandits.items() if bandit.age is None]


def connections(address: str) -> int:
    """Return the number of connections of the server, without this one."""
    with psycopg.connect(address) as connection:
        count = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'belated'"
        ).fetchone()
    assert count is not None
    return int(count[0])


def open_files(path: Path) -> int:
    """Return how often this process has a database open."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += entry.readlink() == path
        except OSError:
            continue
    return count


def test_threads_and_connections_do_not_grow(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted under load: requests of every kind, and a learner."""
    # A disk that is slow here is no outage.
    monkeypatch.setattr(spools, "PATIENCE", 60.0)
    monkeypatch.setattr(served_bandits, "LOOK_UP_SECONDS", 60.0)
    store = open_store(address)
    store.create_tables()
    key = make(store, "decide", "reward", "read").key
    threads_before = set(threading.enumerate())
    for count in NUMBERS:
        app = app_of(count, store, tmp_path / "spools")
        with (
            served(app) as serving,
            httpx.Client(
                base_url=serving.url, headers={"authorization": f"Bearer {key}"}, timeout=60
            ) as http,
        ):
            # A learner that takes over writes, and SQLite has one writer at a time.
            eventually(lambda app=app: not stale(app), seconds=120)  # type: ignore[misc]
            ids = {}
            for name in app.bandits:
                answer = http.post(f"/v1/{name}/decisions", json={"rows": ROWS, "id": f"of {name}"})
                assert answer.status_code == 201, answer.text
                ids[name] = answer.json()["id"]
                path = f"/v1/{name}/decisions/{ids[name]}/reward"
                assert http.put(path, json={"value": 1.0}).status_code == 202
            assert http.get(f"/v1/b0/decisions/{ids['b0']}").status_code == 200  # a look-up
            for bandit in app.bandits.values():  # each of them is learned, and has its model
                eventually(lambda bandit=bandit: bandit.decider.model.n >= 1, seconds=60)  # type: ignore[misc]
            threads = [thread for thread in threading.enumerate() if thread not in threads_before]
            assert len(threads) <= MAX_THREADS, [thread.name for thread in threads]
            if address.startswith("postgresql"):
                assert connections(address) <= MAX_CONNECTIONS
            else:
                assert open_files(tmp_path / "many.db") <= MAX_CONNECTIONS
            assert app.metrics.commits is not None
            assert not app.metrics.commits.failures


def test_what_comes_at_once_for_many_bandits_is_one_commit(address: str, tmp_path: Path) -> None:
    """Few commits for many requests of all bandits; and every decision is in its journal."""
    store = open_store(address)
    store.create_tables()
    bandits = [Definition(f"c{n}", DelayedUCB(2, Bernoulli()), Explicit()) for n in range(20)]
    app = Service(bandits, store)
    with served(app) as serving:
        ids_by_bandit: dict[str, list[str]] = {name: [] for name in app.bandits}

        def play(names: list[str]) -> None:
            with httpx.Client(base_url=serving.url, timeout=60) as http:
                for name in names:
                    answer = http.post(f"/v1/{name}/decisions", json={"rows": ROWS})
                    ids_by_bandit[name].append(answer.json()["id"])

        crew = [threading.Thread(target=play, args=(list(ids_by_bandit)[n:],)) for n in range(16)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        assert app.metrics.commits is not None
        assert (
            app.metrics.commits.sizes.cumulative[-1]
            < app.metrics.commits.sizes.total
            == sum(map(len, ids_by_bandit.values()))
        )
    for name, ids in ids_by_bandit.items():
        with store.journal(name) as journal:
            assert journal.decisions(ids).keys() == set(ids)
