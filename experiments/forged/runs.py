"""Runs of several seeds in several ways at the same time, against one service."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pandas as pd

from belated.simulation.environments import Environment
from experiments.forged.attacker import NAME, SECRET
from experiments.forged.player import Played, play
from experiments.forged.worlds import DELAY, HONEST, WAYS, WORLDS
from experiments.serving import serving


class Run(NamedTuple):
    """A seed of a problem, played in one way."""

    environment: str
    seed: int
    way: str

    @property
    def bandit(self) -> str:
        """Its name in the service."""
        return f"{self.environment}-{self.seed}-{list(WAYS).index(self.way)}"

    @property
    def world(self) -> Environment:
        """What is played."""
        return WORLDS[self.environment](self.seed)

    @property
    def settings(self) -> dict[str, str]:
        """Of its bandit."""
        world, (tokens, _) = self.world, WAYS[self.way]
        policy = f"DelayedUCB(dim={world.dim}, family={world.family!r}, estimator=Online())"
        return {"policy": policy, "rewards": "Explicit()", "tokens": tokens}

    def play(self, port: int, horizon: int) -> Played:
        """Against a service that has its bandit."""
        _, attacked = WAYS[self.way]
        return play(
            port, self.bandit, self.world, DELAY, horizon=horizon, seed=self.seed,
            attacked=attacked,
        )  # fmt: skip


def play_all(dsn: str, runs: Sequence[Run], horizon: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play all of them at the same time, the honest run of each seed among them.

    Returns:
        A row for each run: its regret, in how many rounds it chose another action than the honest
        run, how many rewards were told honestly, and how many were learned. And a row for each
        kind of reward that an attacker sent in a run, with what was answered, and how often.
    """
    bandits = {run.bandit: run.settings for run in runs}
    head = '[tokens]\nsecrets_env = "TOKEN_KEYS"'
    keys = f"{NAME}:{base64.b64encode(SECRET).decode()}"
    with (
        serving(dsn, bandits, head=head, TOKEN_KEYS=keys) as port,
        ThreadPoolExecutor(len(runs)) as pool,
    ):
        played = dict(zip(runs, pool.map(lambda run: run.play(port, horizon), runs), strict=True))
    rows, answers = [], []
    for run, result in played.items():
        honest = played[run._replace(way=HONEST)].choices
        changed = sum(a != b for a, b in zip(result.choices, honest, strict=True))
        columns = {"regret": result.regret, "others": changed, "told": result.told}
        rows.append({**run._asdict(), **columns, "learned": result.learned})
        answers += [
            {**run._asdict(), "token": token, "answer": answer, "count": count}
            for (token, answer), count in result.answers.items()
        ]
    return pd.DataFrame(rows), pd.DataFrame(answers)
