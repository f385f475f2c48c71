"""Steps by age buckets compared with the exact step by all rows, in posterior standard deviations.

Rows are chosen by the policy; from 30 conversions on, at twelve moments of a run, θ̂ from the sums
by age is compared with one Newton step by all rows from the same θ₀ with the same law. Writes
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
from belated.core.inputs import Matrix, Vector
from belated.fold.learner import Learner
from belated.fold.weighting import ExpectedConversions
from belated.model.estimators.thinned import AgedDecisions
from experiments.conversions.problems import PROBLEMS, policy_of

HERE = Path(__file__).parent
FIRST, CONVERSIONS = 90_000, 30
MOST, MEAN = 0.25, 0.10


def off(learner: Learner) -> float:
    """Return how far the step by age is from the exact one."""
    weighting = learner.weighting
    assert isinstance(weighting, ExpectedConversions)
    weighting.renew()
    step, bread = exact_step(weighting, weighting.data())
    error = learner.model.theta - weighting._blocks.theta - step
    return math.sqrt(float(error @ bread @ error))


def exact_step(weighting: ExpectedConversions, data: AgedDecisions) -> tuple[Vector, Matrix]:
    """Return the step from the last fit's θ by all rows, with a ridge of 1, and its matrix."""
    blocks = weighting._blocks
    theta, law = blocks.theta, blocks.law
    score, bread = -theta.copy(), np.eye(len(theta))
    passed = (weighting._clock.until - blocks.until) / weighting.window  # since that fit
    for part in data.parts:
        x, share = part.rows.astype(np.float64), law.at(part.age)
        g = 1.0 / (1.0 + np.exp(-x @ theta))
        omega = (1.0 - g) / (1.0 - law.at(part.age - passed) * g)
        score += part.counted(omega * (part.y - share * g)) @ x
        bread += (x * part.counted(omega * share * g * (1.0 - g))[:, None]).T @ x
    return np.asarray(np.linalg.solve(bread, score), np.float64), bread


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
        problem, distances = PROBLEMS[name], []
        for seed in range(FIRST, FIRST + arguments.seeds):
            world = problem.world(seed)
            rewards = ConversionsOnly(problem.rewards(problem.window))
            # A run of any length is the beginning of a longer one.
            rounds = moments[(seed - FIRST) % len(moments)] + 13
            policy = policy_of("ucb", world.dim, {})
            trace = simulate(
                policy, world, problem.delay, horizon=rounds, seed=seed, rewards=rewards
            )
            if trace.learner.model.n and trace.learner.observed.total >= CONVERSIONS:
                distances.append(off(trace.learner))
        mean, largest = float(np.mean(distances)), max(distances)
        holds = "yes" if mean <= MEAN and largest <= MOST else "no"
        goal = f"mean ≤ {MEAN}, all ≤ {MOST}"
        lines.append(
            f"| {name} | {len(distances)} | {mean:.3f} | {largest:.3f} | {goal} | {holds} |"
        )
        print(lines[-1], flush=True)
    (HERE / "buckets.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
