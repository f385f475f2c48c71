"""Kill writers of one file at any moment: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from belated import Bandit
from belated.events import Decision, Record
from belated.fold import same_sums
from belated.ids import key_of
from belated.testing.oracle import Oracle

SCRIPT = Path(__file__).with_name("writers.py")


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("writers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


writers = _loaded()


class Crowd:
    """Writers, each a process of its own."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folder = folder
        self.running: list[tuple[int, int]] = []
        self.started = 0
        self.killed = 0
        self._nursery = subprocess.Popen(
            [sys.executable, SCRIPT, folder, str(partitions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        """One more."""
        self.running.append((self.started, self._tell(f"start {self.started}")))
        self.started += 1

    def kill(self, at: int) -> None:
        """One of those that run, with no warning; it must have been alive until then."""
        _, process = self.running.pop(at)
        assert self._tell(f"kill {process}") == signal.SIGKILL
        self.killed += 1

    def acknowledged(self, number: int) -> list[list[Any]]:
        """What a writer was told is safe; a last line that was cut off does not count."""
        path = self.folder / f"acknowledged {number}"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """No one is left."""
        while self.running:
            self.kill(0)
        self._nursery.communicate(timeout=60)

    def _tell(self, command: str) -> int:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(command, file=self._nursery.stdin, flush=True)
        return int(self._nursery.stdout.readline())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_kills_lose_nothing_acknowledged(tmp_path: Path, full: bool) -> None:
    """Three writers under load, one killed after the other: all that was told is there, once."""
    for partitions, kills in ((1, 50), (4, 50)) if full else ((1, 8),):
        folder = tmp_path / f"{partitions} partitions"
        folder.mkdir()
        rng = random.Random(partitions)
        crowd = Crowd(folder, partitions)
        try:
            for _ in range(3):
                crowd.start()
            while crowd.killed < kills - 3:
                victim = rng.randrange(3)
                if rng.random() < 0.75:  # under way, not while it still opens the file
                    _wait_for_progress(crowd, crowd.running[victim][0])
                time.sleep(rng.uniform(0.0, 0.3))
                crowd.kill(victim)
                crowd.start()
            for number, _ in crowd.running:
                _wait_for_progress(crowd, number)
        finally:
            crowd.close()
        assert crowd.killed == kills
        assert_nothing_lost(crowd)


def _wait_for_progress(crowd: Crowd, number: int) -> None:
    deadline = time.monotonic() + 120
    while len(crowd.acknowledged(number)) < 5:
        assert time.monotonic() < deadline, f"writer {number} is stuck"
        time.sleep(0.01)


def assert_nothing_lost(crowd: Crowd) -> None:
    """The file is sound, holds all that was acknowledged, and every fold of it is the same."""
    path = crowd.folder / "offers.db"
    told = [one for number in range(crowd.started) for one in crowd.acknowledged(number)]
    bandit: Bandit = writers.opened(path)
    with bandit:
        bandit.sync()
        replayed = bandit.as_of(2**62)
        records = [
            record
            for partition in range(bandit.journal.partitions)
            for record in bandit.journal.read(partition, 0, 10**7)
        ]
        # Snapshot and tail, all records from the beginning, and the rules as they are written.
        assert bandit.digest == replayed.digest
        assert bandit.counters == replayed.counters
        assert same_sums(bandit._fold, replayed._fold)
        np.testing.assert_allclose(
            bandit.estimate.theta, replayed.estimate.theta, rtol=1e-8, atol=1e-8
        )
        oracles = _oracles(bandit, records)
        counts = Counter[str]()
        for oracle in oracles:
            counts.update(oracle.counts)
        assert bandit.counts == dict(counts)
        entries = {id: one for oracle in oracles for id, one in oracle.entries.items()}
        _check_decisions(bandit, told, records)
        _check_rewards(bandit, told)
        learned = sum(one.value is not None for one in entries.values())
        assert bandit.estimate.n == learned == bandit.counts["rewarded"]
        assert bandit.pending.count == sum(len(oracle.pending) for oracle in oracles)
        kinds = Counter(kind for kind, *_ in told)
        print(
            f"\n{crowd.killed} kills of {crowd.started} writers, "
            f"{bandit.journal.partitions} partitions: {kinds['decision']} decisions and "
            f"{kinds['reward']} rewards acknowledged, {len(records)} records, none lost"
        )
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def _oracles(bandit: Bandit, records: list[Record]) -> list[Oracle]:
    fold = bandit._fold
    return [
        Oracle(
            [record for record in records if record.partition == partition],
            rewards=bandit.rewards,
            least=fold.least,
            most=fold.most,
        )
        for partition in range(bandit.journal.partitions)
    ]


def _check_decisions(bandit: Bandit, told: list[list[Any]], records: list[Record]) -> None:
    """Each is known, and it is the one that was told, unless two raced for a shared name."""
    made: dict[str, set[int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            made.setdefault(record.event.id, set()).add(record.event.index)
    for kind, id, index in told:
        if kind == "decision":
            story = bandit.entry(id)
            assert story.decision is not None
            assert index in made[id]
            assert story.decision.index == index or story.conflict
    assert sum(bandit.counts.values()) == len(made)


def _check_rewards(bandit: Bandit, told: list[list[Any]]) -> None:
    """Each is learned with the value that everyone reports, or waits for its decision."""
    parked = {key for ledger in bandit._fold.ledgers for key in ledger._parked.events}
    for kind, id, part in told:
        if kind != "reward":
            continue
        story = bandit.entry(id)
        if story.state == "unknown":
            assert key_of(id) in parked
            continue
        assert story.state == "rewarded"
        assert not any(one.value != writers.value_of(id, one.part) for one in story.told)
        assert part in {one.part for one in story.told}
        last = max(story.told, key=lambda one: (one.at, one.part))
        assert story.value == last.value
