"""Features of a live service under load change and are rolled back, without loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from belated import Bandit, Explicit
from belated.cli.main import main
from belated.client import Client
from belated.core.events import Decision, Reward
from belated.exceptions import BelatedError
from belated.expressions import as_features
from belated.journals import Store, open_store
from belated.journals.pages import pages
from tests.integration.processes import Process, later

T = TypeVar("T")

BEFORE = "PerArm(['mail', 'call'], context={'age': Number(18, 90)})"
AFTER = (
    "PerArm(['visit', 'phone', 'mail'], renamed={'call': 'phone'}, "
    "context={'age': Number(0, 60), 'seen': Vector(8)})"
)


class Load:
    """A thread that decides and reports rewards, at any process that responds.

    Attributes:
        ports: the ports of the processes.
        ids: acknowledged decisions, with their reward once that was acknowledged, too.
        errors: requests that were rejected as invalid.
    """

    def __init__(self, name: str) -> None:
        self.ports: list[int] = []
        self.ids: dict[str, float | None] = {}
        self.error: Exception | None = None
        self._name, self._numbers = name, count()
        self._rng = np.random.default_rng(3)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if self.ports:
                    self._batch()
        except Exception as error:
            self.error = error

    def _batch(self) -> None:
        ids = [f"order-{next(self._numbers)}" for _ in range(5)]
        contexts = [
            {"age": float(self._rng.integers(18, 80)), "seen": self._rng.normal(size=8).tolist()}
            for _ in ids
        ]
        decisions = self._until_answered(lambda client: client.decide_many(contexts, ids=ids))
        assert [decision.id for decision in decisions] == ids
        self.ids |= dict.fromkeys(ids)
        rewards = {id: float(self._rng.integers(2)) for id in ids[:4]}
        self._until_answered(lambda client: client.observe_many(list(rewards.items())))
        self.ids |= rewards

    def _until_answered(self, ask: Callable[[Client], T]) -> T:
        for attempt in count():
            port = self.ports[attempt % len(self.ports)]
            try:
                with Client(f"http://127.0.0.1:{port}", bandit=self._name, timeout=5.0) as client:
                    return ask(client)
            except (BelatedError, OSError):
                assert attempt < 200, "no process answers"
                time.sleep(0.05)
        raise AssertionError  # it counts for ever

    def goes_on(self, decisions: int = 60) -> None:
        """Wait for further decisions."""
        target = len(self.ids) + decisions
        later(lambda: self.error is not None or len(self.ids) >= target)
        assert self.error is None, self.error

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(120)


def has_a_model(process: Process) -> bool:
    """Return whether the newest model is for its features."""
    ready: dict[str, list[str]] = process.ask("GET", "/readyz")[1]
    return ready["other_features"] == []


def config(path: Path, address: str, name: str, features: str) -> Path:
    """Write the configuration of a service."""
    path.write_text(
        f"""
        [store]
        address = "{address}"
        [server]
        port = 0
        lease_ttl = "1s"
        [bandits.{name}]
        policy = "DelayedUCB(dim={as_features(features).dim}, family=Bernoulli(), floor=0.3)"
        rewards = "Explicit()"
        features = "{features}"
        """,
        encoding="utf-8",
    )
    return path


def test_a_rolling_change_and_its_rollback_lose_nothing(
    store: Store, address: str, bandit: str, tmp_path: Path
) -> None:
    """Two processes are replaced in turn, and back; then the journal is compared."""
    name = bandit.replace(" ", "-")
    load, running, processes = Load(name), list[Process](), list[Process]()
    numbers = count()
    mismatches = 0
    try:
        for features in (BEFORE, AFTER, BEFORE):
            old_processes, running = running, []
            for index in range(2):
                file = config(tmp_path / f"{next(numbers)}.toml", address, name, features)
                if old_processes and not index:
                    assert main(["features", "diff", str(file)]) == 0
                process = Process(tmp_path / f"{file.stem}.log", "serve", str(file))
                running.append(process)
                processes.append(process)
                port = process.heard("serving")["port"]
                status, ready = process.ask("GET", "/readyz")
                mismatches += status == 200 and ready["other_features"] == [name]
                load.ports = [*load.ports, port]
                load.goes_on()
                if old_processes:  # one that is told to stop, and one that dies
                    load.ports = load.ports[1:]
                    old_processes[index].send(15) if index == 0 else old_processes[index].kill()
                    load.goes_on()
            for process in running:  # the learner has published for these features
                later(partial(has_a_model, process))
    finally:
        load.stop()
        for process in processes:
            process.kill()
    assert load.error is None
    assert mismatches > 0, "no process was seen waiting for a model of its features"
    decided_ids, rewards_by_id = list[str](), dict[str, float]()
    with open_store(address).journal(name) as journal:
        for page in pages(journal, 0):
            for record in page:
                if isinstance(record.event, Decision):
                    decided_ids.append(record.event.id)
                elif isinstance(record.event, Reward):
                    rewards_by_id[record.event.id] = record.event.value
        assert set(decided_ids) >= set(load.ids)
        expected = {id: value for id, value in load.ids.items() if value is not None}
        assert {id: rewards_by_id.get(id) for id in expected} == expected
        replayed = Bandit(as_features(BEFORE), rewards=Explicit(), journal=journal)
        counts = replayed.decision_counts
        assert sum(counts.values()) == len(set(decided_ids))
        assert counts["rewarded"] == len(rewards_by_id)
