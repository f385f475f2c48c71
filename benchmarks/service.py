"""The decision service under load: requests/s and CPU against an echo on the same server.

One process has the service, one a raw echo of the same request (1.1 kB: 10 rows of 20 numbers),
both as ``belated serve`` starts them; a real PostgreSQL that syncs, wrk for the load; all on
loopback. Slices alternate, so that other load on the machine affects both; ratios are to the median
of all slices of the echo with as many connections. Requests are stored in one case only. Finally an
open loop at half of that rate: latencies next to those of the echo and of bare commits.

With --pin, each of the two processes stays on the first core; wrk and PostgreSQL run anywhere.
With --processes, it measures only `belated serve` with these numbers of processes.

Run: python benchmarks/service.py [--slices 5] [--seconds 3] [--pin | --processes 1 2]
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import uvloop
from numpy.typing import NDArray
from open_loop import Caller, at_rate
from service_apps import ARMS, DIM, OFFERS
from service_processes import Command, Server

from belated.core.events import Decision
from belated.core.ids import new_id
from belated.journals import open_store

# Importable because service_processes.py extends the path.
from tests.integration.keyrings import make
from tests.integration.postgres_server import database

#: Cases: name, connections, and the goals of the ratios of requests/s and CPU to the echo.
GOALS = {
    ("decide", 128): (0.6, 1.5),
    ("decide", 32): (0.45, 1.9),
    ("decide, kept", 128): (0.5, None),
    ("reward", 128): (0.65, None),
}


def rows(count: int = 1) -> list[list[list[float]]]:
    """Return offers whose JSON has about 1.1 kB each."""
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, (ARMS, DIM)).round(2).tolist() for _ in range(count)]


def packed(offer: list[list[float]]) -> str:
    """Return an offer as float32 numbers in base64."""
    return base64.b64encode(np.array(offer, dtype="<f4").tobytes()).decode()


#: wrk scripts: a constant request, or a reward with a new id each time.
POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[{body}]==]
"""
KEYED = POST + 'wrk.headers["Authorization"] = "Bearer {key}"\n'
REWARD = """
local thread = 0
function setup(t) t:set("number", thread); thread = thread + 1 end
function init() n = 0; math.randomseed(os.time() + number); run = math.random(1000000000) end
function request()
  n = n + 1
  local path = "/v1/offers/decisions/r" .. run .. "-" .. number .. "-" .. n .. "/reward"
  return wrk.format("PUT", path, {["Content-Type"] = "application/json"}, '{"value":1.0}')
end
"""


#: The bandit of service_apps.py as a file.
CONFIG = """
[store]
address = "{dsn}"
[server]
learn = false
[bandits.offers]
policy = "DelayedUCB(20, Bernoulli())"
rewards = "Explicit('60s')"
partitions = 2
keep_requests = 0.0
"""


class Load:
    """wrk with a script."""

    def __init__(self, folder: Path, name: str, script: str, path: str) -> None:
        self.script = folder / f"{name}.lua"
        self.script.write_text(script)
        self.path = path

    def run(self, server: Server, connections: int, seconds: int) -> tuple[float, float]:
        """Return requests/s, and CPU seconds of the server per request."""
        before = server.cpu()
        url = f"http://127.0.0.1:{server.port}{self.path}"
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(self.script), url]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if failed := re.search(r"Non-2xx.*|Socket errors.*", output):
            raise RuntimeError(f"{self.script.name}: {failed[0]}")
        rate, count = (
            float(re.findall(pattern, output)[0])
            for pattern in (r"Requests/sec:\s+([\d.]+)", r"(\d+) requests in")
        )
        if not count:
            raise RuntimeError(f"{self.script.name}: nothing was answered within {seconds} s")
        return rate, (server.cpu() - before) / count


def quartiles(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--processes", type=int, nargs="+")
    arguments = parser.parse_args()
    if arguments.processes:
        compare_processes(arguments)
        return
    with (
        tempfile.TemporaryDirectory() as name,
        database() as dsn,
        Server("echo", dsn, pinned=arguments.pin) as echo,
        Server("service", dsn, pinned=arguments.pin) as service,
        Server("kept", dsn, pinned=arguments.pin) as recorder,
        Server("guarded", dsn, pinned=arguments.pin) as guarded,
    ):
        saturated = measure(Path(name), echo, service, recorder, arguments)
        latencies(echo, service, dsn, saturated / 2, 2 * arguments.seconds)
        key = make(open_store(dsn), "decide", rate=1e6).key
        time.sleep(2.5)  # until the key is known
        compare(Path(name), service, guarded, key, arguments)


def compare_processes(arguments: argparse.Namespace) -> None:
    """Measure `belated serve` with several numbers of processes, in alternating slices."""
    body = json.dumps({"rows": rows()[0]}, separators=(",", ":"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = folder / "belated.toml"
        config.write_text(CONFIG.format(dsn=stack.enter_context(database())))
        load = Load(folder, "open", POST.format(body=body), "/v1/offers/decisions")
        servers = {
            count: stack.enter_context(Command(config, count)) for count in arguments.processes
        }
        rates: dict[int, list[float]] = {count: [] for count in servers}
        for _ in range(arguments.slices + 1):
            for count, server in servers.items():
                rates[count].append(load.run(server, 128, arguments.seconds)[0])
    print("| processes | requests/s |\n|--:|--:|")
    for count, values in rates.items():
        print(f"| {count} | {statistics.median(values[1:]):,.0f} |")


def compare(
    folder: Path, service: Server, guarded: Server, key: str, arguments: argparse.Namespace
) -> None:
    """Measure the cost of keys, rates, tokens and a spool, in alternating slices."""
    body = json.dumps({"rows": rows()[0]}, separators=(",", ":"))
    path = f"/v1/{OFFERS.name}/decisions"
    open_ = Load(folder, "open", POST.format(body=body), path)
    keyed = Load(folder, "keyed", KEYED.format(body=body, key=key), path)
    pairs = []
    for _ in range(arguments.slices + 1):
        plain = open_.run(service, 128, arguments.seconds)
        pairs.append((keyed.run(guarded, 128, arguments.seconds), plain))
    rates = quartiles([own[0] / plain[0] for own, plain in pairs[1:]])
    cpu = quartiles([own[1] / plain[1] for own, plain in pairs[1:]])
    print(f"with keys, rates, tokens and a spool: {rates} of the requests/s, goal .93; CPU {cpu}")


def latencies(echo: Server, service: Server, dsn: str, rate: float, seconds: float) -> None:
    """Measure latencies in an open loop."""
    body = json.dumps({"rows": rows()[0]}, separators=(",", ":")).encode()
    quantiles = {}
    for name, server, path in (
        ("echo", echo, "/"),
        ("decide", service, f"/v1/{OFFERS.name}/decisions"),
    ):
        before = server.metrics() if server is service else {}
        quantiles[name] = uvloop.run(ask_at_rate(server.port, path, body, rate, seconds))
    after = service.metrics()
    events, count = (
        after[f"belated_commit_events_{part}"] - before[f"belated_commit_events_{part}"]
        for part in ("sum", "count")
    )
    size = max(1, round(events / count))
    quantiles["bare commit"] = bare_commits(dsn, size)
    goal = quantiles["echo"] + 2 * quantiles["bare commit"]
    print(f"open loop at {rate:,.0f} requests/s, {size} events a commit (p50, p99 in ms)")
    for name, (p50, p99) in {**quantiles, "goal": goal}.items():
        print(f"| {name} | {1e3 * p50:.1f} | {1e3 * p99:.1f} |")


async def ask_at_rate(
    port: int, path: str, body: bytes, rate: float, seconds: float
) -> NDArray[np.float64]:
    """Return p50 and p99 of the latencies in seconds; the first second warms up."""
    caller, took = Caller(port), []

    async def ask(number: int, due: float) -> None:
        answer = await caller.ask("POST", path, body, due)
        if answer.status != 201:
            raise RuntimeError(f"{path}: {answer.status} {answer.body[:200]!r}")
        took.append(answer.seconds)

    await at_rate(rate, 1.0, ask)
    took.clear()
    await at_rate(rate, seconds, ask)
    caller.close()
    return np.quantile(took, [0.5, 0.99])


def bare_commits(dsn: str, size: int, count: int = 500) -> NDArray[np.float64]:
    """Return p50 and p99 of commits by the journal alone, one after the other."""
    took, x = [], np.zeros(DIM, dtype=np.float32)
    with open_store(dsn).journal("bare commits", partitions=1) as journal:
        for _ in range(count):
            decisions = [Decision(new_id(10**15), 1, 0, 0, x, 0.5, 1.0, 0) for _ in range(size)]
            start = time.perf_counter()
            journal.append(decisions)
            took.append(time.perf_counter() - start)
    return np.quantile(took, [0.5, 0.99])


def measure(
    folder: Path, echo: Server, service: Server, kept: Server, arguments: argparse.Namespace
) -> float:
    """Measure the closed loop; return the decisions/s reached with 128 connections."""
    (offer,) = rows()
    many = rows(100)
    decide = "/v1/offers/decisions"
    body = json.dumps({"rows": offer}, separators=(",", ":"))
    loads = {
        "decide": Load(folder, "decide", POST.format(body=body), decide),
        "decide, kept": Load(folder, "kept", POST.format(body=body), decide),
        "decide, base64": Load(
            folder, "packed", POST.format(body=json.dumps({"rows": packed(offer)})), decide
        ),
        "reward": Load(folder, "reward", REWARD, "/"),
        "batch of 100": Load(
            folder,
            "batch",
            POST.format(body=json.dumps({"requests": [{"rows": table} for table in many]})),
            f"{decide}/batch",
        ),
        "batch of 100, base64": Load(
            folder,
            "base64",
            POST.format(body=json.dumps({"requests": [{"rows": packed(table)} for table in many]})),
            f"{decide}/batch",
        ),
    }
    print(f"a request of {len(body):,} bytes; {OFFERS.policy!r}"[:100])
    results: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    cases = [*GOALS, ("decide, base64", 128), ("batch of 100", 8), ("batch of 100, base64", 8)]
    for round_ in range(arguments.slices + 1):
        for case, connections in cases:
            base = loads["decide"].run(echo, connections, arguments.seconds)
            server = kept if case.endswith("kept") else service
            own = loads[case].run(server, connections, arguments.seconds)
            if round_:  # the first one warms up
                results.setdefault((case, connections), []).append((*base, *own))
        print(f"\r{round_} of {arguments.slices} slices", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("| case | connections | requests/s | of the echo's | CPU, of the echo's | goal |")
    print("|---|--:|--:|--:|--:|---|")
    for (case, connections), slices in results.items():
        pool = [
            row for (_, count), values in results.items() if count == connections for row in values
        ]
        echo_rate, echo_cpu = (statistics.median(row[k] for row in pool) for k in (0, 1))
        rate = statistics.median(row[2] for row in slices)
        ratio = quartiles([row[2] / echo_rate for row in slices])
        cpu = quartiles([row[3] / echo_cpu for row in slices])
        goal = GOALS.get((case, connections))
        target = "" if goal is None else f">= {goal[0]}" + (f", <= {goal[1]}" if goal[1] else "")
        print(f"| {case} | {connections} | {rate:,.0f} | {ratio} | {cpu} | {target} |")
    single = [row[2] for row in results["decide", 128]]
    for case, least in (("batch of 100", 2), ("batch of 100, base64", 3)):
        ratios = [100 * row[2] / alone for row, alone in zip(results[case, 8], single, strict=True)]
        print(f"{case}: decisions/s against single ones: {quartiles(ratios)}x, goal {least}")
    return statistics.median(single)


if __name__ == "__main__":
    main()
