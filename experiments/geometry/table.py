"""Regret where features are correlated, and where there are many: which part of a policy costs it?

``correlated``: ten features with a correlation of .95 between any two. ``sparse``: 100 features of
which five matter. Both have an intercept, features of length 1 on average, 20 new actions a round,
|θ*| = 3 and geometric delays of mean 100. The linear model has the variance of a fair coin, as
LinUCB does. Writes ``table.md``: the regret, and that relative to the default of UCB on the same
seeds.

Run: python -m experiments.geometry.table [SEEDS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from belated import Bernoulli, DelayedThompson, DelayedUCB, Gaussian, delays, simulate
from belated.core.inputs import Matrix, Vector
from belated.model.families import Family
from belated.policies import Policy

HERE = Path(__file__).parent
LAW = delays.Geometric(mean=100)


@dataclass(frozen=True, eq=False)
class Fresh:
    """New actions in every round, of normal features that may share a factor."""

    theta: Vector
    shared: float
    actions: int = 20
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        return len(self.theta)

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        own, common = (1.0 - self.shared) ** 0.5, self.shared**0.5
        for _ in range(horizon):
            rows = own * rng.normal(size=(self.actions, self.dim))
            rows += common * rng.normal(size=(self.actions, 1))
            rows /= (self.dim - 1) ** 0.5
            rows[:, 0] = 1.0
            table = rows.astype(np.float32).astype(np.float64)
            yield table, self.family.mean(table @ self.theta)

    def reward(self, mean: float, u: float) -> float:
        return 1.0 if u < mean else 0.0


def _of_length(theta: Vector) -> Vector:
    return 3.0 * theta / np.linalg.norm(theta)


def correlated(seed: int) -> Fresh:
    theta = np.random.default_rng([seed, 40]).normal(size=11)
    theta[0] = 0.0
    return Fresh(_of_length(theta), shared=0.95)


def sparse(seed: int) -> Fresh:
    rng = np.random.default_rng([seed, 41])
    theta = np.zeros(101)
    theta[1 + rng.choice(100, 5, replace=False)] = rng.normal(size=5)
    return Fresh(_of_length(theta), shared=0.0)


HORIZON = 3_000
PROBLEMS: dict[str, Callable[[int], Fresh]] = {"correlated": correlated, "sparse": sparse}
LOGISTIC, LINEAR = Bernoulli(), Gaussian(0.25)
POLICIES: dict[str, Callable[[int], Policy]] = {
    "UCB": lambda dim: DelayedUCB(dim, LOGISTIC),
    "UCB, ridge 1": lambda dim: DelayedUCB(dim, LOGISTIC, ridge=1.0),
    "UCB .75": lambda dim: DelayedUCB(dim, LOGISTIC, alpha=0.75),
    "UCB .5": lambda dim: DelayedUCB(dim, LOGISTIC, alpha=0.5),
    "linear UCB": lambda dim: DelayedUCB(dim, LINEAR, ridge=1.0),
    "linear UCB .5": lambda dim: DelayedUCB(dim, LINEAR, ridge=1.0, alpha=0.5),
    "Thompson": lambda dim: DelayedThompson(dim, LOGISTIC),
    "Thompson .5": lambda dim: DelayedThompson(dim, LOGISTIC, scale=0.5),
    "Thompson .3": lambda dim: DelayedThompson(dim, LOGISTIC, scale=0.3),
}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 31_000
    warnings.simplefilter("ignore")
    lines = [
        f"{HORIZON:,} rounds, {count} seeds from {first}.",
        "",
        "| problem | policy | regret | of the default's |",
        "|---|---|--:|--:|",
    ]
    for problem, make in PROBLEMS.items():
        regrets: dict[str, Vector] = {}
        for name, policy in POLICIES.items():
            runs = []
            for seed in range(first, first + count):
                world = make(seed)
                trace = simulate(policy(world.dim), world, LAW, horizon=HORIZON, seed=seed)
                runs.append(trace.regret[-1])
            regrets[name] = np.array(runs)
            ratio = float(regrets[name].mean() / regrets["UCB"].mean())
            off = (
                (regrets[name] - ratio * regrets["UCB"]).std() / regrets["UCB"].mean() / count**0.5
            )
            mean, error = regrets[name].mean(), regrets[name].std() / count**0.5
            cells = f"{mean:.1f} ± {error:.1f} | {ratio:.2f} ± {off:.2f}"
            lines.append(f"| {problem} | {name} | {cells} |")
            print(lines[-1], flush=True)
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
