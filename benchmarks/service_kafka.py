"""The decision service on Kafka against the same service on PostgreSQL: requests/s and CPU.

One process on each, a real PostgreSQL that syncs and three brokers that replicate, wrk with 128
connections for the load; all on loopback. Slices alternate, so that other load on the machine
affects both. The brokers share the processors with the service, and with two processors that is
measured, too; a single broker takes less of them.

Rewards are batched for a quarter of a second, so that a commit fills few Kafka records: 128
connections that wait for each response report about 500 per second, however idle the service is.

Run: python benchmarks/service_kafka.py [--slices 5] [--seconds 3] [--brokers 3]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from service import POST, REWARD, Load, quartiles, rows
from service_processes import Server

# Importable because service_processes.py extends the path.
from belated.journals import open_store
from tests.integration.kafka_server import KafkaCluster
from tests.integration.postgres_server import database

CONNECTIONS = 128
#: Goal of the ratio of requests/s to those on PostgreSQL.
GOAL = 0.9


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=3, help="each has all records")
    arguments = parser.parse_args()
    brokers = KafkaCluster(arguments.brokers, compiled=True)
    try:
        with tempfile.TemporaryDirectory() as folder, database() as dsn, database() as shelf:
            open_store(shelf).create_tables()
            options = f"copies={arguments.brokers}&shelf={quote(shelf, safe='')}"
            address = f"kafka://{brokers.address}?{options}"
            with Server("service", dsn) as postgres, Server("service", address) as kafka:
                compare(Path(folder), postgres, kafka, arguments)
    finally:
        brokers.stop()


def compare(folder: Path, postgres: Server, kafka: Server, arguments: argparse.Namespace) -> None:
    """Measure both in alternating slices; the first one warms up."""
    body = json.dumps({"rows": rows()[0]}, separators=(",", ":"))
    loads = {
        "decide": Load(folder, "decide", POST.format(body=body), "/v1/offers/decisions"),
        "reward": Load(folder, "reward", REWARD, "/"),
    }
    results: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in loads}
    for slice_ in range(arguments.slices + 1):
        for name, load in loads.items():
            base = load.run(postgres, CONNECTIONS, arguments.seconds)
            own = load.run(kafka, CONNECTIONS, arguments.seconds)
            if slice_:
                results[name].append((*base, *own))
        print(f"\r{slice_} of {arguments.slices} slices", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("| case | requests/s on PostgreSQL | on Kafka | of PostgreSQL's | CPU, of PostgreSQL's |")
    print("|---|--:|--:|--:|--:|")
    for name, slices in results.items():
        before, after = (sorted(row[k] for row in slices)[len(slices) // 2] for k in (0, 2))
        rates = quartiles([row[2] / row[0] for row in slices])
        cpu = quartiles([row[3] / row[1] for row in slices])
        print(f"| {name} | {before:,.0f} | {after:,.0f} | {rates} | {cpu} |")
    print(f"goal for decisions: {GOAL} of the requests/s")


if __name__ == "__main__":
    main()
