"""The service on a SQLite file: many callers, several processes, and long locks."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.core.events import Void
from belated.journals import Store, open_store
from belated.journals.snapshots import Snapshot
from belated.service import Definition, Service
from belated.service.learning.lease import SECONDS as LEASE
from belated.service.serving.spools import SpoolFolder
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]
OFFERS = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file."""
    return tmp_path / "belated.db"


@pytest.fixture
def store(path: Path) -> Store:
    """The store in the file."""
    return open_store(f"sqlite:///{path}")


def test_a_crowd_shares_commits_and_readers_do_not_wait(store: Store, full: bool) -> None:
    """Every response is in the file; look-ups and the learner are not blocked."""
    callers, count = (16, 500) if full else (8, 40)
    app = Service([OFFERS], store, learn=True)

    def play(url: str) -> list[str]:
        ids = []
        with Client(url, bandit="offers") as client:
            for n in range(count):
                id = client.decide(rows=ROWS).id
                if n % 2:
                    client.observe(id, 1.0)
                if n % 10 == 0:
                    assert client.entry(id).decision is not None  # what was answered can be read
                ids.append(id)
        return ids

    with served(app) as serving, ThreadPoolExecutor(callers) as crew:
        ids = [id for ids in crew.map(play, [serving.url] * callers) for id in ids]
        commits = app.bandits["offers"].commits
        assert commits.sizes.total == callers * count * 3 // 2
        assert commits.sizes.cumulative[-1] < commits.sizes.total
        assert not commits.failures
        eventually(lambda: app.bandits["offers"].decider.model.n == callers * count // 2)
    with store.journal("offers") as journal:
        assert journal.decisions(ids).keys() == set(ids)


LEARNER = """
import sys, time
from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import open_store
from belated.service import Definition
from belated.service.learning.learners import learners_of
offers = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)
store = open_store(sys.argv[1])
learners = learners_of([offers], store)
learners.start()
sys.stdin.read()
learners.stop()
"""


@pytest.fixture
def learner(path: Path, store: Store) -> Iterator[subprocess.Popen[bytes]]:
    """Learn in a separate process."""
    store.journal("offers", partitions=2).close()
    process = subprocess.Popen(
        [sys.executable, "-c", LEARNER, f"sqlite:///{path}"], stdin=subprocess.PIPE
    )
    yield process
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_deciders_and_a_learner_in_several_processes(
    store: Store, learner: subprocess.Popen[bytes]
) -> None:
    """Two deciders use the model of another process, which includes events of both."""
    first_service, second_service = Service([OFFERS], store), Service([OFFERS], store)
    with (
        served(first_service) as first_serving,
        served(second_service) as second_serving,
        Client(first_serving.url, bandit="offers") as first,
        Client(second_serving.url, bandit="offers") as second,
    ):
        for _ in range(20):
            second.observe(first.decide(rows=ROWS).id, 1.0)
            first.observe(second.decide(rows=ROWS).id, 0.0)
        eventually(
            lambda: first.state().observations == second.state().observations == 40, seconds=60
        )
        assert first.state().pending == 0


def test_a_large_snapshot_does_not_keep_others_for_long(store: Store, full: bool) -> None:
    """Commits and the lease renewal wait for it, but much less than the lease lasts."""
    size = (400 if full else 40) << 20
    with store.journal("offers", partitions=2) as writer, store.journal("offers") as saver:
        coordination = store.coordination("offers")
        writer.append([Void("a", 1)])
        pieces = {f"piece {n}": bytes(size // 8) for n in range(8)}
        save_thread = threading.Thread(target=saver.save, args=(Snapshot(0, 0, "print", pieces),))
        longest, commits = 0.0, 0
        save_thread.start()
        while save_thread.is_alive() or commits < 10:
            start = time.monotonic()
            writer.append([Void(f"{commits}", 1)])
            assert coordination.acquire_lease("one", LEASE) == 1
            longest, commits = max(longest, time.monotonic() - start), commits + 1
        save_thread.join()
        coordination.close()
        snapshot = saver.load(0)
    assert snapshot is not None
    assert sum(map(len, snapshot.pieces.values())) == size
    print(f"\nsnapshot of {size >> 20} MiB: {commits} commits meanwhile, the worst {longest:.2f} s")
    assert longest < LEASE / 2


def test_while_another_holds_the_file_events_wait_in_the_spool(
    store: Store, path: Path, tmp_path: Path
) -> None:
    """A tool holds the lock for long: callers are answered, and events are delivered later."""
    app = Service([OFFERS], store, learn=True, spools=SpoolFolder(tmp_path / "spool"))
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        offers = app.bandits["offers"]
        assert http.post("/v1/offers/decisions", json={"rows": ROWS}).status_code == 201
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        try:
            responses = [http.post("/v1/offers/decisions", json={"rows": ROWS}) for _ in range(3)]
            assert [response.status_code for response in responses] == [201] * 3
            assert offers.spool is not None
            assert offers.spool.journal_down
            assert http.get("/readyz").status_code in (200, 503)  # it answers
        finally:
            blocker.execute("ROLLBACK")
            blocker.close()
        eventually(lambda: offers.spool is not None and offers.spool.queued == 0)
        # One may be in the file twice: it was given to the spool while its commit was under way.
        eventually(lambda: http.get("/v1/offers").json()["version"] >= 5)
        assert http.get("/v1/offers").json()["pending"] == 4
    ids = [response.json()["id"] for response in responses]
    with store.journal("offers") as journal:
        assert journal.decisions(ids).keys() == set(ids)


def test_without_a_spool_a_file_that_is_held_is_503(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged, and requests succeed again once the lock is free."""
    app = Service([OFFERS], store)
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        log = app.bandits["offers"].commits.log
        monkeypatch.setattr(log._file, "_wait", 0.3)  # type: ignore[attr-defined]
        log._file._connection.execute("PRAGMA busy_timeout = 300")  # type: ignore[attr-defined]
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        try:
            response = http.post("/v1/offers/decisions", json={"rows": ROWS})
        finally:
            blocker.execute("ROLLBACK")
            blocker.close()
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert http.post("/v1/offers/decisions", json={"rows": ROWS}).status_code == 201
        assert http.get("/v1/offers").json()["pending"] == 1
