"""Steps by age buckets against the exact step by all rows, in posterior standard deviations.

Rows are chosen by the policy; from 30 conversions on, at twelve moments of a run, θ̂ of the sums by
age is held against one Newton step by all rows from the same θ₀ with the same law. Writes
``buckets.md``.

Run: python -m experiments.conversions.buckets [--seeds 10] [--rounds 4000]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import math
from pathlib import Path

import numpy as np

from belated import ConversionsOnly, simulate
from belated.learner.thinning import ThinnedLearner
from experiments.conversions.problems import PROBLEMS, policy_of

HERE = Path(__file__).parent
FIRST, CONVERSIONS = 90_000, 30
MOST, MEAN = 0.25, 0.10


def off(learner: ThinnedLearner) -> float:
    """How far the step by age is from the exact one."""
    learner._step()
    theta, law = learner._blocks.theta, learner._law
    dim = len(theta)
    score, bread = -theta.copy(), np.eye(dim)
    for part in learner._data().parts:
        x, share = part.rows.astype(np.float64), law.at(part.age)
        g = 1.0 / (1.0 + np.exp(-x @ theta))
        score += (part.y - share * g) @ x
        bread += (x * (share * g * (1.0 - g))[:, None]).T @ x
    away = learner.model.theta - theta - np.linalg.solve(bread, score)
    return math.sqrt(float(away @ bread @ away))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4_000)
    arguments = parser.parse_args()
    moments = np.geomspace(400, arguments.rounds, 12).astype(int).tolist()
    lines = [
        "| problem | moments | mean | largest | goal | reached |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("fresh500", "fresh3000", "fixed3000"):
        problem, found = PROBLEMS[name], []
        for seed in range(FIRST, FIRST + arguments.seeds):
            world = problem.world(seed)
            rewards = ConversionsOnly(problem.rewards(problem.window))
            # A run of any length is the beginning of a longer one.
            rounds = moments[(seed - FIRST) % len(moments)] + 13
            policy = policy_of("ucb", world.dim, {})
            trace = simulate(
                policy, world, problem.delay, horizon=rounds, seed=seed, rewards=rewards
            )
            assert isinstance(trace.learner, ThinnedLearner)
            if trace.learner.converted >= CONVERSIONS:
                found.append(off(trace.learner))
        mean, largest = float(np.mean(found)), max(found)
        holds = "yes" if mean <= MEAN and largest <= MOST else "no"
        goal = f"mean ≤ {MEAN}, all ≤ {MOST}"
        lines.append(f"| {name} | {len(found)} | {mean:.3f} | {largest:.3f} | {goal} | {holds} |")
        print(lines[-1], flush=True)
    (HERE / "buckets.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
