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

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from tqdm import tqdm

from belated import DelayedUCB, simulate
from experiments.over_http.player import play
from experiments.over_http.worlds import DELAYS, EMBEDDED, HORIZON, PACE, SERVED, WORLDS
from experiments.runs import parse, write
from experiments.serving import serving
from tests.integration.postgres_server import database

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

    @property
    def settings(self) -> dict[str, str]:
        """Of its bandit."""
        world = WORLDS[self.world](self.seed)
        policy = f"DelayedUCB(dim={world.dim}, family={world.family!r})"
        return {"policy": policy, "rewards": "Explicit()"}


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
    results: list[dict[str, object]] = []
    with database() as dsn, tqdm(total=len(runs), unit="run") as bar:
        for start in range(0, len(runs), TOGETHER):
            part = runs[start : start + TOGETHER]
            bandits = {run.bandit: run.settings for run in part}
            with serving(dsn, bandits) as port, ThreadPoolExecutor(len(part)) as pool:
                for rows in pool.map(lambda run, port=port: compare(port, run), part):
                    results += rows
                    bar.update()
    write(pd.DataFrame(results), ["policy", "environment", "delay", "seed", "regret"], arguments)


if __name__ == "__main__":
    main()
