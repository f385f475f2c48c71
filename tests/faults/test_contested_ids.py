"""One id, one response: for all callers and deciders, whatever is killed meanwhile."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from belated.journals import open_store
from tests.faults.harness import Crowd
from tests.faults.races import Races, Told, assert_one_answer_each
from tests.faults.writers import races_run
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import Process
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")

PARTITIONS = 2


class Deciders:
    """Three processes that serve one bandit, with random choices and no learner.

    Args:
        folder: for their files.
        address: of the store.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.ports = [free_port() for _ in range(3)]
        self.address = address
        self._folder = folder
        self._started = 0
        self._file = folder / "belated.toml"
        self._file.write_text(
            f'[store]\naddress = "{address}"\n[server]\nlearn = false\n'
            "[bandits.offers]\n"
            'policy = "EpsilonGreedy(dim=2, family=Bernoulli(), floor=0.2)"\n'
            f'rewards = "Explicit()"\npartitions = {PARTITIONS}\n',
            encoding="utf-8",
        )
        self.processes = [self._start(port) for port in self.ports]
        try:
            self.replace([])
        except BaseException:
            self.close()
            raise

    def replace(self, places: Iterable[int]) -> None:
        """Kill some processes in turn, and restart them at their ports; wait until all serve."""
        for index in places:
            self.processes[index].kill()
            self.processes[index] = self._start(self.ports[index])
        for process in self.processes:
            process.heard("serving")

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.kill()

    def _start(self, port: int) -> Process:
        self._started += 1
        log = self._folder / f"log {self._started}"
        return Process(log, "serve", str(self._file), "--port", str(port))


def race(deciders: Deciders, ids: int, kills: int) -> str:
    """Race for at least this many ids, with occasional kills; return the results."""
    rng, kills_done = random.Random(1), 0
    with Races(*deciders.ports) as races:
        while kills_done < kills or len(races.told) < ids:
            time.sleep(rng.uniform(0.2, 1.0))
            deciders.replace(rng.sample(range(3), 2))  # there is always one
            kills_done += 2
            assert races.goes_on
        time.sleep(0.3)
    with open_store(deciders.address).journal("offers") as journal:
        records = [record for p in range(PARTITIONS) for record in journal.read(p, 0, 10**7)]
    result = assert_one_answer_each(races.told, [record.event for record in records])
    assert races.retries >= kills_done  # who had asked a decider that was killed asked again
    return f"{kills_done} kills, {races.retries} retries: {result}"


def test_three_deciders_on_postgres(doomed: PostgresServer, tmp_path: Path, full: bool) -> None:
    """Callers that race at different deciders, some of which are killed, get the same responses."""
    deciders = Deciders(tmp_path, doomed.dsn)
    try:
        print("\n" + race(deciders, *((100_000, 20) if full else (300, 2))))
    finally:
        deciders.close()


def test_three_deciders_on_one_file(tmp_path: Path, full: bool) -> None:
    """The same holds on SQLite."""
    deciders = Deciders(tmp_path, f"sqlite:///{tmp_path}/belated.db")
    try:
        print("\n" + race(deciders, *((100_000, 20) if full else (300, 2))))
    finally:
        deciders.close()


def test_three_programs_on_one_file(tmp_path: Path, full: bool) -> None:
    """The same holds for bandits in three programs without a service, killed in turn."""
    ids, kills = (20_000, 100) if full else (300, 6)
    rng = random.Random(1)
    crowd = Crowd(tmp_path, str(tmp_path / "offers.db"))
    try:
        for _ in range(3):
            crowd.start("racer")
        for n in range(kills):
            goal = ids * (n + 1) // kills
            eventually(lambda: races_run(tmp_path) >= goal, "they are stuck", 600, 0.1)  # noqa: B023
            crowd.replace("racer", rng)
    finally:
        crowd.close()
    with open_store(f"sqlite:///{crowd.where}").journal("offers") as journal:
        events = [record.event for record in journal.read(0, 0, 10**7)]
    result = assert_one_answer_each(answers(crowd), events)
    print(f"\n{crowd.killed['racer']} kills: {result}")


def answers(crowd: Crowd) -> dict[str, list[Told]]:
    """Return the responses under each id."""
    answers_by_id: dict[str, list[Told]] = defaultdict(list)
    for _, id, *answer in crowd.told("answer"):
        answers_by_id[id].append((answer[0], answer[1], answer[2]))
    return answers_by_id
