"""A service on a file of SQLite whose processes are killed under load.

There is no server that could go away: outages are in test_service_faults.py, for PostgreSQL.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from belated.journals import Journal, open_store
from tests.faults.service_load import Load
from tests.faults.town import Cluster, assert_nothing_lost, write_config
from tests.integration.processes import Process
from tests.ports import free_port

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")


class FileTown(Cluster):
    """A decider and a learner, each a process, on one file."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.path = folder / "belated.db"
        self._folder = folder
        self._started: list[Process] = []
        address = f"sqlite:///{self.path}"
        self._store = open_store(address)
        self._file = write_config(folder, address, f"port = {self.port}", 'lease_ttl = "3s"')
        self.decider = self.start("serve")
        self.learner = self.start("learn")

    def journal(self) -> Journal:
        """Another connection to the file."""
        return self._store.journal("offers")


@pytest.fixture
def town(tmp_path: Path) -> Iterator[FileTown]:
    """It serves, and has learned a little."""
    file_town = FileTown(tmp_path)
    try:
        file_town.wait()
        file_town.decider.reward(file_town.decider.decide())
        yield file_town
    finally:
        file_town.close()


@pytest.mark.parametrize("victim", ["decider", "learner", "both"])
def test_kills_on_one_file(town: FileTown, victim: str, full: bool) -> None:
    """SIGKILL under load, again and again: nothing acknowledged is lost, and all is learned."""
    rng = random.Random(1)
    with Load(town.port) as load:
        for _ in range(20 if full else 2):
            time.sleep(rng.uniform(0.5, 2.0))
            if victim in ("learner", "both"):
                town.learner.kill()
            if victim in ("decider", "both"):
                town.decider.kill()
                town.start_decider()
            if victim in ("learner", "both"):
                town.start_learner()
        time.sleep(1)
    assert all(answer.taken for answer in load.answers)  # of those that tried again too
    result = assert_nothing_lost(town, load)
    print(f"\n{victim}: {len(load.answers)} requests, {load.share(60.0):.4%} at once; {result}")
    if victim == "learner":
        assert load.share(60.0) >= 0.999
    with sqlite3.connect(town.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
