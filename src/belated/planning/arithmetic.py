"""From costs and a rate to cores, partitions, brokers, bytes, memory and lag."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from belated.planning.costs import REFERENCE, Costs, Linear, LogCosts
from belated.service.learning.learners import IDLE, SHARED
from belated.service.learning.learning_service import PUBLISH, SNAPSHOT
from belated.service.learning.lease import SECONDS as LEASE
from belated.service.learning.partition_worker import SEND
from belated.service.serving.definition import LearnerCount
from belated.service.serving.group_commit import MAX_COMMIT
from belated.service.serving.model_poll import POLL_SECONDS
from belated.service.serving.served_bandits import REWARD_SECONDS

#: Whatever is planned is busy for half of its time at most: load is never even, and things fail.
HALF = 0.5
#: A machine.
CORES, MEMORY = 16, 64e9
#: Several learners share at least so many partitions, and each has about so many.
LEAST_PARTITIONS, EACH_PARTITIONS = 16, 4
MAX_PARTITIONS = 4096
#: Copies of a record in Kafka, and the brokers that this takes.
COPIES = 3

LogName = Literal["sqlite", "postgresql", "kafka"]


@dataclass(frozen=True)
class Demand:
    """What is asked for.

    Attributes:
        rate: Decisions a second.
        reward_share: Rewards for each decision.
        dim: Features of a row.
        window: Seconds for which a decision is remembered.
    """

    rate: float
    reward_share: float
    dim: int
    window: float

    @property
    def events(self) -> float:
        """Decisions and rewards a second."""
        return self.rate * (1.0 + self.reward_share)


@dataclass(frozen=True)
class Setup:
    """What is run.

    Attributes:
        log: The kind of store.
        learners: How many learners a bandit has at a time.
    """

    log: LogName
    learners: LearnerCount

    def __str__(self) -> str:
        learners = {"one": "one learner", "many": "many learners"}[self.learners]
        return f"{self.log}, {learners}"


#: From the simplest on.
SETUPS = (
    Setup("sqlite", "one"),
    Setup("postgresql", "one"),
    Setup("postgresql", "many"),
    Setup("kafka", "many"),
)


@dataclass(frozen=True)
class Plan:
    """What it takes.

    Attributes:
        demand: What is asked for.
        setup: The simplest that does it with half of its capacity.
        deciders: Processes that serve.
        decider_cores: What they use.
        commit_size: Events in a commit.
        learners: Processes that learn. On SQLite it is the one that serves.
        learner_cores: What they use.
        server_cores: What the database uses, or all brokers.
        brokers: Of Kafka; 0 without.
        partitions: Of the journal.
        bytes: Written to the log in a second, with all copies.
        memory: Bytes of what is pending, of all learners.
        lag: Seconds until a durable reward is in the model that decides.
        lag_after_kill: The same if a learner dies.
        loads: Of each part that cannot be multiplied, how much of it is used; 1.0: all.
    """

    demand: Demand
    setup: Setup
    deciders: int
    decider_cores: float
    commit_size: float
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
        """What has the least to spare, and the rate at which it has none left."""
        name, load = max(self.loads.items(), key=lambda one: one[1])
        return name, self.demand.rate / load

    @property
    def fits(self) -> bool:
        """Whether nothing is used for more than half of what it can do."""
        return max(self.loads.values()) <= HALF


def plan(costs: Costs, demand: Demand) -> Plan:
    """Return the simplest set-up that carries a demand, and what it takes.

    Args:
        costs: What was measured. Stores that were not are taken from reference figures.
        demand: What is asked for.
    """
    plans = [plan_for(costs, demand, setup) for setup in SETUPS]
    return next((one for one in plans if one.fits), plans[-1])


def log_costs(costs: Costs, name: str) -> LogCosts:
    """Return what a journal costs; what was not measured is taken from reference figures."""
    reference = REFERENCE.logs[name]
    found = costs.logs.get(name, reference)
    return found if found.server is not None else replace(found, server=reference.server)


def plan_for(costs: Costs, demand: Demand, setup: Setup) -> Plan:
    """Return what a demand takes with this set-up, whether it can carry it or not."""
    log = log_costs(costs, setup.log)
    assert log.server is not None
    memory = demand.rate * demand.window * costs.pending_bytes
    deciders, size = _deciders(log, demand, setup)
    decider_cores = deciders * decider_load(log, demand, deciders, size)
    shared = setup.learners == "many"
    work = demand.events * (log.shared_event if shared else log.event)
    learners = max(math.ceil(work / HALF), math.ceil(memory / (HALF * MEMORY))) if shared else 1
    partitions = _partitions(learners) if shared else 1
    records = demand.events / size
    if setup.log == "kafka":
        rewards = demand.rate * demand.reward_share
        records = demand.rate / size + min(rewards, deciders * partitions / REWARD_SECONDS)
    server_cores = log.server.fixed * records + log.server.each * demand.events
    each = demand.rate * log.decision_bytes
    each += demand.rate * demand.reward_share * log.reward_bytes
    busy = min(0.99, work / learners)
    loads = {"memory": memory / MEMORY, "learner": work + log.publish / PUBLISH}
    if shared:
        most = MAX_PARTITIONS // EACH_PARTITIONS
        loads = {"memory": memory / (MEMORY * most), "learners": learners * HALF / most}
    if setup.log != "kafka":
        loads["commits"] = demand.events * log.wait.of(MAX_COMMIT) / MAX_COMMIT
    if setup.log == "sqlite":
        loads["process"] = decider_cores + loads.pop("learner")
    elif setup.log == "postgresql":
        loads["database"] = server_cores / CORES
    return Plan(
        demand=demand,
        setup=setup,
        deciders=deciders,
        decider_cores=decider_cores,
        commit_size=size,
        learners=learners,
        learner_cores=work if shared else learner_load(log, demand.events),
        server_cores=server_cores,
        brokers=max(COPIES, math.ceil(server_cores / (HALF * CORES))) * (setup.log == "kafka"),
        partitions=partitions,
        bytes=each * (COPIES if setup.log == "kafka" else 1),
        memory=memory,
        lag=_lag(log, shared=shared) / (1.0 - busy),
        lag_after_kill=LEASE + (SNAPSHOT + LEASE) * busy / (1.0 - busy),
        loads=loads,
    )


def commit_size(events: float, wait: Linear) -> float:
    """Return how many events a commit has: those that came during the one before, or the next one.

    They come at random, so nothing comes during a commit with the probability exp(-expected).

    >>> round(commit_size(1_000.0, Linear(fixed=0.005, each=0.0)), 2)
    5.01
    >>> round(commit_size(10.0, Linear(fixed=0.005, each=0.0)), 2)
    1.0
    """
    size = 1.0
    for _ in range(MAX_COMMIT):
        expected = events * wait.of(size)
        size, before = min(expected + math.exp(-expected), float(MAX_COMMIT)), size
        if abs(size - before) < 1e-6 * size:
            break
    return size


def came_meanwhile(size: float) -> float:
    """Return how many events come during a commit if commits have so many: the way back.

    >>> round(came_meanwhile(5.0067), 2), came_meanwhile(1.0)
    (5.0, 0.0)
    """
    low, high = 0.0, size
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle + math.exp(-middle) > size else (middle, high)
    return low if size > 1.0 else 0.0


def decider_load(log: LogCosts, demand: Demand, deciders: int, size: float) -> float:
    """Return the cores that one of some processes that serve uses.

    Args:
        log: The journal.
        demand: Of all processes together.
        deciders: How many they are.
        size: Events in a commit.
    """
    rate, events = demand.rate / deciders, demand.events / deciders
    service = log.service
    commits = events / size * service.commit + events * log.commit.each
    return service.idle + rate * (service.request + demand.reward_share * service.reward) + commits


def learner_load(log: LogCosts, events: float) -> float:
    """Return the cores that the only learner of a bandit uses.

    When something comes it looks until it finds nothing more, and publishes now and then.
    """
    rounds = learner_rounds(events)
    models = min(events, 1.0 / PUBLISH)
    return min(1.0, events * log.event + rounds * log.service.round + models * log.publish)


def learner_rounds(events: float) -> float:
    """Return how often in a second a learner finds something.

    It rests between two looks, and for twice as long if it found nothing: so it finds the next
    event when that has come and about two rests have passed.

    >>> round(learner_rounds(1.0), 2), round(learner_rounds(1e6))
    (0.99, 100)
    """
    return events / (1.0 + 2.0 * IDLE * events)


def _deciders(log: LogCosts, demand: Demand, setup: Setup) -> tuple[int, float]:
    """How many processes serve, and how many events they commit at a time."""

    def size(count: int) -> float:
        # In one database commits follow one another, whoever makes them; brokers take any number.
        alone = count if setup.log == "kafka" else 1
        return commit_size(demand.events / alone, log.service.wait)

    def load(count: int) -> float:
        return decider_load(log, demand, count, size(count))

    count = 1 if setup.log == "sqlite" else _least(lambda n: load(n) <= HALF)
    return count, size(count)


def _least(holds: Callable[[int], bool]) -> int:
    """The least number from 1 on for which it holds, if it holds for all larger ones too."""
    high = 1
    while not holds(high) and high < 1 << 20:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _partitions(learners: int) -> int:
    wanted = max(LEAST_PARTITIONS, EACH_PARTITIONS * learners)
    return min(MAX_PARTITIONS, 1 << math.ceil(math.log2(wanted)))


def _lag(log: LogCosts, *, shared: bool) -> float:
    """From durable to the model that decides, on average, if nobody has to queue."""
    folded = SHARED + SEND / 2 if shared else IDLE + log.service.round
    return folded + PUBLISH / 2 + POLL_SECONDS / 2
