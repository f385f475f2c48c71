"""Half-lives if only conversions are reported: gains under a change, and costs without one.

The problems of the sweep with a mean delay of 500 rounds and a window of 2,000. θ stays, or turns
to another direction in the middle of 10,000 rounds. Half-lives are in rounds; the seeds were not
used for any choice. All runs are in ``forgetting.csv``, written after each seed, from which an
interrupted run continues. Writes ``forgetting.md``.

Run: python -m experiments.conversions.forgetting [--seeds 20] [--minutes M]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from belated import ConversionsOnly, simulate
from belated.core.inputs import Matrix, Vector
from belated.exceptions import AdviceWarning
from experiments.conversions.problems import HORIZON, PROBLEMS, Shop, policy_of

HERE = Path(__file__).parent
TABLE = HERE / "forgetting.csv"
FIRST = 95_000
#: A seed that no other problem has.
OTHER = 500_000
HALF_LIVES = (None, 4_000, 2_000, 1_000)
#: Goals for a half-life of two windows: its regret relative to that without one, if θ is replaced
#: and if it stays.
ASKED = "4000"
GAIN, COST = 0.80, 1.25


@dataclass(frozen=True, eq=False)
class Turned(Shop):
    """A shop whose θ changes in the middle."""

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        later = Shop(self.seed + OTHER, self.fixed).theta
        for t, (rows, means) in enumerate(super().rounds(horizon, rng)):
            yield rows, means if t < horizon // 2 else self.family.mean(rows @ later)


WORLDS = {"stays": Shop, "replaced": Turned}


def run(world: str, fixed: bool, half_life: int | None, seed: int) -> float:
    """Return the regret of one run."""
    problem = PROBLEMS["fresh500"]
    instance = WORLDS[world](seed, fixed)
    policy = policy_of("ucb", instance.dim, {"half_life": f"{half_life}s" if half_life else None})
    rewards = ConversionsOnly(problem.rewards(problem.window))
    trace = simulate(policy, instance, problem.delay, horizon=HORIZON, seed=seed, rewards=rewards)
    return float(trace.regret[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", AdviceWarning)
    start, columns = time.monotonic(), ["world", "rows", "half_life", "seed", "regret"]
    table = pd.read_csv(TABLE, dtype={"half_life": str}) if TABLE.exists() else pd.DataFrame()
    runs = [tuple(row) for row in table.to_numpy().tolist()]
    finished = {row[:4] for row in runs}
    cells = [(w, r, h) for w in WORLDS for r in ("fresh", "fixed") for h in HALF_LIVES]
    for seed in range(FIRST, FIRST + arguments.seeds):
        for world, rows, half_life in cells:
            name = "no" if half_life is None else str(half_life)
            late = time.monotonic() - start > 60 * arguments.minutes
            if late or (world, rows, name, seed) in finished:
                continue
            regret = run(world, rows == "fixed", half_life, seed)
            runs.append((world, rows, name, seed, regret))
        pd.DataFrame(runs, columns=columns).to_csv(TABLE, index=False, float_format="%.4g")
    lines = [*shown(pd.DataFrame(runs, columns=columns))]
    (HERE / "forgetting.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def shown(table: pd.DataFrame) -> Iterator[str]:
    """Yield lines with means, their standard errors, and ratios on paired seeds."""
    yield "| θ | rows | half-life | seeds | regret | / none | goal | reached |"
    yield "|---|---|--:|--:|--:|--:|---|---|"
    for (world, rows), part in table.groupby(["world", "rows"], sort=False):
        wide = part.pivot_table(index="seed", columns="half_life", values="regret").dropna()
        n, none = len(wide), wide["no"]
        for name in wide.columns[::-1]:
            mean, error = wide[name].mean(), wide[name].std() / math.sqrt(n)
            ratio = mean / none.mean()
            off = (wide[name] - ratio * none).std() / math.sqrt(n) / none.mean()
            goal, holds = "", ""
            if name == ASKED:
                most = GAIN if world == "replaced" else COST
                goal, holds = f"≤ {most:.2f}", "yes" if ratio <= most else "no"
            shown = "" if name == "no" else f"{ratio:.2f} ± {off:.2f}"
            cells = f"{n} | {mean:.0f} ± {error:.0f} | {shown} | {goal} | {holds}"
            yield f"| {world} | {rows} | {name} | {cells} |"


if __name__ == "__main__":
    main()
