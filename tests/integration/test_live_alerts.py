"""Each alert fires when its cause is made, with a real Prometheus that scrapes real processes.

It scrapes every second, and all spans of the rules but the values they compare are divided by
`FACTOR` in a copy: an hour is 2.5 seconds, and no range is shorter than `LEAST`. test_alerts.py has
the rules as they are. `BelatedReportOld` is not among these: it needs six hours without a report;
nor is `BelatedWorkerDead`, which needs a fault that nobody knows of; nor is `BelatedProcessesFail`,
whose metric `test_serve.py` checks.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Event, Opaque, Record, Reward
from belated.fold.fold import Fold
from belated.journals import Journal, open_store
from tests.faults.gates import Slow
from tests.integration.forger import forger
from tests.integration.keyrings import make
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import ROWS, Process, later
from tests.integration.prometheus_server import (
    Prometheus,
    alert_names,
    fast_alerts,
    require_prometheus,
)
from tests.ports import free_port
from tests.waiting import eventually

FACTOR, LEAST = 1_440, 30
HOUR = 3_600_000_000
POLICY = "DelayedUCB(dim=2, family=Bernoulli())"
#: A policy that cannot choose.
MODULE = """
from dataclasses import dataclass
from belated.expressions import register
from belated.policies import Policy

@register
@dataclass(frozen=True)
class Failing(Policy):
    def choose(self, model, rows, rng):
        raise ArithmeticError("it cannot")
"""

#: By what is done, the alerts that come of it, each with its bandit.
JOURNAL = {
    ("BelatedClockJumped", "clock"),
    ("BelatedLearnerFails", "fails"),
    ("BelatedSpoolLeft", "left"),
    ("BelatedAdvice", "advice"),
    ("BelatedDelayDependence", "dependence"),
    ("BelatedHistoryChanged", "lost"),
    ("BelatedRefoldDisagrees", "forged"),
    ("BelatedRewardsMissing", "silence"),
    ("BelatedAttention", "conflicts"),
}
CALLS = {
    ("BelatedSwitched", "switched"),
    ("BelatedFallback", "fallback"),
    ("BelatedPendingGrows", "pending"),
    ("BelatedRewardsStopped", "stopped"),
    ("BelatedRefused", ""),
}
SLOW = {("BelatedDecideSlow", "offers")}
AWAY = {
    ("BelatedJournalUnavailable", "offers"),
    ("BelatedSpoolFull", "offers"),
    ("BelatedErrors", ""),
    ("BelatedKeysOld", ""),
}
DEAD = {("BelatedNoLeader", ""), ("BelatedModelOld", "offers")}
APART = {("BelatedOtherPolicy", "offers"), ("BelatedLearnerBehind", "offers")}
NOT_HERE = {
    "BelatedReportOld",
    "BelatedUnmatchedFull",
    "BelatedWorkerDead",
    "BelatedProcessesFail",
}


@pytest.fixture(autouse=True)
def _full_size(full: bool) -> None:
    require_prometheus()
    if not full:
        pytest.skip("a minute or two for each: --full")


class Stage:
    """A database, processes and Prometheus, in a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.server = PostgresServer()
        stack.callback(self.server.stop)
        self.store = open_store(self.server.dsn)
        self.store.create_tables()
        self._ports: list[int] = []
        (folder / "failing_policies.py").write_text(MODULE, encoding="utf-8")

    def config(self, name: str, bandits: dict[str, str], *server: str, dsn: str = "") -> Path:
        """Write a configuration with bandits by their policies."""
        lines = ['policies = ["failing_policies"]'] if "fallback" in bandits else []
        lines += ["[store]", f'address = "{dsn or self.server.dsn}"', "[server]", "learn = false"]
        lines += server
        for bandit, policy in bandits.items():
            lines += [f"[bandits.{bandit}]", f'policy = "{policy}"', 'rewards = "Explicit()"']
        file = self.folder / f"{name}.toml"
        file.write_text("\n".join(lines), encoding="utf-8")
        return file

    def start(self, command: str, file: Path) -> tuple[Process, str]:
        """Start a process that is scraped; return it and its address."""
        port = free_port()
        options = ["--port", str(port)] if command == "serve" else ["--metrics", str(port)]
        path = f"{self.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        log = self.folder / f"log {len(self._ports)}"
        process = Process(log, command, str(file), *options, PYTHONPATH=path)
        self._stack.callback(process.kill)
        self._ports.append(port)
        return process, f"http://127.0.0.1:{port}"

    def client(self, url: str, **header: str) -> httpx.Client:
        """Return a client of a process, once it serves."""
        http = self._stack.enter_context(httpx.Client(base_url=url, timeout=30, headers=header))
        later(lambda: answers(http))
        return http

    def prometheus(self, key: str = "") -> Prometheus:
        """Start a Prometheus that scrapes all started processes, with a key if necessary."""
        rules = self.folder / "alerts.yml"
        fast_alerts(rules, FACTOR, LEAST)
        targets = [f"127.0.0.1:{port}" for port in self._ports]
        job: dict[str, Any] = {"job_name": "it", "static_configs": [{"targets": targets}]}
        if key:
            job["authorization"] = {"credentials": key}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [job],
        }
        instance = self._stack.enter_context(Prometheus(self.folder, config))
        eventually(lambda: set(instance.targets().values()) == {"up"}, seconds=120)
        return instance


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage; everything started is stopped in the reverse order."""
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def answers(http: httpx.Client) -> bool:
    """Return whether a process serves."""
    try:
        return http.get("/livez").status_code == 200
    except httpx.TransportError:
        return False


def until(
    prometheus: Prometheus, expected: set[tuple[str, str]], act: Callable[[], object]
) -> set[tuple[str, str]]:
    """Run an action until all of these alerts fire; return all that fired meanwhile."""
    start, fired = time.monotonic(), set[tuple[str, str]]()
    while expected - fired:
        act()
        for alert in sorted(prometheus.firing() - fired):
            print(f"{time.monotonic() - start:6.1f} s  {' '.join(alert)}")
            fired.add(alert)
        assert time.monotonic() < start + 300, f"did not fire: {expected - fired}"
        time.sleep(0.2)
    return fired


def decide(http: httpx.Client, bandit: str, count: int = 1, rows: Any = ROWS) -> list[str]:
    """Return the ids of some decisions; none if the service rejects them."""
    body = {"requests": [{"rows": rows}] * count}
    answer = http.post(f"/v1/{bandit}/decisions/batch", json=body)
    if answer.is_error:
        return []
    return [decision["id"] for decision in answer.json()["decisions"]]


def reward(http: httpx.Client, bandit: str, id: str, value: float) -> None:
    """Report a reward."""
    answer = http.put(f"/v1/{bandit}/decisions/{id}/reward", json={"value": value})
    assert answer.status_code == 202, answer.text


def history(
    journal: Journal, count: int, tell: Callable[[int, int], list[tuple[int, Reward]]]
) -> None:
    """Yield decisions of the last five days with their rewards: number and times."""
    rng, now = np.random.default_rng(1), journal.now()
    events: list[tuple[int, Event]] = []
    for n in range(count):
        at = now - 120 * HOUR + n * 120 * HOUR // count
        x = rng.normal(size=2).astype(np.float32)
        events.append((at, Decision(f"d{n}", at, n % 2, n % 2, x, 0.5, 0.5, 0)))
        events += [event for event in tell(n, at) if event[0] <= now]
    events.sort(key=lambda event: event[0])
    for first in range(0, len(events), 1_000):
        chunk = events[first : first + 1_000]
        journal.append([event for _, event in chunk], recorded=[at for at, _ in chunk])


def told(n: int, at: int, value: float, hours: float = 0.25) -> list[tuple[int, Reward]]:
    """Return a reward some hours after its decision."""
    arrival = at + int(hours * HOUR)
    return [(arrival, Reward(f"d{n}", arrival, value))]


def write_histories(stage: Stage) -> None:
    """Write the initial journals."""

    def opened(bandit: str) -> closing[Journal]:
        return closing(stage.store.journal(bandit, partitions=1))

    silence_after = 110 * HOUR
    with opened("clock") as journal:
        future = journal.now() + HOUR
        journal.append([Reward("d0", future, 1.0)], recorded=[future])
    with opened("fails") as journal:
        journal.import_records([Record(0, 0, journal.now(), Opaque(b"\x02\x92\x63\xa1a"))])
    with opened("advice") as journal:  # only one outcome is told, of few decisions
        history(journal, 400, lambda n, at: told(n, at, 1.0) if n % 10 == 0 else [])
    with opened("dependence") as journal:  # good rewards come sooner
        history(journal, 2_000, lambda n, at: told(n, at, float(n % 2), 1.0 if n % 2 else 8.0))
    with opened("lost") as journal:
        history(journal, 200, lambda n, at: told(n, at, float(n % 3 == 0)))
    with opened("silence") as journal:
        start = journal.now() - 120 * HOUR
        history(
            journal,
            2_000,
            lambda n, at: told(n, at, float(n % 3 == 0)) if at < start + silence_after else [],
        )
    with opened("conflicts") as journal:
        history(
            journal, 1_000, lambda n, at: told(n, at, float(n % 2)) + told(n, at, 1.0, hours=0.5)
        )
    with opened("forged") as journal:
        history(journal, 2_000, lambda n, at: told(n, at, float(n % 3 == 0)))
        fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=1)
        fold.catch_up(journal)
        fold.save(journal)
    with closing(forger(stage.store, stage.server.dsn, "forged")) as meddler:
        rows = meddler.rows()
        rows[5] = rows[5]._replace(recorded=rows[5].recorded + 1)
        meddler.replace(rows)


def test_causes_in_journals_and_in_calls(stage: Stage) -> None:
    """One bandit per cause, and one without any, for which no alert fires."""
    write_histories(stage)
    expected_names = {bandit for _, bandit in JOURNAL | CALLS if bandit} - {"silence", "conflicts"}
    bandits = {name: POLICY for name in sorted(expected_names - {"fallback"})}
    bandits |= {"calm": POLICY, "fallback": "Failing(dim=2, family=Bernoulli())"}
    spool = stage.folder / "spool"
    spool.mkdir()
    (spool / "left.1.spool").write_bytes(b"nothing that was ever a spool" * 10)
    file = stage.config("all", bandits, f'spool_dir = "{spool}"')
    stage.start("learn", file)
    for name in ("silence", "conflicts"):  # reports take their time: each has a learner of its own
        stage.start("learn", stage.config(name, {name: POLICY}))
    serving, url = stage.start("serve", file)
    http = stage.client(url)
    prometheus = stage.prometheus()
    answer = http.put("/v1/switched/mode", json={"mode": "freeze", "reason": "to see the alert"})
    assert answer.is_success, answer.text
    for id in decide(http, "stopped", 20):
        reward(http, "stopped", id, 1.0)
    later(lambda: bool(prometheus.query('belated_learner_events_total{bandit="lost"} > 0')))
    with closing(forger(stage.store, stage.server.dsn, "lost")) as meddler:
        meddler.cut(0, 100)
    rounds = iter(range(1_000_000))
    start = time.monotonic()

    def act() -> None:
        n = next(rounds)
        for id in decide(http, "calm"):
            reward(http, "calm", id, float(n % 2))
        decide(http, "stopped", 5)
        decide(http, "lost")
        decide(http, "fallback")
        if time.monotonic() > start + 70:  # as a day ago there were fewer
            decide(http, "pending", 50)
        http.post("/v1/calm/decisions", json={"rows": "none"})

    fired = until(prometheus, JOURNAL | CALLS, act)
    alerts_of_calm = {name for name, bandit in fired if bandit == "calm"}
    assert alerts_of_calm <= {"BelatedDecideSlow"}  # the machine itself may be slow
    assert serving.runs()


def test_causes_in_the_database(stage: Stage) -> None:
    """It is slow, then down: one decider has a spool and keys, the other has neither."""
    key = make(stage.store, "decide", "reward")
    spool = f'spool_dir = "{stage.folder / "spool"}"'
    _, spooled_url = stage.start(
        "serve", stage.config("safe", {"offers": POLICY}, spool, 'auth = "keys"')
    )
    plain_config = stage.config("plain", {"offers": POLICY})
    _, unspooled_url = stage.start("serve", plain_config)
    stage.start("learn", plain_config)
    spooled_http, http = stage.client(spooled_url, **key.header), stage.client(unspooled_url)
    prometheus = stage.prometheus(make(stage.store, "read").key)
    later(lambda: bool(decide(spooled_http, "offers") and decide(http, "offers")))

    def hold() -> None:
        with psycopg.connect(stage.server.dsn) as connection:
            connection.execute("LOCK TABLE belated.partition IN ACCESS EXCLUSIVE MODE")
            time.sleep(0.8)

    def wait_for_lock() -> None:
        lock_thread = threading.Thread(target=hold)
        lock_thread.start()
        time.sleep(0.1)
        decide(http, "offers")
        lock_thread.join()

    until(prometheus, SLOW, wait_for_lock)
    stage.server.kill()
    rows = [[1.0, 0.0]] * 100

    def fill() -> None:
        decide(spooled_http, "offers", 300, rows)
        decide(http, "offers")

    until(prometheus, AWAY, fill)


def test_a_learner_that_is_killed(stage: Stage) -> None:
    """There is no leader, and in a minute the model is old; no other alert fires."""
    file = stage.config("offers", {"offers": POLICY})
    _, url = stage.start("serve", file)
    learner, _ = stage.start("learn", file)
    http = stage.client(url)
    prometheus = stage.prometheus()
    later(lambda: http.get("/readyz").status_code == 200)
    prometheus.wait(5)
    assert prometheus.firing() == set()
    learner.send(signal.SIGKILL)
    assert until(prometheus, DEAD, lambda: decide(http, "offers")) == DEAD


def test_learner_behind_slow_connection_and_decider_with_different_policy(stage: Stage) -> None:
    """It cannot read as fast as others write; the other decider cannot use its models."""
    gate = Slow(stage.server.port, 40_000)
    dsn = stage.server.dsn.replace(str(stage.server.port), str(gate.port))
    _, url = stage.start("serve", stage.config("offers", {"offers": POLICY}))
    changed_policy = {"offers": "DelayedThompson(dim=2, family=Bernoulli())"}
    stage.start("serve", stage.config("other", changed_policy))
    stage.start("learn", stage.config("slow", {"offers": POLICY}, dsn=dsn))
    http = stage.client(url)
    prometheus = stage.prometheus()
    until(prometheus, APART, lambda: decide(http, "offers", 300))
    gate.close()


def test_every_alert_has_a_cause_here() -> None:
    """Except for those that cannot be caused within minutes."""
    alerts = {name for name, _ in JOURNAL | CALLS | SLOW | AWAY | DEAD | APART}
    assert alerts | NOT_HERE == alert_names()
    assert not alerts & NOT_HERE
