"""Does a policy learn over HTTP what it learns within a process?

Each run is a bandit of its own in a real service (``belated serve``, which learns too) on a real
PostgreSQL: 2 problems, 2 delays, 8 seeds, 4,000 rounds of 10 ms, eight runs at a time; the same
seeds are simulated beside it, with the same contexts, luck and delays. The service answers with the
model it has, which knows a reward about a tenth of a second, ten rounds, after it was told: that is
the only difference. About six minutes.

Run: python -m experiments.over_http.sweep [--seeds 8]; then -m experiments.over_http.analysis
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pandas as pd
from tqdm import tqdm

from belated import DelayedUCB, simulate
from belated.journals import PostgresJournal
from experiments.over_http.player import play
from experiments.over_http.worlds import DELAYS, EMBEDDED, HORIZON, PACE, SERVED, WORLDS
from experiments.runs import parse, write
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import free_port

#: Runs at a time: each takes some connections of the database.
TOGETHER = 8


class Run(NamedTuple):
    """One cell of the table, with its seed."""

    world: str
    delay: str
    seed: int

    @property
    def bandit(self) -> str:
        """Its name in the service."""
        return f"{self.world}-{self.delay}-{self.seed}"


@contextmanager
def serving(dsn: str, runs: Sequence[Run]) -> Iterator[int]:
    """A service with these bandits; its port."""
    port = free_port()
    lines = ["[database]", f'dsn = "{dsn}"', "[server]", f"port = {port}"]
    for run in runs:
        world = WORLDS[run.world](run.seed)
        policy = f"DelayedUCB(dim={world.dim}, family={world.family!r})"
        lines += [f"[bandits.{run.bandit}]", f'policy = "{policy}"', 'rewards = "Explicit()"']
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "belated.toml"
        file.write_text("\n".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "belated", "serve", str(file), "--log-level", "warning"]
        process = subprocess.Popen(command)
        try:
            _wait(port)
            yield port
        finally:
            process.terminate()
            process.wait(60)


def _wait(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60).close()
            return
        except OSError:  # also while no model is there yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def compare(port: int, run: Run) -> list[dict[str, object]]:
    """Both regrets of one run."""
    world, delay = WORLDS[run.world](run.seed), DELAYS[run.delay]
    served = play(
        port, run.bandit, world, delay, horizon=HORIZON, seed=run.seed, pace=PACE
    )  # fmt: skip
    policy = DelayedUCB(world.dim, world.family)
    embedded = simulate(policy, world, delay, horizon=HORIZON, seed=run.seed).regret[-1]
    cell = {"environment": run.world, "delay": run.delay, "seed": run.seed}
    return [
        {"policy": SERVED, **cell, "regret": served},
        {"policy": EMBEDDED, **cell, "regret": float(embedded)},
    ]


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=8)
    runs = [Run(*cell) for cell in product(WORLDS, DELAYS, arguments.seeds)]
    found: list[dict[str, object]] = []
    postgres = PostgresServer()
    try:
        PostgresJournal.create_tables(postgres.dsn)
        with tqdm(total=len(runs), unit="run") as bar:
            for start in range(0, len(runs), TOGETHER):
                part = runs[start : start + TOGETHER]
                with serving(postgres.dsn, part) as port, ThreadPoolExecutor(len(part)) as pool:
                    for rows in pool.map(lambda run, port=port: compare(port, run), part):
                        found += rows
                        bar.update()
    finally:
        postgres.stop()
    write(pd.DataFrame(found), ["policy", "environment", "delay", "seed", "regret"], arguments)


if __name__ == "__main__":
    main()
