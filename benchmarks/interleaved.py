"""Whether this checkout is slower than another one: CPU time, the two in turn, many pairs.

Prints, for a bandit in a program and for the decider process of the service on PostgreSQL, the
ratio of CPU time (this one over the other) with its 95 % interval over the pairs.

    python benchmarks/interleaved.py ../other-checkout --pairs 20
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
#: Rounds of a bandit, and decisions over HTTP, in one measurement.
ROUNDS, DECISIONS, CALLERS = 4_000, 6_000, 32
JSON = {"Content-Type": "application/json"}

EMBEDDED = """
import sys, time
from datetime import timedelta
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.estimators import Online
rounds, rows = int(sys.argv[1]), np.random.default_rng(0).normal(size=(256, 20, 10)) / 10**.5
rows = rows.astype(np.float32)
policy = DelayedUCB(10, Bernoulli(), estimator=Online())
bandit = Bandit(policy=policy, rewards=Explicit(timedelta(days=7)), seed=1)
for n in range(rounds // 10 + rounds):
    if n == rounds // 10:
        start = time.process_time()
    bandit.observe(bandit.decide(rows[n % 256]).id, float(n % 2))
print((time.process_time() - start) / rounds)
"""

CONFIG = """
[{table}]
{key} = "{dsn}"

[server]
port = {port}
learn = false

[bandits.offers]
policy = "DelayedUCB(dim=10, family=Bernoulli())"
rewards = "DefaultAfter('7d')"
"""


def run(checkout: Path, *arguments: str) -> str:
    """What a program of a checkout prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def embedded(checkout: Path) -> float:
    """CPU seconds of one round: a decision and its reward."""
    return float(run(checkout, "-c", EMBEDDED, str(ROUNDS)))


def served(checkout: Path, dsn: str, folder: Path, port: int) -> float:
    """CPU seconds of the decider process for one decision over HTTP."""
    is_new = (checkout / "src" / "belated" / "journals" / "addresses.py").exists()
    table, key = ("store", "address") if is_new else ("database", "dsn")
    config = folder / f"{table}.toml"
    config.write_text(CONFIG.format(table=table, key=key, dsn=dsn, port=port))
    process = subprocess.Popen(
        [sys.executable, "-m", "belated", "serve", str(config), "--create-tables",
         "--log-level", "error"],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )  # fmt: skip
    try:
        _wait_for(port)
        _ask(port, DECISIONS // 10)
        before = _cpu(process.pid)
        _ask(port, DECISIONS)
        return (_cpu(process.pid) - before) / DECISIONS
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/livez")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the service does not start")


def _ask(port: int, decisions: int) -> None:
    body = json.dumps({"rows": [[n / 20.0 + k / 100.0 for k in range(10)] for n in range(20)]})

    def caller() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(decisions // CALLERS):
            connection.request("POST", "/v1/offers/decisions", body, JSON)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201, answer.status

    threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(what: str, measure: Callable[[Path], float], other: Path, pairs: int) -> None:
    """Print the ratio over some pairs; which of the two goes first alternates."""
    ratios = []
    for n in range(pairs):
        order = [HERE, other] if n % 2 else [other, HERE]
        found = {checkout: measure(checkout) for checkout in order}
        ratios.append(found[HERE] / found[other])
        print(f"\r{what}: {n + 1} of {pairs} pairs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    logs = [math.log(one) for one in ratios]
    middle = statistics.mean(logs)
    half = 2.09 * statistics.stdev(logs) / math.sqrt(pairs)  # t of 19 degrees of freedom
    low, mean, high = (math.exp(middle + k * half) for k in (-1, 0, 1))
    print(f"{what:10} CPU {mean:.3f} [{low:.3f}, {high:.3f}] of the other, {pairs} pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="another checkout of this repository")
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    other = options.other.resolve()
    compare("embedded", embedded, other, options.pairs)

    sys.path.insert(0, str(HERE))
    from tests.integration.postgres_server import database
    from tests.ports import free_port

    with tempfile.TemporaryDirectory() as folder, database() as dsn:
        port = free_port()
        compare("served", lambda one: served(one, dsn, Path(folder), port), other, options.pairs)


if __name__ == "__main__":
    main()
