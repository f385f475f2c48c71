"""How many machines a rate of decisions needs: the tables of docs/howto/sizing.md.

Without options the tables are computed from the figures in REFERENCE. ``--measure`` measures the
parts on this machine instead: a service asked over HTTP, commits to a real store, a learner. CPU
time of the processes counts, so that a busy machine changes little; only what waits for a disk or a
network is measured by the clock. PostgreSQL and three Kafka brokers are started on loopback.

``--check`` measures the parts of SQLite and PostgreSQL, then runs a service that decides and learns
in one process at rates that were not measured, and compares cores and events per commit. They are
to be within 30 % of the computed ones; medians over the rounds, with the range in brackets.

Run: python benchmarks/sizing.py [--rates 500 1000] [--reward-share 0.1] [--window 7d]
     python benchmarks/sizing.py --measure [sqlite postgresql kafka] [--dim 20]
     python benchmarks/sizing.py --check [--rounds 3] [--seconds 6]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import asyncio
import json
import math
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from resident_memory import resident

sys.path.insert(0, str(Path(__file__).parents[1]))

from belated import Bandit, Bernoulli, DelayedUCB
from belated.cli.options import duration
from belated.cli.text import size as bytes_text
from belated.core.events import Decision, Record, Reward, encode
from belated.core.ids import new_id
from belated.core.rewards import Explicit
from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.decider.decider import Made
from belated.exceptions import MissingExtra
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.journals import PostgresJournal, SQLiteStore, Store, open_store
from belated.journals.kafka.commits import pack
from belated.model import kernels
from belated.policies import Policy
from belated.service import Definition, Service as DecisionService
from belated.service.http.server import Server, collect_rarely
from belated.service.learning.leader import PUBLISH, SNAPSHOT
from belated.service.learning.learners import IDLE, SHARED
from belated.service.learning.lease import SECONDS as LEASE
from belated.service.learning.shared_learner import SEND
from belated.service.serving.group_commit import MAX_COMMIT
from belated.service.serving.served_bandits import POLL_SECONDS, REWARD_SECONDS
from tests.integration.kafka_server import KafkaCluster
from tests.integration.postgres_server import PostgresServer, database
from tests.learners import learning_service, shared_learner

# --- what things cost ----------------------------------------------------------------------------


class Linear(NamedTuple):
    """The cost of handling n things together: ``fixed + each * n``."""

    fixed: float
    each: float

    def of(self, count: float) -> float:
        return self.fixed + self.each * count

    @classmethod
    def through(cls, few: tuple[float, float], many: tuple[float, float]) -> Linear:
        """The line through two measurements, each a count and its cost; never negative."""
        slope = max(0.0, (many[1] - few[1]) / (many[0] - few[0]))
        return cls(max(0.0, few[1] - slope * few[0]), slope)


@dataclass(frozen=True)
class StoreCosts:
    """What a store and a service on it cost. CPU and times in seconds.

    Attributes:
        commit: CPU of the process that appends.
        wait: Time until a commit is durable.
        server: CPU of the database or of all brokers for a commit.
        decision_bytes: Stored bytes of a decision with its request.
        reward_bytes: Stored bytes of a reward.
        event: CPU of a learner per event.
        publish: CPU of a published model, of the learner and a decider.
        request: CPU of a decision over HTTP without its commit.
        reward: CPU of a reward over HTTP without its commit.
        turn: CPU of a commit in the service, without its cost per event.
        idle: CPU per second without requests.
        round: CPU of a learner that finds something new and looks for more.
        turn_wait: Time from one commit to the next while events are pending.
    """

    commit: Linear
    wait: Linear
    server: Linear
    decision_bytes: float
    reward_bytes: float
    event: float
    publish: float
    request: float
    reward: float
    turn: float
    idle: float
    round: float
    turn_wait: Linear


@dataclass(frozen=True)
class Costs:
    """What a bandit costs.

    Attributes:
        embedded_decision: Time of ``Bandit.decide`` on SQLite, until it is durable.
        embedded_reward: Time of ``Bandit.observe``.
        pending_bytes: Memory of a learner per decision that it remembers.
        stores: Costs by the name of the store.
    """

    embedded_decision: float
    embedded_reward: float
    pending_bytes: float
    stores: dict[str, StoreCosts]


#: Measured with ``--measure``: 20 features, 10 actions, on two cores that were shared with others.
REFERENCE = Costs(
    embedded_decision=3.3e-3,
    embedded_reward=3.3e-3,
    pending_bytes=189.0,
    stores={
        "sqlite": StoreCosts(
            commit=Linear(410e-6, 31e-6),
            wait=Linear(3.0e-3, 59e-6),
            server=Linear(0.0, 0.0),
            decision_bytes=1295.0,
            reward_bytes=148.0,
            event=34e-6,
            publish=470e-6,
            request=111e-6,
            reward=51e-6,
            turn=1.28e-3,
            idle=0.0026,
            round=2.7e-3,
            turn_wait=Linear(2.7e-3, 59e-6),
        ),
        "postgresql": StoreCosts(
            commit=Linear(168e-6, 14.5e-6),
            wait=Linear(0.7e-3, 47e-6),
            server=Linear(377e-6, 23e-6),
            decision_bytes=1320.0,
            reward_bytes=200.0,
            event=44e-6,
            publish=770e-6,
            request=138e-6,
            reward=90e-6,
            turn=1.19e-3,
            idle=0.0067,
            round=0.77e-3,
            turn_wait=Linear(5.4e-3, 47e-6),
        ),
        "kafka": StoreCosts(
            commit=Linear(365e-6, 4.8e-6),
            wait=Linear(9.8e-3, 6.7e-6),
            server=Linear(11.0e-3, 5.9e-6),
            decision_bytes=989.0,
            reward_bytes=54.0,
            event=19.6e-6,
            publish=910e-6,
            request=127e-6,
            reward=129e-6,
            turn=1.9e-3,
            idle=0.0048,
            round=1.43e-3,
            turn_wait=Linear(8.9e-3, 6.7e-6),
        ),
    },
)

# --- arithmetic ----------------------------------------------------------------------------------

#: Parts are planned to be busy at most half of the time: load is uneven, and machines fail.
HALF = 0.5
#: A machine.
CORES, MEMORY = 16, 64e9
#: On Kafka: minimum partitions, partitions per learner, maximum partitions, replicas of a record.
LEAST_PARTITIONS, EACH_PARTITIONS, MAX_PARTITIONS, COPIES = 16, 4, 4096, 3
#: Stores, simplest first.
STORES = ("sqlite", "postgresql", "kafka")


class Demand(NamedTuple):
    """Decisions per second, rewards per decision, seconds that a decision is remembered."""

    rate: float
    reward_share: float
    window: float

    @property
    def events(self) -> float:
        """Decisions and rewards per second."""
        return self.rate * (1.0 + self.reward_share)


@dataclass(frozen=True)
class Plan:
    """The resources that a demand needs on a store.

    ``loads`` holds the used share of each part that cannot be multiplied, 1.0 for all of it.
    """

    demand: Demand
    store: str
    deciders: int
    decider_cores: float
    learners: int
    learner_cores: float
    server_cores: float
    brokers: int
    partitions: int
    bytes: float
    memory: float
    lag: float
    lag_after_kill: float
    loads: dict[str, float]

    @property
    def breaks_first(self) -> tuple[str, float]:
        """The part with the least headroom, and the rate at which it has none left."""
        name, load = max(self.loads.items(), key=lambda item: item[1])
        return name, self.demand.rate / load

    @property
    def fits(self) -> bool:
        return max(self.loads.values()) <= HALF


def plan(costs: Costs, demand: Demand) -> Plan:
    """Return the plan for the simplest store that can carry a demand."""
    plans = [plan_for(costs, demand, store) for store in STORES]
    return next((candidate for candidate in plans if candidate.fits), plans[-1])


def plan_for(costs: Costs, demand: Demand, store: str) -> Plan:
    """Return the plan for a demand on a store, whether the store can carry it or not."""
    log = costs.stores[store]
    kafka = store == "kafka"
    memory = demand.rate * demand.window * costs.pending_bytes
    deciders, commit = deciders_of(log, demand, store)
    decider_cores = deciders * decider_load(log, demand, deciders, commit)
    work = demand.events * log.event
    learners = max(math.ceil(work / HALF), math.ceil(memory / (HALF * MEMORY))) if kafka else 1
    partitions, records = 1, demand.events / commit
    if kafka:
        target = max(LEAST_PARTITIONS, EACH_PARTITIONS * learners)
        partitions = min(MAX_PARTITIONS, 1 << math.ceil(math.log2(target)))
        rewards = demand.rate * demand.reward_share
        records = demand.rate / commit + min(rewards, deciders * partitions / REWARD_SECONDS)
    server_cores = log.server.fixed * records + log.server.each * demand.events
    stored = demand.rate * (log.decision_bytes + demand.reward_share * log.reward_bytes)
    if kafka:
        most = MAX_PARTITIONS // EACH_PARTITIONS
        loads = {"memory": memory / (MEMORY * most), "learners": learners * HALF / most}
    else:
        commits = demand.events * log.wait.of(MAX_COMMIT) / MAX_COMMIT
        loads = {"memory": memory / MEMORY, "commits": commits}
        learner = work + log.publish / PUBLISH
        if store == "sqlite":
            loads["process"] = decider_cores + learner
        else:
            loads |= {"learner": learner, "database": server_cores / CORES}
    busy = min(0.99, work / learners)
    folded = SHARED + SEND / 2 if kafka else IDLE + log.round
    return Plan(
        demand=demand,
        store=store,
        deciders=deciders,
        decider_cores=decider_cores,
        learners=learners,
        learner_cores=work if kafka else learner_load(log, demand.events),
        server_cores=server_cores,
        brokers=max(COPIES, math.ceil(server_cores / (HALF * CORES))) if kafka else 0,
        partitions=partitions,
        bytes=stored * (COPIES if kafka else 1),
        memory=memory,
        lag=(folded + PUBLISH / 2 + POLL_SECONDS / 2) / (1.0 - busy),
        lag_after_kill=LEASE + (SNAPSHOT + LEASE) * busy / (1.0 - busy),
        loads=loads,
    )


def commit_size(events: float, wait: Linear) -> float:
    """Return the events per commit: those that arrive during the previous one, or the next one.

    They arrive at random, so none arrives during a commit with the probability exp(-expected).
    """
    count = 1.0
    for _ in range(MAX_COMMIT):
        expected = events * wait.of(count)
        count, before = min(expected + math.exp(-expected), float(MAX_COMMIT)), count
        if abs(count - before) < 1e-6 * count:
            break
    return count


def came_meanwhile(count: float) -> float:
    """Return the events that arrive during a commit of ``count`` events: commit_size inverted."""
    low, high = 0.0, count
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle + math.exp(-middle) > count else (middle, high)
    return low if count > 1.0 else 0.0


def decider_load(log: StoreCosts, demand: Demand, deciders: int, commit: float) -> float:
    """Return the cores of one of several deciders, with commits of so many events."""
    requests = demand.rate * (log.request + demand.reward_share * log.reward)
    commits = demand.events * (log.turn / commit + log.commit.each)
    return log.idle + (requests + commits) / deciders


def learner_load(log: StoreCosts, events: float) -> float:
    """Return the cores of the only learner of a bandit: it folds, polls, and publishes."""
    models = min(events, 1.0 / PUBLISH)
    folding = events * log.event + learner_rounds(events) * log.round
    return min(1.0, folding + models * log.publish)


def learner_rounds(events: float) -> float:
    """Return how often per second a learner finds new events.

    It pauses between two polls, and twice as long if it found nothing: the next event is found
    about two pauses after it arrived.
    """
    return events / (1.0 + 2.0 * IDLE * events)


def deciders_of(log: StoreCosts, demand: Demand, store: str) -> tuple[int, float]:
    """Return the number of deciders, and how many events they commit at a time."""

    def commit(count: int) -> float:
        # In a database, commits are sequential; brokers accept those of all deciders concurrently.
        return commit_size(demand.events / (count if store == "kafka" else 1), log.turn_wait)

    count = 1
    if store != "sqlite":
        count = _least(lambda n: decider_load(log, demand, n, commit(n)) <= HALF)
    return count, commit(count)


def _least(holds: Callable[[int], bool]) -> int:
    """Return the least number from 1 on for which it holds, if it holds for all larger ones too."""
    high = 1
    while not holds(high) and high < 1 << 20:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# --- tables --------------------------------------------------------------------------------------


def cost_table(costs: Costs) -> str:
    """Return the table of parts, by store."""
    rows: dict[str, Callable[[StoreCosts], str]] = {
        "commit, CPU of the decider": lambda log: _line(log.commit),
        "commit, time until it is durable": lambda log: _line(log.wait),
        "commit, CPU of the database or all brokers": lambda log: _line(log.server),
        "decision over HTTP, CPU": lambda log: _us(log.request),
        "reward over HTTP, CPU": lambda log: _us(log.reward),
        "event learned, CPU": lambda log: _us(log.event),
        "decision stored with its request": lambda log: f"{log.decision_bytes:,.0f} bytes",
        "reward stored": lambda log: f"{log.reward_bytes:,.0f} bytes",
    }
    body = [[name, *map(cell, costs.stores.values())] for name, cell in rows.items()]
    return _markdown(["part", *costs.stores], body)


def plan_table(costs: Costs, demands: Sequence[Demand]) -> str:
    """Return the table of resources, by demand."""
    rows: dict[str, Callable[[Plan], str]] = {
        "store": lambda sizing: sizing.store,
        "decider processes": lambda sizing: f"{sizing.deciders:,}",
        "decider cores": lambda sizing: _cores(sizing.decider_cores),
        "learners": lambda sizing: f"{sizing.learners:,}",
        "learner cores": lambda sizing: _cores(sizing.learner_cores),
        "database or broker cores": lambda sizing: _cores(sizing.server_cores),
        f"brokers of {CORES} cores": lambda sizing: f"{sizing.brokers:,}",
        "partitions": lambda sizing: f"{sizing.partitions:,}",
        "log per day, all copies": lambda sizing: bytes_text(round(sizing.bytes * 86_400)),
        "memory of learners": lambda sizing: bytes_text(round(sizing.memory)),
        "lag": lambda sizing: f"{sizing.lag:.2f} s",
        "lag after a learner dies": lambda sizing: f"{sizing.lag_after_kill:.0f} s",
        "runs out first": lambda sizing: sizing.breaks_first[0],
        "at decisions/s": lambda sizing: f"{sizing.breaks_first[1]:,.0f}",
    }
    plans = [plan(costs, demand) for demand in demands]
    body = [[name, *map(cell, plans)] for name, cell in rows.items()]
    return _markdown(["decisions/s", *(f"{demand.rate:,.0f}" for demand in demands)], body)


def _markdown(head: list[str], body: list[list[str]]) -> str:
    rule = ["---", *(["---:"] * (len(head) - 1))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.{1 if seconds < 1e-5 else 0}f} µs"


def _line(cost: Linear) -> str:
    return f"{_us(cost.fixed)} + {_us(cost.each)} per event" if any(cost) else "–"


def _cores(count: float) -> str:
    return f"{count:.2f}" if count < 10 else f"{count:,.0f}"


# --- measuring -----------------------------------------------------------------------------------

#: Events in a small and in a large commit, with the number of commits; number of rounds.
SMALL, LARGE, ROUNDS = (1, 50), (256, 8), 3
#: Decisions to learn from, decisions per commit, and partitions that learners on Kafka share.
LEARNED, TOGETHER, PARTITIONS = 8_192, 256, 4
#: Repetitions: embedded decisions, models, decisions in memory.
EMBEDDED, MODELS, REMEMBERED = 150, 20, 100_000
#: Requests per second at a slow pace; requests of concurrent callers, and rewards of some.
FEW, PACE, MANY, REWARDED, CALLERS, WARM = 300, 200.0, 2_000, 512, 64, 256
#: Seconds to wait for a child process.
PATIENCE = 120.0


class Traffic:
    """Decisions as a service makes them, with their requests, and rewards for some of them."""

    def __init__(self, policy: Policy, actions: int, reward_share: float) -> None:
        self.policy, self.actions, self.reward_share = policy, actions, reward_share
        self._decider = Decider(policy, LoadedModel(policy), partitions=1)
        self._rng = np.random.default_rng(0)

    def decide(self, count: int) -> Made:
        """Return decisions of one slot, as in one commit on Kafka."""
        size = count * self.actions, self.policy.dim
        table = self._rng.uniform(-1, 1, size).astype(np.float32)
        self._decider.slot = int(self._rng.integers(4096))
        requests = [ParsedRequest(self.actions)] * count
        now = time.time_ns() // 1000
        result = self._decider.choose(requests, table, now=now, rng=self._rng, hold=True)
        self._decider.release_all()  # so that the decider does not grow
        return result

    def journal(self) -> tuple[list[Made], list[Decision]]:
        """Return commits to learn from, and the decisions that get a reward."""
        commits = [self.decide(TOGETHER) for _ in range(LEARNED // TOGETHER)]
        few = max(TOGETHER, round(self.reward_share * LEARNED))
        return commits, [decision for commit in commits for decision in commit.decisions][:few]


def rewards_of(decisions: list[Decision]) -> list[Reward]:
    return [Reward(decision.id, decision.at_us, n % 2) for n, decision in enumerate(decisions)]


def measure(traffic: Traffic, stores: dict[str, tuple[str, list[int]]]) -> Costs:
    """Measure on this machine: stores by name, each an address and the pids of its servers."""
    wait_for_kernels()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "embedded.db")
        embedded = _embedded(traffic.policy, traffic.actions, path)
        by_store = {}
        for name, (address, pids) in stores.items():
            print(f"measuring {name} …", file=sys.stderr)
            by_store[name] = StoreBench(open_store(address), address, traffic, pids).costs()
    return Costs(*embedded, _remembered_bytes(traffic.policy), by_store)


def _embedded(policy: Policy, actions: int, path: Path) -> tuple[float, float]:
    """Return the wall-clock seconds of a decision and of a reward, with a file on disk."""
    rows = np.random.default_rng(0).uniform(-1, 1, (actions, policy.dim))
    with Bandit(policy=policy, rewards=Explicit(), journal=SQLiteStore(path).journal()) as bandit:
        bandit.decide(rows=rows)
        start = time.perf_counter()
        ids = [bandit.decide(rows=rows).id for _ in range(EMBEDDED)]
        decided = time.perf_counter()
        for n, decision_id in enumerate(ids):
            bandit.observe(decision_id, float(n % 2))
        ended = time.perf_counter()
    return (decided - start) / EMBEDDED, (ended - decided) / EMBEDDED


def _remembered_bytes(policy: Policy) -> float:
    """Return the memory of a learner per decision, in a separate process."""
    with child(_remember, policy) as link:
        return float(answer(link))  # type: ignore[arg-type]


def _remember(policy: Policy, link: Connection) -> None:
    fold = Fold(policy, Explicit(), kernels=kernels.plain())  # a compiler takes memory, too
    rows = np.random.default_rng(0).normal(size=(1_000, policy.dim)).astype(np.float32)
    now = time.time_ns() // 1000
    before = 0
    with fold.learner.bulk():
        for n in range(REMEMBERED + 1_000):
            if n == 1_000:  # one-time allocations are done by now
                before = resident()
            decision = Decision(new_id(now + n), now, 0, 0, rows[n % 1_000], 0.5, 1.0, 0)
            fold.take(Record(0, n + 1, now, decision))
    link.send((resident() - before) / REMEMBERED)


def wait_for_kernels() -> None:
    """Wait for the kernels that a process compiles once it has run for a while."""
    with suppress(MissingExtra):
        kernels.compiled()
        while kernels.complete() is kernels.plain():
            time.sleep(0.05)


class StoreBench:
    """Measures a store whose servers have these pids."""

    def __init__(self, store: Store, address: str, traffic: Traffic, pids: list[int]) -> None:
        self._store, self._address, self._traffic, self._pids = store, address, traffic, pids
        self._bandit = f"sizing-{store.name}"

    def costs(self) -> StoreCosts:
        commit, wait, server = self._commits()
        decision_bytes, reward_bytes = self._bytes()
        event, publish = self._learner()
        service_costs = self._service(commit, wait, event, publish)
        if self._store.name == "kafka":
            event = self._shared_event()
        return StoreCosts(
            commit, wait, server, decision_bytes, reward_bytes, event, publish, *service_costs
        )

    def _commits(self) -> list[Linear]:
        """Return CPU here, time until durable, and CPU of the server, per commit."""
        with self._store.journal(self._bandit) as journal:

            def append(size: int, count: int) -> list[float]:
                commits = [self._traffic.decide(size) for _ in range(count)]
                before = time.process_time(), time.perf_counter(), cpu_of(self._pids)
                for item in commits:
                    journal.append(item.decisions, requests=item.requests)
                after = time.process_time(), time.perf_counter(), cpu_of(self._pids)
                return [(end - start) / count for start, end in zip(before, after, strict=True)]

            append(*SMALL)  # the first ones take longer
            rounds = [(append(*SMALL), append(*LARGE)) for _ in range(ROUNDS)]
        small, large = (np.median(sizes, axis=0) for sizes in zip(*rounds, strict=True))
        return [
            Linear.through((SMALL[0], few), (LARGE[0], many))
            for few, many in zip(small.tolist(), large.tolist(), strict=True)
        ]

    def _bytes(self) -> tuple[float, float]:
        """Return the stored bytes of a decision and of a reward; the learner reads them later."""
        commits, rewarded = self._traffic.journal()
        if self._store.name == "kafka":
            self._fill(self._bandit, commits, rewarded)
            rewards = [encode(reward) for reward in rewards_of(rewarded[:TOGETHER])]
            decisions = [encode(decision) for decision in commits[0].decisions]
            packed = len(pack(decisions, None, commits[0].requests)) / len(decisions)
            return packed, len(pack(rewards, None, {})) / len(rewards)
        sizes = [self._size()]
        self._fill(self._bandit, commits, [])
        sizes.append(self._size())
        self._fill(self._bandit, [], rewarded)
        sizes.append(self._size())
        return (sizes[1] - sizes[0]) / LEARNED, (sizes[2] - sizes[1]) / len(rewarded)

    def _fill(
        self, bandit: str, made: list[Made], rewarded: list[Decision], partitions: int | None = None
    ) -> None:
        with self._store.journal(bandit, partitions=partitions) as journal:
            for commit in made:
                journal.append(commit.decisions, requests=commit.requests)
            for start in range(0, len(rewarded), TOGETHER):
                journal.append(rewards_of(rewarded[start : start + TOGETHER]))

    def _size(self) -> int:
        """Return the bytes on disk, while no process has the store open."""
        if isinstance(self._store, SQLiteStore):
            path = self._store.path
            return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
        import psycopg

        with psycopg.connect(self._address) as connection:
            query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
            cursor = connection.execute(query + "AND relnamespace = 'belated'::regnamespace")
            return int(cursor.fetchone()[0])  # type: ignore[index]

    def _learner(self) -> tuple[float, float]:
        """Return the CPU of the only learner per event; of learner and decider per model."""
        definition = Definition(self._bandit, self._traffic.policy, Explicit())
        learner = learning_service(definition, self._store)
        session = self._store.session()
        try:
            event = _per_event(learner.step)
            fold = learner.fold
            assert fold is not None

            def publish() -> None:
                model = fold.export_model(learner.clock.now())
                learner.coordination.publish(model.write(), learner.epoch)

            def load() -> None:
                _, data = session.published({definition.name: 0})[definition.name]
                PublishedModel.read(data).model(definition.policy)

            return event, _each(publish, MODELS) + _each(load, MODELS)
        finally:
            session.close()
            learner.close()

    def _shared_event(self) -> float:
        """Return the CPU of one of several learners per event."""
        definition = Definition(
            f"{self._bandit}-shared",
            self._traffic.policy,
            Explicit(),
            partitions=PARTITIONS,
            learners="many",
        )
        commits, rewarded = self._traffic.journal()
        self._fill(definition.name, commits, rewarded, PARTITIONS)
        learner = shared_learner(definition, self._store)
        try:
            start, count = time.process_time(), 0
            until = time.monotonic() + PATIENCE
            while count < LEARNED + len(rewarded):
                assert time.monotonic() < until, "the learner has not read the whole topic"
                count += (records := learner.worker.step())
                if not records:  # until the brokers have assigned the partitions
                    time.sleep(0.1)
            return (time.process_time() - start) / count
        finally:
            learner.close()

    def _service(
        self, commit: Linear, wait: Linear, event: float, publish: float
    ) -> tuple[float, float, float, float, float, Linear]:
        """Return the costs of a service, with few and many callers, with and without a learner."""
        calls = decision_calls(MANY, self._traffic)
        with served(self._traffic.policy, self._address) as service:
            service.ask(calls[:WARM])  # the first ones take longer
            service.rest()
            marks = [service.used()]
            time.sleep(1.0)
            marks.append(service.used())
            service.ask(calls[:FEW], rate=PACE)
            marks.append(service.used())
            ids = service.ask(calls)
            marks.append(service.used())
            service.ask(reward_calls(ids[:REWARDED]))
            marks.append(service.used())
        idle, few, many, rewarded = (after.since(before) for before, after in pairwise(marks))
        with served(self._traffic.policy, self._address, learn=True) as service:
            service.ask(calls[:WARM])
            service.rest()  # until earlier events are learned
            before = service.used()
            service.ask(calls[:FEW], rate=PACE)
            learned = service.used().since(before)
        seconds = FEW / PACE
        learning = learned.cpu - few.cpu - FEW * event - publish * seconds / PUBLISH
        learn_cost = max(0.0, learning / (seconds * learner_rounds(PACE)))
        count = learned.events / learned.commits
        gap = Linear(max(0.0, came_meanwhile(count) / PACE - wait.each * count), wait.each)
        # Two measurements for two unknowns: the cost of a decision, and that of a commit.
        per_event = [used.cpu / used.events - commit.each for used in (few, many)]
        commits = [used.commits / used.events for used in (few, many)]
        turn = max(0.0, (per_event[0] - per_event[1]) / max(1e-9, commits[0] - commits[1]))
        request = max(0.0, per_event[1] - turn * commits[1])
        # Callers that wait for a commit together cost mostly their own requests.
        reward = (rewarded.cpu - commit.fixed * rewarded.commits) / REWARDED - commit.each
        return request, max(0.0, reward), turn, idle.cpu, learn_cost, gap


def _per_event(step: Callable[[], int]) -> float:
    start, count = time.process_time(), 0
    while records := step():
        count += records
    return (time.process_time() - start) / max(1, count)


def _each(work: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - start) / count


def cpu_of(pids: Sequence[int]) -> float:
    """Return the CPU seconds of servers and their children so far; to the nanosecond on Linux."""
    seconds = 0.0
    for folder in Path("/proc").glob("[0-9]*") if pids else ():
        with suppress(OSError):  # it has just ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(folder.name) in pids or int(fields[1]) in pids:
                tasks = folder.glob("task/*/schedstat")
                seconds += sum(int(task.read_text().split()[0]) / 1e9 for task in tasks)
                seconds += sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


# --- a service in a separate process -------------------------------------------------------------


@contextmanager
def child(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run work in a new process, which is sent None at the end."""
    context = get_context("spawn")
    own_end, child_end = context.Pipe()
    process = context.Process(target=work, args=(*arguments, child_end), daemon=True)
    process.start()
    child_end.close()
    try:
        yield own_end
    finally:
        with suppress(OSError):
            own_end.send(None)
        process.join(PATIENCE)


def answer(link: Connection) -> object:
    """Return what a child process sends."""
    if not link.poll(PATIENCE):
        raise TimeoutError(f"the child process did not answer for {PATIENCE:.0f} s")
    return link.recv()


class Used(NamedTuple):
    """The resources that a service has used: CPU seconds, commits, and events in them."""

    cpu: float
    commits: int
    events: int

    def since(self, before: Used) -> Used:
        return Used(
            self.cpu - before.cpu, self.commits - before.commits, self.events - before.events
        )


class Call(NamedTuple):
    """A request below the bandit's path."""

    method: str
    path: str
    body: object


class Service:
    """A service that reports its resource usage."""

    def __init__(self, link: Connection, bandit: str) -> None:
        self._link, self._bandit = link, bandit
        self._port = int(str(answer(link)))

    def used(self) -> Used:
        self._link.send("used")
        result = answer(self._link)
        assert isinstance(result, Used)
        return result

    def rest(self) -> None:
        """Wait until the service is idle."""
        until, before = time.monotonic() + PATIENCE, self.used()
        while time.monotonic() < until:
            time.sleep(0.5)
            now = self.used()
            if now.since(before).cpu < 0.015:
                return
            before = now

    def ask(self, calls: Sequence[Call], *, rate: float = 0.0) -> list[str]:
        """Send requests with CALLERS concurrent callers; return the id in each response.

        With a rate, requests are sent at random moments, if a caller is free.
        """
        return asyncio.run(self._ask(calls, rate))

    async def _ask(self, calls: Sequence[Call], rate: float) -> list[str]:
        ids = [""] * len(calls)
        requests = iter(enumerate([self._encoded(call) for call in calls]))
        gaps = np.random.default_rng(0).exponential(1.0 / rate if rate else 0.0, len(calls))
        due = (time.monotonic() + np.cumsum(gaps)).tolist()

        async def caller() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            for n, data in requests:
                if rate:
                    await asyncio.sleep(max(0.0, due[n] - time.monotonic()))
                writer.write(data)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                assert head.startswith(b"http/1.1 2"), body
                ids[n] = json.loads(body).get("id", "")
            writer.close()

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return ids

    def _encoded(self, call: Call) -> bytes:
        body = json.dumps(call.body).encode()
        head = f"{call.method} /v1/{self._bandit}/{call.path} HTTP/1.1\r\nHost: x\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


@contextmanager
def served(policy: Policy, address: str, *, learn: bool = False) -> Iterator[Service]:
    """Run a service on a store, with or without a learner."""
    bandit = f"sizing-{open_store(address).name}"
    with child(_serve, bandit, policy, address, learn) as link:
        yield Service(link, bandit)


def _serve(bandit: str, policy: Policy, address: str, learn: bool, link: Connection) -> None:
    wait_for_kernels()
    app = DecisionService([Definition(bandit, policy, Explicit())], address, learn=learn)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = Server(app, listening)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    if server.started.wait(PATIENCE):
        collect_rarely()
        link.send(listening.getsockname()[1])
        with suppress(EOFError):
            while link.recv() is not None:
                commits = app.metrics.commits
                assert commits is not None
                link.send(
                    Used(
                        time.process_time(), commits.sizes.cumulative[-1], int(commits.sizes.total)
                    )
                )
    server.stop()
    thread.join(PATIENCE)


def decision_calls(count: int, traffic: Traffic) -> list[Call]:
    rng = np.random.default_rng(0)
    size = traffic.actions, traffic.policy.dim
    rows = [rng.uniform(-1, 1, size).round(3).tolist() for _ in range(50)]
    return [Call("POST", "decisions", {"rows": rows[n % 50]}) for n in range(count)]


def reward_calls(ids: Sequence[str]) -> list[Call]:
    return [
        Call("PUT", f"decisions/{decision_id}/reward", {"value": n % 2})
        for n, decision_id in enumerate(ids)
    ]


# --- comparing the computation with a service ----------------------------------------------------


def computed(costs: Costs, store: str, demand: Demand) -> tuple[float, float]:
    """Return the computed cores of a process that decides and learns, and events per commit."""
    log = costs.stores[store]
    count = commit_size(demand.events, log.turn_wait)
    return decider_load(log, demand, 1, count) + learner_load(log, demand.events), count


def observed(traffic: Traffic, address: str, rate: float, seconds: float) -> tuple[float, float]:
    """Return the same, measured on a service under load."""
    count, share = round(rate * seconds), traffic.reward_share
    with served(traffic.policy, address, learn=True) as service:
        first = service.ask(decision_calls(max(1, round(share * count)), traffic))
        service.rest()  # until they are learned
        calls = []
        rewards = iter(reward_calls(first))
        for n, call in enumerate(decision_calls(count, traffic)):
            calls.append(call)
            if round((n + 1) * share) > round(n * share):
                calls.append(next(rewards))
        before, start = service.used(), time.perf_counter()
        service.ask(calls, rate=rate * (1 + share))
        used, took = service.used().since(before), time.perf_counter() - start
    return used.cpu / took, used.events / used.commits


def check(traffic: Traffic, rates: Sequence[float], rounds: int, seconds: float) -> bool:
    """Print measured / computed; return whether all are within 30 %."""
    ratios: dict[tuple[str, float, str], list[float]] = {}
    for _ in range(
        rounds
    ):  # costs and service alternate, so that other load on the machine affects both
        with database() as dsn, database() as second, tempfile.TemporaryDirectory() as folder:
            sqlite = [
                SQLiteStore(Path(folder, name)).address for name in ("costs.db", "service.db")
            ]
            stores: dict[str, tuple[str, list[int]]] = {
                "sqlite": (sqlite[0], []),
                "postgresql": (dsn, []),
            }
            costs = measure(traffic, stores)
            for store, address in (("sqlite", sqlite[1]), ("postgresql", second)):
                for rate in rates:
                    expected = computed(costs, store, Demand(rate, traffic.reward_share, 86_400.0))
                    observations = observed(traffic, address, rate, seconds)
                    for quantity, prediction, measurement in zip(
                        ("cores", "commit"), expected, observations, strict=True
                    ):
                        ratios.setdefault((store, rate, quantity), []).append(
                            measurement / prediction
                        )
    right = True
    for (store, rate, quantity), values in ratios.items():
        ratio = statistics.median(values)
        ok = 1 / 1.3 <= ratio <= 1 / 0.7
        right &= ok
        print(
            f"{store}, {rate:g} decisions/s, {quantity}: measured / computed {ratio:.2f} "
            f"[{min(values):.2f}, {max(values):.2f}]{'' if ok else '  NOT WITHIN 30 %'}"
        )
    return right


def measured(traffic: Traffic, names: Sequence[str]) -> Costs:
    """Return the costs measured here, with reference figures for the other stores."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores: dict[str, tuple[str, list[int]]] = {}
        if "sqlite" in names:
            stores["sqlite"] = SQLiteStore(Path(folder, "sizing.db")).address, []
        if {"postgresql", "kafka"} & {*names}:
            server = PostgresServer()
            stack.callback(server.stop)
            PostgresJournal.create_tables(server.dsn)
            if "postgresql" in names:
                stores["postgresql"] = server.dsn, [server.pid]
            if "kafka" in names:
                cluster = KafkaCluster(3, compiled=True)
                stack.callback(cluster.stop)
                stores["kafka"] = f"kafka://{cluster.address}?shelf={server.dsn}", cluster.pids
        costs = measure(traffic, stores)
    return replace(costs, stores=REFERENCE.stores | costs.stores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", nargs="*", choices=STORES, metavar="STORE")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--reward-share", type=float, default=0.1)
    parser.add_argument("--window", type=duration, default=duration("1d"))
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--actions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    policy = DelayedUCB(options.dim, Bernoulli())
    traffic = Traffic(policy, options.actions, options.reward_share)
    if options.check:
        rates = options.rates or [130.0, 400.0]
        return 0 if check(traffic, rates, options.rounds, options.seconds) else 1
    costs = REFERENCE
    if options.measure is not None:
        costs = measured(traffic, options.measure or STORES)
        print(costs, end="\n\n")
    window = options.window.total_seconds()
    rates = options.rates or [1e2, 1e3, 1e4, 1e5, 1e6]
    print(cost_table(costs), end="\n\n")
    print(
        f"Bandit on SQLite: decide {_us(costs.embedded_decision)}, observe "
        f"{_us(costs.embedded_reward)}; {costs.pending_bytes:.0f} bytes of memory per decision",
        end="\n\n",
    )
    print(plan_table(costs, [Demand(rate, options.reward_share, window) for rate in rates]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
