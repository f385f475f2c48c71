"""Compare the regret of `PerArm`, with a block per action, and of one dense matrix.

Both bandits get the same contexts and random numbers in each round of a seed: rewards of 0 and 1
arrive with geometric delays. The dense one gets the rows of `PerArm` over all coefficients, zero
outside of the action's own. Prints the mean difference of their regrets and its standard error.

Run: python benchmarks/blocks_regret.py [--size 20x10] [--rounds 2000] [--seeds 10] [--delay 100]
"""

from __future__ import annotations

import argparse
import heapq
import math
from itertools import count

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm
from belated.model.blocks import unblocked


def regrets(width: int, actions: int, rounds: int, delay: float, seed: int) -> tuple[float, float]:
    """Return the regret of blocks, and of one dense matrix."""
    rng = np.random.default_rng(seed)
    thetas = 4.0 * rng.normal(size=(actions, width)) / math.sqrt(width)
    contexts, luck = rng.normal(size=(rounds, width)), rng.random(rounds)
    delays = rng.geometric(1.0 / delay, size=rounds)
    means = 1.0 / (1.0 + np.exp(-contexts @ thetas.T))
    features = PerArm([f"action {k}" for k in range(actions)], context=width)
    rows = [features.rows(context / math.sqrt(width), features.actions) for context in contexts]
    finals = []
    for blocks in (True, False):
        bandit = Bandit(
            features if blocks else None,
            rewards=Explicit(),
            policy=DelayedUCB(features.dim, Bernoulli()),
            background_fits=False,
            seed=seed,
        )
        coming: list[tuple[int, int, str, float]] = []
        regret, order = 0.0, count()
        for n in range(rounds):
            while coming and coming[0][0] <= n:
                *_, id, reward = heapq.heappop(coming)
                bandit.observe(id, reward)
            if blocks:
                decision = bandit.decide(contexts[n] / math.sqrt(width))
            else:
                decision = bandit.decide(rows=unblocked(rows[n], actions))
            mean = means[n, decision.index]
            regret += means[n].max() - mean
            heapq.heappush(
                coming, (n + int(delays[n]), next(order), decision.id, float(luck[n] < mean))
            )
        finals.append(float(regret))
    return finals[0], finals[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="20x10", help="width x actions")
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--delay", type=float, default=100.0, help="mean, in decisions")
    arguments = parser.parse_args()
    width, actions = map(int, arguments.size.split("x"))
    table = np.array(
        [
            regrets(width, actions, arguments.rounds, arguments.delay, seed)
            for seed in range(arguments.seeds)
        ]
    )
    blocks, dense = table.mean(axis=0)
    difference = table[:, 0] - table[:, 1]
    error = difference.std(ddof=1) / math.sqrt(len(difference))
    print(f"regret over {arguments.seeds} seeds: {blocks:.1f} in blocks, {dense:.1f} dense")
    print(f"difference: {difference.mean():.2f} ± {error:.2f} (standard error)")


if __name__ == "__main__":
    main()
