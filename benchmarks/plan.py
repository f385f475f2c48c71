"""Whether ``belated plan`` is right: what it says for a rate, against a service at that rate.

Costs are measured as the command measures them. Then a service that decides and learns in one
process is asked at random moments, at rates that were not measured, on SQLite and on a PostgreSQL
of its own. Compared are cores of the process and events in a commit: what is planned is to be
within 30 % of what is measured. Cores are CPU time of the process. A round measures costs and then
the service, so that a busy machine is busy for both; medians, and the range in brackets.

Run: python benchmarks/plan.py [--rounds 3] [--seconds 6] [--dim 20] [--rates 130 400]
     python benchmarks/plan.py --reference
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from belated import Bernoulli, DelayedUCB
from belated.journals import PostgresJournal, SQLiteStore
from belated.planning import Costs, Demand, measure
from belated.planning.arithmetic import commit_size, decider_load, learner_load
from belated.planning.serving import MeasuredService, ask_all, decision_calls, reward_calls
from tests.integration.kafka_server import KafkaCluster
from tests.integration.postgres_server import PostgresServer, database

SHARE, ACTIONS, CALLERS = 0.2, 10, 64
#: Measured / planned.
LOW, HIGH = 1 / 1.3, 1 / 0.7


def planned(costs: Costs, store: str, demand: Demand) -> tuple[float, float]:
    """Cores of a process that decides and learns, and events in a commit."""
    log = costs.logs[store]
    size = commit_size(demand.events, log.service.wait)
    cores = decider_load(log, demand, 1, size) + learner_load(log, demand.events)
    return cores, size


def observed(policy: DelayedUCB, address: str, rate: float, seconds: float) -> tuple[float, float]:
    """The same of a service under load."""
    count = round(rate * seconds)
    with MeasuredService(policy, address, learn=True) as service:
        rewarded = max(1, round(SHARE * count))
        first = ask_all(service, decision_calls(rewarded, policy.dim, ACTIONS), CALLERS)
        service.rest()  # what they led to is learned by now
        decisions = decision_calls(count, policy.dim, ACTIONS)
        calls = []
        rewards = iter(reward_calls(first))
        for n, one in enumerate(decisions):
            calls.append(one)
            if round((n + 1) * SHARE) > round(n * SHARE):
                calls.append(next(rewards))
        before, start = service.used(), time.perf_counter()
        ask_all(service, calls, CALLERS, rate=rate * (1 + SHARE))
        used, took = service.used().since(before), time.perf_counter() - start
    return used.cpu / took, used.events / used.commits


def compare(ratios: dict[tuple[str, float, str], list[float]]) -> bool:
    """Print a line for each; returns whether all are right."""
    right = True
    for (store, rate, what), found in ratios.items():
        ratio = statistics.median(found)
        ok = LOW <= ratio <= HIGH
        right &= ok
        print(
            f"{store}, {rate:g} decisions/s, {what}: measured / planned "
            f"{ratio:.2f} [{min(found):.2f}, {max(found):.2f}]{'' if ok else '  NOT WITHIN 30 %'}"
        )
    return right


def print_reference(dim: int) -> int:
    """Print what every store costs here, with the CPU of its servers: three brokers for Kafka."""
    server, cluster = PostgresServer(), KafkaCluster(3, compiled=True)
    try:
        PostgresJournal.create_tables(server.dsn)
        kafka = f"kafka://{cluster.address}?shelf={server.dsn}"
        costs = measure(
            dim=dim,
            reward_share=SHARE,
            actions=ACTIONS,
            stores=[server.dsn, kafka],
            server_pids=[server.pid, *cluster.pids],
        )
    finally:
        cluster.stop()
        server.stop()
    print(costs)
    return 0


def main() -> int:
    """Print the table; 1 if something is not within 30 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--rates", type=float, nargs="+", default=[130.0, 400.0])
    parser.add_argument("--reference", action="store_true", help="print the costs of all stores")
    options = parser.parse_args()
    if options.reference:
        return print_reference(options.dim)
    policy = DelayedUCB(options.dim, Bernoulli())
    ratios: dict[tuple[str, float, str], list[float]] = {}
    for n in range(options.rounds):  # what was measured and what is planned, in the same minutes
        with database() as dsn, database() as other, tempfile.TemporaryDirectory() as folder:
            costs = measure(dim=options.dim, reward_share=SHARE, actions=ACTIONS, stores=[dsn])
            sqlite = SQLiteStore(Path(folder, "service.db")).address
            for store, address in (("sqlite", sqlite), ("postgresql", other)):
                for rate in options.rates:
                    demand = Demand(rate, SHARE, policy.dim, 86_400.0)
                    wanted = planned(costs, store, demand)
                    found = observed(policy, address, rate, options.seconds)
                    print(f"round {n + 1}: {store}, {rate:g}: {wanted}, {found}", flush=True)
                    for what, one, two in zip(("cores", "commit"), wanted, found, strict=True):
                        ratios.setdefault((store, rate, what), []).append(two / one)
    return 0 if compare(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
