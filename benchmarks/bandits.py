"""One, ten and a hundred bandits in one process: requests/s, idle CPU, connections and threads.

A decider with that many bandits, a learner of all of them, and PostgreSQL with synced commits; wrk
sends each request to a random bandit. The numbers alternate in rounds, so that other load on the
machine affects all of them. Idle CPU is that of the decider and the learner together without
requests, once the windows of all decisions have ended: until then the learner is not idle.

Run: python benchmarks/bandits.py [--rounds 3] [--seconds 3] [--settle 75] [--idle 30]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from service import POST, Load, quartiles, rows
from service_processes import Server

# Importable because service_processes.py extends the path.
from tests.integration.postgres_server import database

NUMBERS = (1, 10, 100)
CONNECTIONS = 128
#: Seconds until the kernels of a process are compiled or loaded, which takes CPU.
ARRIVED = 6.0
#: Minimum ratio of requests/s at a hundred bandits to one, and the maximum of the others.
MIN_RATIO, MAX_IDLE, MAX_CONNECTIONS, MAX_THREADS = 0.6, 0.05, 6, 12
#: wrk script: each request goes to a random bandit.
ANY = (
    POST
    + """
local n = {count}
function request()
  return wrk.format(nil, "/v1/b" .. math.random(0, n - 1) .. "/decisions")
end
"""
)


def idle(servers: list[Server], seconds: float) -> float:
    """Return the share of one CPU that the servers use while idle."""
    before, start = sum(server.cpu() for server in servers), time.monotonic()
    time.sleep(seconds)
    return (sum(server.cpu() for server in servers) - before) / (time.monotonic() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--settle", type=float, default=75)
    parser.add_argument("--idle", type=float, default=30)
    arguments = parser.parse_args()
    body = json.dumps({"rows": rows()[0]}, separators=(",", ":"))
    rates: dict[int, list[float]] = {number: [] for number in NUMBERS}
    cpus: dict[int, list[float]] = {number: [] for number in NUMBERS}
    rests: dict[int, float] = {}
    memory: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as name, database() as dsn:
        port = int(str(conninfo_to_dict(dsn)["port"]))
        for round_ in range(arguments.rounds + 1):
            for number in NUMBERS:
                script = ANY.format(body=body, count=number)
                load = Load(Path(name), f"any-{number}", script, "/")
                with Server(f"many {number}", dsn) as decider:
                    time.sleep(ARRIVED)
                    load.run(decider, CONNECTIONS, 1)
                    rate, cpu = load.run(decider, CONNECTIONS, arguments.seconds)
                    if round_:  # the first one warms up
                        rates[number].append(rate)
                        cpus[number].append(1e6 * cpu)
                    if round_ < arguments.rounds:
                        continue
                    with Server(f"learners {number}", dsn) as learner:
                        time.sleep(arguments.settle)
                        rests[number] = 100 * idle([decider, learner], arguments.idle)
                        memory[number] = " + ".join(
                            f"{server.connections(port)}, {server.threads()}"
                            for server in (decider, learner)
                        )
    print("| bandits | requests/s | of one | CPU, µs | idle CPU, % | connections, threads |")
    print("|--:|--:|--:|--:|--:|---|")
    alone = statistics.median(rates[1])
    for number in NUMBERS:
        ratio = quartiles([rate / alone for rate in rates[number]])
        print(
            f"| {number} | {statistics.median(rates[number]):,.0f} | {ratio} "
            f"| {statistics.median(cpus[number]):.0f} | {rests[number]:.1f} "
            f"| {memory[number]} |"
        )
    print(
        f"goals at {NUMBERS[-1]}: at least {MIN_RATIO} of one; idle at most {100 * MAX_IDLE:.0f} %;"
        f" at most {MAX_CONNECTIONS} connections and {MAX_THREADS} threads a process (decider +"
        " learner)"
    )


if __name__ == "__main__":
    main()
