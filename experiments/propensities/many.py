"""How often ``decide_many`` takes actions that it says are unlikely, over a long run.

Batches of 50 decisions, six actions, a floor; rewards of half of them come before the next batch.
In every decision an action is chosen with the probability that the bandit has kept for it, given
all that came before, so what was chosen minus what was said is a martingale: its sum over all
decisions in which an action had a probability within a class, in standard deviations, is normal.
Prints the sum of each class.

Run: python -m experiments.propensities.many [DECISIONS] [SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings

import numpy as np

from belated import Bandit, Bernoulli, DelayedThompson, DelayedUCB, EpsilonGreedy, Explicit
from belated.policies import Policy

ACTIONS, DIM, BATCH = 6, 4, 50
#: Upper ends of the classes of probabilities.
CLASSES = (0.005, 0.02, 0.05, 0.2, 1.0)
POLICIES: dict[str, Policy] = {
    "UCB, floor .02": DelayedUCB(DIM, Bernoulli(), floor=0.02),
    "UCB, floor .12": DelayedUCB(DIM, Bernoulli(), floor=0.12),
    "Rayleigh, floor .02": DelayedUCB(DIM, Bernoulli(), floor=0.02, randomized=True),
    "Thompson, floor .02": DelayedThompson(DIM, Bernoulli(), floor=0.02),
    "Thompson, floor .12": DelayedThompson(DIM, Bernoulli(), floor=0.12),
    "greedy, a tenth at random": EpsilonGreedy(DIM, Bernoulli(), floor=0.1),
}


def said_and_chosen(policy: Policy, decisions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each action in each decision, and which was chosen."""
    rng = np.random.default_rng([seed, 60])
    theta = rng.normal(size=DIM)
    bandit = Bandit(policy=policy, rewards=Explicit(), seed=seed)
    said, chosen = [], []
    for _ in range(decisions // BATCH):
        tables = rng.normal(size=(BATCH, ACTIONS, DIM)) / 2.0
        made = bandit.decide_many(list(tables))
        for table, decision in zip(tables, made, strict=True):
            request = bandit.entry(decision.id).request
            assert request is not None
            assert request.propensities is not None
            assert request.propensities[decision.index] == decision.propensity
            said.append(request.propensities)
            chosen.append(decision.index)
            if rng.random() < 0.5:
                chance = 1.0 / (1.0 + np.exp(-table[decision.index] @ theta))
                bandit.observe(decision.id, float(rng.random() < chance))
    return np.array(said), np.array(chosen)


def main() -> None:
    decisions = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 51_000
    warnings.simplefilter("ignore")
    print(f"{decisions:,} decisions in batches of {BATCH}, seed {seed}")
    print("| policy | probability said | decisions × actions | expected | chosen | deviations |")
    print("|---|---|--:|--:|--:|--:|")
    for name, policy in POLICIES.items():
        said, chosen = said_and_chosen(policy, decisions, seed)
        was = np.arange(ACTIONS) == chosen[:, None]
        low = 0.0
        for high in CLASSES:
            here = (said > low) & (said <= high) & (said < 1.0)
            spread = float((said * (1.0 - said))[here].sum()) ** 0.5
            if spread > 0.0:
                expected, taken = float(said[here].sum()), int(was[here].sum())
                cells = f"{here.sum():,} | {expected:,.1f} | {taken:,}"
                away = (taken - expected) / spread
                print(f"| {name} | ({low:g}, {high:g}] | {cells} | {away:+.2f} |", flush=True)
            low = high


if __name__ == "__main__":
    main()
